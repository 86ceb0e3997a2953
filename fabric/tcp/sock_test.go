package tcp

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocalControl: both ends of a loopback connection have the congestion control for such connections.
func TestLocalControl(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := newPair(t, tt.Addr(), clientOptions{})
	control := func(c *net.TCPConn) (name string) {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { name, err = unix.GetsockoptString(int(fd), unix.SOL_TCP, unix.TCP_CONGESTION) }); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := control(p.io.q.(*hostQueue).tcp); got != localControl {
		t.Errorf("the host's end has %q", got)
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	for c := range tt.conns {
		if got := control(c.tcp); got != localControl {
			t.Errorf("the target's end has %q", got)
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
