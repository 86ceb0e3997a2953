package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// terminal opens a pseudo-terminal.
func terminal(t *testing.T) *os.File {
	t.Helper()
	_, f := pseudoTerminal(t)
	return f
}

// pseudoTerminal returns a terminal and its master side, which reads what the terminal shows.
func pseudoTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	return master, f
}

// TestReadToTerminal: if --output is forgotten, no data goes to the terminal, unless --output says so; a pipe gets
// the data without it.
func TestReadToTerminal(t *testing.T) {
	pipe, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	tty := terminal(t)
	for _, c := range []struct {
		out     *os.File
		flags   string
		refused bool
	}{{tty, "", true}, {tty, "--output -", false}, {pipe, "", false}} {
		root := newRoot()
		root.SetOut(c.out)
		root.SetArgs(strings.Fields("read -t tcp -a nowhere:x " + c.flags)) // an address that makes it fail in any case
		var stderr strings.Builder
		if code := cli.Execute(t.Context(), root, &stderr); code == cli.ExitOK || strings.Contains(stderr.String(), "is a terminal") != c.refused {
			t.Errorf("%s %s: code %d, %s", c.out.Name(), c.flags, code, stderr.String())
		}
	}
}

// TestReadVerify: with --verify, a range that reads differently the second time is an error.
func TestReadVerify(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:disk"
	_, l := serveSubsystems(t, nqn)
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	reads := 0
	id := nvme.NewHostID()
	ctrl, err := host.Connect(t.Context(), host.Config{
		Transport: &altering{tr, func(r *host.Request, _ *nvme.Completion) {
			if r.Cmd.Opcode() == nvme.OpRead && len(r.Data) > 0 {
				reads++
				r.Data[0] = byte(max(reads-3, 0)) // the fourth brings other data
			}
		}},
		Remote: l.Addr(), SubNQN: nqn, HostID: id, HostNQN: id.NQN(), Queues: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ctrl.Close()
	ns, err := ctrl.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetErr(io.Discard)
	for _, differs := range []bool{false, true} {
		f := &copyFlags{length: cli.Size(ns.BlockSize()), verify: true}
		var out strings.Builder
		err := readTo(c, f, newCopier(ns, make([]byte, ns.BlockSize()), f), &output{ctx: t.Context(), file: &out})
		if (err != nil && strings.Contains(err.Error(), "read back differ")) != differs || out.Len() != ns.BlockSize() {
			t.Errorf("%v, and %d bytes were written, after %d reads", err, out.Len(), reads)
		}
	}
}
