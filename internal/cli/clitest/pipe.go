package clitest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// NewPipe makes a named pipe.
func NewPipe(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	return path
}

// AwaitReader waits until somebody opens the pipe for reading. The reader then waits for data until w is closed.
func AwaitReader(t *testing.T, path string) (w *os.File) {
	t.Helper()
	var err error
	if !soon.Until(func() bool {
		w, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // ENXIO without a reader
		return err == nil
	}) {
		t.Fatal(err)
	}
	return w
}

// IsInterrupted fails t if one of the commands, each of which lacks as its last word the name of the file that it
// reads, can't be interrupted while that file is a pipe or terminal and no data comes.
func IsInterrupted(t *testing.T, newRoot func() *cobra.Command, commands ...string) {
	t.Helper()
	pipe := NewPipe(t)
	for _, command := range commands {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			root := newRoot()
			root.SetArgs(append(strings.Fields(command), pipe))
			ended <- cli.Execute(ctx, root, &strings.Builder{})
		}()
		w := AwaitReader(t, pipe)
		interrupt()
		switch code, ok := soon.Receive(ended); {
		case !ok:
			t.Errorf("%s: it still waits", command)
		case code != cli.ExitInterrupt:
			t.Errorf("%s: exit code %d", command, code)
		}
		w.Close()
	}
}
