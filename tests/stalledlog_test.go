package tests

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stalledPipe returns the end of a pipe that takes nothing: it is full, and nobody reads.
func stalledPipe(t *testing.T) (w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for one := []byte{'.'}; ; {
		_, err := unix.Write(fds[1], one)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(fds[1], false); err != nil { // as a program expects standard error
		t.Fatal(err)
	}
	w = os.NewFile(uintptr(fds[1]), "stalled pipe")
	t.Cleanup(func() {
		w.Close()
		unix.Close(fds[0])
	})
	return w
}

// serveUnheard is startTargetAt, with nobody who reads the messages.
func serveUnheard(t *testing.T, addr netip.Addr, args ...string) *targetProgram {
	t.Helper()
	p := newProgram(t, "nvmetgt", slices.Concat([]string{"serve"}, serveFlags(addr), args)...)
	p.cmd.Stderr = stalledPipe(t)
	p.launch(t, starting)
	p.awaitReady(t)
	return &targetProgram{p, addr}
}

// Programs whose messages nobody reads any more do their work, and end when they are told to: a target that logs hosts,
// and a host that tells of the loss of its only path.
func TestMessagesNotRead(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			addr := freeAddr(t)
			volume := []string{"--volume", filepath.Join(t.TempDir(), "disk.img"), "--size", "8MiB"}
			tgt := serveUnheard(t, addr, volume...)
			hostWrites := func() bool {
				out := tgt.must(t, cliTimeout, transport, "smart-log")
				return !strings.Contains(out, "host_write_commands                    : 0\n")
			}
			load := newProgram(t, "nvmeinit", append([]string{
				"bench", "--rw", "randwrite", "--rate_iops", "1000", "--time_based", "--runtime", "1h", "--ctrl-loss-tmo", "600", "-k", "1", "-c", "1",
			}, tgt.to(transport)...)...)
			load.cmd.Stderr = stalledPipe(t)
			load.launch(t, starting)
			eventually(t, cliTimeout, "the host writes", hostWrites)

			tgt.kill()
			tgt = serveUnheard(t, addr, volume...)
			eventually(t, cliTimeout, "the host writes to the restarted target", hostWrites)

			load.signal(syscall.SIGINT)
			if code := load.wait(t, cliTimeout); code != exitInterrupted {
				t.Errorf("the host ended with %d, want %d", code, exitInterrupted)
			}
			tgt.stop(t)
		})
	}
}
