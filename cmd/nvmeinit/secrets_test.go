package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// TestInterruptedSecret: a command that waits for a secret from a pipe or terminal can be interrupted.
func TestInterruptedSecret(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, command := range []string{"connect", "discover", "connect-all", "bench --all-paths --rw read --runtime 1s"} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			root := newRoot()
			root.SetArgs(append(strings.Fields(command), "-t", "tcp", "-a", "127.0.0.1", "-n", "nqn.2026-11.org.example:a", "--dhchap-secret-file", pipe))
			if command == "discover" {
				root.SetArgs([]string{command, "-t", "tcp", "-a", "127.0.0.1", "--dhchap-secret-file", pipe})
			}
			ended <- cli.Execute(ctx, root, &strings.Builder{})
		}()
		time.Sleep(50 * time.Millisecond) // it most likely waits
		interrupt()
		select {
		case code := <-ended:
			if code != cli.ExitInterrupt {
				t.Errorf("%s: exit code %d", command, code)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it still waits", command)
		}
		if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // ends the wait
			w.Close()
		}
	}
}
