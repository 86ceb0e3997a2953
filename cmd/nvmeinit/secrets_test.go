package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
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

// TestPipedSecret: a secret from a pipe, as <(...) of a shell is one, is there for each path; one in a file is read as it
// is at the time.
func TestPipedSecret(t *testing.T) {
	secret := func() string {
		s, err := dhchap.Generate(0, 32)
		if err != nil {
			t.Fatal(err)
		}
		return s.Text() + "\n"
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fmt.Fprint(w, secret())
	w.Close()
	file := filepath.Join(t.TempDir(), "key")
	var first *connFlags
	for i := range 3 {
		if err := os.WriteFile(file, []byte(secret()), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &connFlags{}
		if i == 0 {
			first = f
			f.add(&cobra.Command{}, true)
			f.secrets.secret, f.secrets.ctrlSecret = cli.SecretFile(fmt.Sprintf("/dev/fd/%d", r.Fd())), cli.SecretFile(file)
		} else {
			*f = *first // as for another path
		}
		a, err := f.secrets.authentication(t.Context())
		if err != nil {
			t.Fatalf("path %d: %v", i+1, err)
		}
		if b, _ := os.ReadFile(file); a.ControllerSecret.Text()+"\n" != string(b) {
			t.Errorf("path %d: not what the file holds", i+1)
		}
	}
}
