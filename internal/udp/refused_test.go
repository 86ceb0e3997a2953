//go:build linux

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestCallRefused: where the system refuses to send or to receive, as seccomp profiles do that weren't made for this,
// there is no socket, and the error names the call.
func TestCallRefused(t *testing.T) {
	for name, call := range map[string]uint32{"recvmmsg": unix.SYS_RECVMMSG, "sendmmsg": unix.SYS_SENDMMSG} {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			t.Run(name+" "+unix.ErrnoName(errno), func(t *testing.T) {
				if !sandbox.Inside(t) {
					return
				}
				sandbox.Refuse(t, call, errno)
				c, err := Listen(netip.AddrPortFrom(loop4, 0), Config{})
				if !errors.Is(err, ErrUnsupported) || !errors.Is(err, errno) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "seccomp") {
					t.Error(err)
				}
				if c != nil {
					c.Close()
				}
			})
		}
	}
}

// TestRecvShortOfMemory: the kernel's passing lack of memory fails no receive, which would end the RNIC; nor does an
// administrator who ends connections.
func TestRecvShortOfMemory(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
			failed := sandbox.FailOnce(t, unix.SYS_RECVMMSG, errno)
			send(t, a, Train{Dst: b.LocalAddr(), Parts: [][]byte{{1}}, Bytes: 1})
			if n, err := b.Recv(make([]Received, 1)); n != 1 || err != nil || !failed() {
				t.Errorf("Recv returned %d, %v; a call had failed: %v", n, err, failed())
			}
		})
	}
}

// TestRecvFailsNowAndThen: a receive goes on until something is there if it doesn't fail often in a row: signals are no
// failures, and a call that succeeds ends the row, even if what it brings is discarded.
func TestRecvFailsNowAndThen(t *testing.T) {
	for name, tc := range map[string]struct {
		truncated uint64 // of the datagrams
		fails     func(truncate func(on int), before int) unix.Errno
	}{
		"signals": {0, func(_ func(int), before int) unix.Errno {
			if before < 2*mostFailed {
				return unix.EINTR
			}
			return 0
		}},
		"truncated": {1, func(truncate func(int), before int) unix.Errno {
			switch {
			case before == mostFailed:
				truncate(1)
				return 0
			case before < 2*mostFailed:
				truncate(0)
				return unix.ENOMEM
			}
			return 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
			for range tc.truncated + 1 {
				send(t, a, Train{Dst: b.LocalAddr(), Parts: [][]byte{{1}}, Bytes: 1})
			}
			rx := make([]Received, 1)
			runtime.GC()
			// A collection would wait for TryRecv, and that for what decides about its calls.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			truncate := func(on int) { // by more control messages than there is room for
				for _, option := range [][2]int{
					{unix.SOL_SOCKET, unix.SO_TIMESTAMP}, {unix.IPPROTO_IP, unix.IP_PKTINFO}, {unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR},
				} {
					if err := unix.SetsockoptInt(b.fd, option[0], option[1], on); err != nil {
						t.Error(err)
					}
				}
			}
			sandbox.Decide(t, unix.SYS_RECVMMSG, func(before int) unix.Errno { return tc.fails(truncate, before) })
			n, err := b.TryRecv(rx)
			if got := b.Counters().RxTruncated.Load(); n != 1 || err != nil || got != tc.truncated {
				t.Errorf("TryRecv returned %d, %v; %d datagrams were truncated", n, err, got)
			}
		})
	}
}

// TestRecvFailsLong: while the kernel lacks memory, a receive that waits takes no processor, and one that doesn't returns.
func TestRecvFailsLong(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
	sandbox.Refuse(t, unix.SYS_RECVMMSG, unix.ENOMEM)
	if n, err := a.TryRecv(make([]Received, 1)); n != 0 || err != nil {
		t.Errorf("TryRecv returned %d, %v", n, err)
	}
	ended := make(chan error)
	go func() {
		_, err := b.Recv(make([]Received, 1))
		ended <- err
	}()
	const watched = 200 * time.Millisecond
	before := processorTime(t)
	time.Sleep(watched)
	if took := processorTime(t) - before; took > watched/2 {
		t.Errorf("a receive took %v of processor time in %v", took, watched)
	}
	b.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("closed, Recv returned %v", err)
	}
}

// TestSendFull: of what the system has no room for, each Send waits for a while in total, and then drops the rest.
func TestSendFull(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOBUFS, unix.EAGAIN} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			a := listen(t, loop4, Config{})
			if !a.Segmentation() {
				t.Skip("the kernel has no UDP_SEGMENT")
			}
			sandbox.Refuse(t, unix.SYS_SENDMMSG, errno)
			two := trainOf(a.LocalAddr(), pattern(100, 1), 50)
			k := a.Counters()
			for round := range uint64(3) {
				before := k.TxWaits.Load()
				n, err := a.Send([]Train{two, two, two})
				if waits := k.TxWaits.Load() - before; n != 3 || err != nil || waits < 1 || waits > 16 {
					t.Errorf("round %d: took %d, %v, after %d waits", round, n, err, waits)
				}
				if k.TxDrops.Load() != 6*(round+1) || k.TxDatagrams.Load() != 0 {
					t.Errorf("round %d: %d dropped, %d sent", round, k.TxDrops.Load(), k.TxDatagrams.Load())
				}
			}
		})
	}
}

