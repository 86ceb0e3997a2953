package socket

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// connected returns both ends of a connection on loopback.
func connected(t *testing.T) (a, b *TCP) {
	t.Helper()
	l, err := System.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := System.Dial(t.Context(), netip.Addr{}, l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return dialled.(*TCP), accepted.(*TCP)
}

// TestLocalControl: both ends of a loopback connection have the congestion control for such connections.
func TestLocalControl(t *testing.T) {
	a, b := connected(t)
	for _, c := range []*TCP{a, b} {
		if got, err := unix.GetsockoptString(c.fd, unix.SOL_TCP, unix.TCP_CONGESTION); got != localControl || err != nil {
			t.Errorf("%v has %q, %v", c.LocalAddr(), got, err)
		}
	}
}

// TestWithinHost tells connections within the host from others, which keep the system's congestion control.
func TestWithinHost(t *testing.T) {
	for _, c := range []struct {
		local, remote string
		want          bool
	}{
		{"127.0.0.1", "127.0.0.2", true},
		{"::1", "::1", true},
		{"192.0.2.2", "192.0.2.2", true},
		{"192.0.2.2", "192.0.2.3", false},
		{"127.0.0.1", "192.0.2.3", false},
		{"2001:db8::1", "2001:db8::2", false},
	} {
		if got := withinHost(netip.MustParseAddr(c.local), netip.MustParseAddr(c.remote)); got != c.want {
			t.Errorf("%s to %s: %v", c.local, c.remote, got)
		}
	}
	if withinHost(netip.Addr{}, netip.Addr{}) {
		t.Error("addresses that aren't known")
	}
}

// TestEnded: a connection that its peer has closed is found to have ended, and checking that, as a target does before
// each command if commands are rare, doesn't allocate.
func TestEnded(t *testing.T) {
	a, b := connected(t)
	if n := testing.AllocsPerRun(100, func() {
		if b.Ended() {
			t.Error("it has ended")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	_ = a.Close()
	if !soon.Until(b.Ended) {
		t.Error("it hasn't ended")
	}
}

// TestQueued checks the parsing of the kernel's control message.
func TestQueued(t *testing.T) {
	b := make([]byte, cmsgSpace)
	if n := queued(b[:0]); n != -1 {
		t.Errorf("without a message: %d", n)
	}
	binary.NativeEndian.PutUint64(b, 20)
	binary.NativeEndian.PutUint32(b[8:], 6)   // SOL_TCP
	binary.NativeEndian.PutUint32(b[12:], 36) // TCP_CM_INQ
	binary.NativeEndian.PutUint32(b[16:], 4711)
	if n := queued(b); n != 4711 {
		t.Errorf("%d", n)
	}
}
