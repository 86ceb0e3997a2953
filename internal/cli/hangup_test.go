package cli

import (
	"context"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestHangups: SIGHUP is delivered, and no longer interrupts the program. Afterwards it does
// nothing, and in particular doesn't end the program.
func TestHangups(t *testing.T) {
	program, stop := signal.NotifyContext(t.Context(), os.Interrupt, unix.SIGHUP) // as Main's
	defer stop()
	ctx, cancel := context.WithCancel(program)
	defer cancel()
	hangups := Hangups(ctx)
	if err := unix.Kill(unix.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, ok := soon.Receive(hangups); !ok {
		t.Fatal("it isn't delivered")
	}
	select {
	case <-program.Done():
		t.Error("it interrupts the program")
	case <-soon.After(50 * time.Millisecond): // a context may hear of a signal somewhat later
	}
	cancel()
	if !soon.Until(func() bool { return ignored(t, unix.SIGHUP) }) {
		t.Fatal("it isn't ignored afterwards")
	}
}

// ignored tells whether the system drops a signal to this program.
func ignored(t *testing.T, s unix.Signal) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`SigIgn:\s*([0-9a-f]+)`).FindSubmatch(status)
	if m == nil {
		t.Fatal("/proc/self/status has no signals that are ignored")
	}
	mask, err := strconv.ParseUint(string(m[1]), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(s-1)) != 0
}
