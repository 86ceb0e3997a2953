package rdma_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestOwnAddress: the peer's RNIC is on the address of this host that is to be reached, so the RNIC that reaches it is
// on another address, from which packets pass.
func TestOwnAddress(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		peer, err := softrnic.Open(p.Addr(), softrnic.Config{})
		if errors.Is(err, softrnic.ErrInUse) {
			continue // by a test of another package
		}
		if err != nil {
			t.Fatal(err)
		}
		nic, err := softrnic.OpenFor(p.Addr(), softrnic.Config{})
		if p.Addr().Is6() && errors.Is(err, softrnic.ErrInUse) {
			t.Logf("%v: no other IPv6 address is free", p.Addr())
		} else if err != nil {
			t.Errorf("%v: %v", p.Addr(), err)
		} else {
			dialNobody(t, nic, netip.AddrPortFrom(p.Addr(), 4420))
			nic.Close()
		}
		peer.Close()
	}
}

// dialNobody asks the RNIC there for a connection that nobody accepts.
func dialNobody(t *testing.T, nic *softrnic.RNIC, to netip.AddrPort) {
	t.Helper()
	tr := newTransport(t, nic, rdma.HostConfig{})
	defer tr.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var refused *rdma.RejectError
	_, err := tr.Dial(ctx, host.QueueAttr{Remote: to, Size: 32})
	if !errors.As(err, &refused) || refused.Reason != verbs.RejectInvalidServiceID {
		t.Errorf("%v from %v: %v, want the answer that nobody listens", to, nic.Device().Attr().Addr, err)
	}
}
