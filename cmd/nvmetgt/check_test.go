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

// TestInterruptedReading: a command that waits for what a file is to hold, from a pipe or terminal, can be interrupted.
func TestInterruptedReading(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, command := range []string{"check", "import", "serve --config", "ctl apply", "serve --volume mem:1MiB --listen " + freeEndpoint(t).String() + " --dhchap-secrets"} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			root := newRoot()
			root.SetArgs(append(strings.Fields(command), pipe))
			ended <- cli.Execute(ctx, root, &strings.Builder{})
		}()
		time.Sleep(10 * time.Millisecond) // it most likely waits
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
