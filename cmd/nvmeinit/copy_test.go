package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
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
