package softrnic_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

func openRoutes(t *testing.T) *softrnic.Routes {
	r, err := softrnic.NewRoutes(softrnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func reach(t *testing.T, r *softrnic.Routes, dst netip.Addr) *softrnic.RNIC {
	t.Helper()
	nic, err := r.Reach(netip.Addr{}, dst)
	if err != nil {
		t.Fatalf("to %s: %v", dst, err)
	}
	return nic
}

// TestRoutes: destinations that are reached from the address of an open RNIC need no other one.
func TestRoutes(t *testing.T) {
	r := openRoutes(t)
	var told []*softrnic.RNIC
	r.Watch(func(nic *softrnic.RNIC) { told = append(told, nic) })
	first := reach(t, r, loopback)
	addr := first.Device().Attr().Addr
	if again := reach(t, r, netip.MustParseAddr("::ffff:127.0.0.2")); again != first {
		t.Errorf("another address of this host is reached from %v, not %v", again.Device().Attr().Addr, addr)
	}
	beside := reach(t, r, addr)
	if beside == first {
		t.Errorf("%v reaches itself", addr)
	}
	free, err := softrnic.OpenFor(loopback, softrnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	choice := free.Device().Attr().Addr
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	chosen, err := r.Reach(choice, loopback)
	if err != nil || chosen.Device().Attr().Addr != choice {
		t.Fatalf("a chosen address: %v", err)
	}
	if len(told) != 3 || told[0] != first || told[1] != beside || told[2] != chosen {
		t.Errorf("told of %d", len(told))
	}
	late := 0
	r.Watch(func(*softrnic.RNIC) { late++ })
	if late != 3 {
		t.Errorf("told of %d that are open", late)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reach(netip.Addr{}, loopback); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := r.CreateID(nil); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("an identifier after Close: %v", err)
	}
	if err := r.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// TestRoutedIdentifier: an identifier gets the device that its address leads to, and can't do anything before.
func TestRoutedIdentifier(t *testing.T) {
	r := openRoutes(t)
	events := make(chan verbs.CMEvent, 4)
	id, err := r.CreateID(func(verbs.CMEvent) { t.Error("the first handler is told") })
	if err != nil {
		t.Fatal(err)
	}
	id.SetHandler(func(ev verbs.CMEvent) { events <- ev })
	if id.Device() != nil || id.QP() != nil || id.LocalAddr().IsValid() || id.RemoteAddr().IsValid() {
		t.Error("something is known before the address is resolved")
	}
	_, created := id.CreateQP(nil, verbs.QPInitAttr{})
	for what, err := range map[string]error{
		"route": id.ResolveRoute(time.Second), "queue pair": created, "connect": id.Connect(verbs.ConnParam{}),
		"accept": id.Accept(verbs.ConnParam{}), "reject": id.Reject(nil), "disconnect": id.Disconnect(),
	} {
		if !errors.Is(err, verbs.ErrState) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := id.Listen(netip.AddrPortFrom(loopback, 4420), 1); !errors.Is(err, verbs.ErrUnsupported) {
		t.Errorf("listen: %v", err)
	}
	if err := id.ResolveAddr(netip.Addr{}, netip.AddrPort{}, time.Second); !errors.Is(err, softrnic.ErrConfig) || id.Device() != nil {
		t.Errorf("an address of no host: %v", err)
	}
	dst := netip.AddrPortFrom(loopback, 4420)
	if err := id.ResolveAddr(netip.Addr{}, dst, time.Second); err != nil {
		t.Fatal(err)
	}
	ev := <-events
	if ev.ID != id {
		t.Error("the event is of another identifier")
	}
	if ev.Type != verbs.CMAddrResolved || id.Device() != reach(t, r, loopback).Device() || id.RemoteAddr() != dst {
		t.Errorf("%v, device %s, to %v", ev.Type, id.Device().Attr().Name, id.RemoteAddr())
	}
	if err := id.Destroy(); err != nil {
		t.Error(err)
	}
}
