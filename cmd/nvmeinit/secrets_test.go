package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/cli/clitest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// TestInterruptedSecret: a command that waits for a secret from a pipe or terminal can be interrupted.
func TestInterruptedSecret(t *testing.T) {
	const where, subsystem, secret = " -t tcp -a 127.0.0.1", " -n nqn.2026-11.org.example:a", " --dhchap-secret-file"
	clitest.IsInterrupted(t, newRoot, "connect"+where+subsystem+secret, "discover"+where+secret, "connect-all"+where+subsystem+secret,
		"bench --all-paths --rw read --runtime 1s"+where+subsystem+secret)
}

// TestHangupWithPipe: a connection that is held takes a new secret from a pipe, doesn't wait long for somebody to write
// it, and stays as it is if nobody does in time.
func TestHangupWithPipe(t *testing.T) {
	t.Parallel()
	f := &connFlags{}
	f.secrets.secret = cli.SecretFile(clitest.NewPipe(t))
	old, err := dhchap.Generate(0, 32)
	if err != nil {
		t.Fatal(err)
	}
	f.secrets.piped = map[cli.SecretFile]*dhchap.Secret{f.secrets.secret: old}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var says bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- f.reauthenticate(ctx, &says, nil) }()
	failed, ok := soon.Receive(done)
	if !ok {
		t.Fatal("it waits for the pipe")
	}
	if failed != nil || !strings.Contains(says.String(), "nobody has written to this pipe") {
		t.Errorf("%v; it says %q", failed, says.String())
	}
}

// TestPipedSecret: a secret from a pipe, such as <(...) in a shell, is available to each path; one in a file is
// read as it is at that time.
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
		a, err := f.secrets.authentication(t.Context(), 0)
		if err != nil {
			t.Fatalf("path %d: %v", i+1, err)
		}
		if b, _ := os.ReadFile(file); a.ControllerSecret.Text()+"\n" != string(b) {
			t.Errorf("path %d: not what the file holds", i+1)
		}
	}
}
