package softrnic

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestOpenBesideNone: if no free address reaches an IPv6 address of this host, the error says so, whether or not the
// target is there. Once an RNIC was opened at the target's own address, and then took itself for the program in its
// way.
func TestOpenBesideNone(t *testing.T) {
	taken, err := openLoopback(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, others := range [][]netip.Addr{nil, {taken.Addr()}} {
		nic, err := openBeside(netip.IPv6Loopback(), others, Config{})
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "no way to ::1") || !strings.Contains(err.Error(), "ip address add") ||
			strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
			t.Errorf("beside %v: %v", others, err)
		}
		if nic != nil {
			nic.Close()
		}
	}
}

// TestRouteToItself: the target's address can't be the host's, too.
func TestRouteToItself(t *testing.T) {
	r, err := NewRoutes(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := someLoopback()
	if _, err := r.Reach(at, at); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "another address") {
		t.Error(err)
	}
}
