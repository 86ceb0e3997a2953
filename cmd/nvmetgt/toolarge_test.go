package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTooLargeRemedy: where it is a limit of the process that makes a file too large, the file system isn't blamed.
func TestTooLargeRemedy(t *testing.T) {
	if s := tooLargeRemedy(); !strings.Contains(s, "file system") {
		t.Errorf("without a limit: %s", s)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 30, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	s := tooLargeRemedy()
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s, "1.0 GiB") || !strings.Contains(s, "ulimit -f") {
		t.Errorf("with a limit of 1 GiB: %s", s)
	}
}
