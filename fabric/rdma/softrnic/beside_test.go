package softrnic

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestNoIPv6: where there is no IPv6, an address beside ::1 that could be given to this host isn't advised.
func TestNoIPv6(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("a network namespace takes root:", err)
	}
	nic, err := OpenFor(netip.IPv6Loopback(), Config{})
	if err == nil {
		nic.Close()
		t.Fatal("it opens")
	}
	if !strings.Contains(err.Error(), "no route from here") || strings.Contains(err.Error(), "ip address add") {
		t.Error(err)
	}
}

// TestRouteToItself: the target's address can't be the host's, too, and no other one is taken in its place.
func TestRouteToItself(t *testing.T) {
	r, err := NewRoutes(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := someLoopback()
	target, err := Open(at, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	for _, opened := range []string{"nothing", "an RNIC of another address"} {
		if _, err := r.Reach(at, at); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "another address") {
			t.Errorf("with %s open: %v", opened, err)
		}
		if _, err := r.Reach(netip.Addr{}, at); err != nil {
			t.Fatal(err)
		}
	}
}
