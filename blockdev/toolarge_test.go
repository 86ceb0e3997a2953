package blockdev

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTooLargeRemedy: where it is a limit of the process that makes a file too large, the file system isn't blamed, also
// by a write to a file that has that size.
func TestTooLargeRemedy(t *testing.T) {
	if s := TooLargeRemedy(); !strings.Contains(s, "file system") {
		t.Errorf("without a limit: %s", s)
	}
	v, err := OpenFile(filepath.Join(t.TempDir(), "v"), Options{Size: 2 << 30, IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 30, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	s := TooLargeRemedy()
	done := make(chan error, 1)
	v.Submit(&Request{Op: OpWrite, Offset: 1 << 30, Length: 4096, Bufs: [][]byte{make([]byte, 4096)},
		Complete: func(r *Request) { done <- r.Err }})
	err = <-done
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s, "1.0 GiB") || !strings.Contains(s, "ulimit -f") {
		t.Errorf("with a limit of 1 GiB: %s", s)
	}
	if err == nil || !strings.HasSuffix(err.Error(), s) {
		t.Errorf("a write beyond it: %v, want the remedy", err)
	}
}