// processorTime returns the processor time that this process has taken.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestInterfacesUnknown: an address whose interface can't be found for lack of descriptors isn't called unknown, nor is
// its interface called down.
func TestInterfacesUnknown(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, netip.MustParseAddr("127.3.2.1")} {
		t.Run(addr.String(), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			failed := sandbox.FailLater(t, unix.SYS_SOCKET, unix.EMFILE, 2) // our own, and the one that lists interfaces
			if _, err := Listen(netip.AddrPortFrom(addr, 0), Config{}); !failed() || !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrNotLocal) {
				t.Errorf("%v; refused: %v", err, failed())
			}
		})
	}
}

// TestShortOfDescriptors: a lack of descriptors isn't taken for that of a route, an interface or other addresses.
func TestShortOfDescriptors(t *testing.T) {
	for name, look := range map[string]func() error{
		"route":  func() error { _, err := SourceFor(netip.MustParseAddr("192.0.2.1")); return err },
		"zone":   func() error { _, err := Listen(netip.MustParseAddrPort("[fe80::1%lo]:0"), Config{}); return err },
		"beside": func() error { _, err := Beside(netip.IPv6Loopback()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			failed := sandbox.FailOnce(t, unix.SYS_SOCKET, unix.EMFILE)
			err := look()
			if !failed() || !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrNotLocal) || strings.Contains(err.Error(), "no route") {
				t.Errorf("%v; refused: %v", err, failed())
			}
		})
	}
}

// TestNetlinkRefused: where the system refuses to say which interfaces there are, the error says what to permit.
func TestNetlinkRefused(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EAFNOSUPPORT, unix.EPERM} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			failed := sandbox.FailLater(t, unix.SYS_SOCKET, errno, 1) // our own
			_, err := Listen(netip.AddrPortFrom(loop4, 0), Config{})
			if !failed() || !errors.Is(err, ErrUnsupported) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "AF_NETLINK") {
				t.Errorf("%v; refused: %v", err, failed())
			}
		})
	}
}

// TestNetlinkRefusedForZone: nor does it call an interface unknown.
func TestNetlinkRefusedForZone(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EAFNOSUPPORT, unix.EPERM} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			sandbox.Refuse(t, unix.SYS_SOCKET, errno)
			_, err := Listen(netip.MustParseAddrPort("[fe80::1%lo]:0"), Config{})
			if !errors.Is(err, ErrUnsupported) || !errors.Is(err, errno) || errors.Is(err, ErrNotLocal) || !strings.Contains(err.Error(), "AF_NETLINK") {
				t.Error(err)
			}
		})
	}
}

// TestFamilyRefused: where a family of addresses may not be used, as a unit's RestrictAddressFamilies= has it, the error
// names that family.
func TestFamilyRefused(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	sandbox.Refuse(t, unix.SYS_SOCKET, unix.EAFNOSUPPORT)
	for _, x := range []struct {
		addr       netip.Addr
		its, other string
	}{{loop4, "IPv4", "IPv6"}, {netip.IPv6Loopback(), "IPv6", "IPv4"}} {
		_, err := Listen(netip.AddrPortFrom(x.addr, 0), Config{})
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), x.its) || strings.Contains(err.Error(), x.other) {
			t.Errorf("%s: %v", x.addr, err)
		}
	}
}

// TestCloseHoldsDescriptor: the descriptor stays open for as long as Close itself uses it, whatever other calls end
// meanwhile. Otherwise Close could shut down a socket that has got its number.
func TestCloseHoldsDescriptor(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	c := listen(t, loop4, Config{})
	awaitShutdown := sandbox.Hang(t, unix.SYS_SHUTDOWN)
	go c.Close()
	awaitShutdown()
	if _, err := c.TryRecv(make([]Received, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("TryRecv after Close returned %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(c.fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("descriptor %d while Close uses it: %v", c.fd, err)
	}
}

// TestLoopbackDown: a network namespace that was just made has a loopback interface that is down. A socket can be bound
// there, but nothing would arrive: the error says what to do.
func TestLoopbackDown(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("a network namespace takes root:", err)
	}
	c, err := Listen(netip.AddrPortFrom(loop4, 0), Config{})
	if err == nil {
		c.Close()
		t.Fatal("it listens")
	}
	if errors.Is(err, ErrNotLocal) || !strings.Contains(err.Error(), "down") || !strings.Contains(err.Error(), "ip link set lo up") {
		t.Error(err)
	}
}

// TestTentative: a socket can have an address that isn't known to be unique yet, as at boot or without a link. One that
// another host has, too, isn't called unknown.
func TestTentative(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("a network namespace takes root:", err)
	}
	addresses(t, "link add va type veth peer name vb", "link set va up", "address add fd00::1/64 dev va") // tentative while vb is down
	addr := netip.MustParseAddr("fd00::1")
	if !isTentative(addr) {
		t.Error("it isn't tentative")
	}
	listen(t, addr, Config{})
	if s := NotLocalRemedy(addr); !strings.Contains(s, "if `ip address` calls it tentative") {
		t.Error(s)
	}
}

// TestOwnerInNamespace: who has a port is looked up in the network namespace of the thread that wants it, which may not
// be that of the process.
func TestOwnerInNamespace(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("a network namespace takes root:", err)
	}
	addresses(t, "link set lo up")
	held := listen(t, loop4, Config{})
	_, err := Listen(held.LocalAddr(), Config{})
	if want := fmt.Sprintf("process %d", os.Getpid()); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want an error that names the owner, %q", err, want)
	}
}
