package softrnic

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// routedID is an identifier of the RNIC that its address led to. As with rdma_cm, only one goroutine uses it until
// then.
type routedID struct {
	verbs.CMID // of an RNIC, or unresolved
	among      among
	handler    verbs.CMHandler
}

// among is several RNICs.
type among interface {
	// from returns the one from which dst is reached, with address src if that is valid.
	from(src, dst netip.Addr) (verbs.ConnectionManager, error)
	// listen makes id an identifier that listens at local on those that have its address.
	listen(id *routedID, local netip.AddrPort, backlog int) error
}

func newRoutedID(rnics among, handler verbs.CMHandler) *routedID {
	return &routedID{CMID: &unresolved{}, among: rnics, handler: handler}
}

// SetHandler makes h handle the events from the next one on.
func (id *routedID) SetHandler(h verbs.CMHandler) {
	id.handler = h
	id.CMID.SetHandler(id.renamed(h))
}

// renamed returns the handler that the RNIC's identifier gets: for the consumer its events are id's. Those of connection
// requests keep theirs.
func (id *routedID) renamed(h verbs.CMHandler) verbs.CMHandler {
	if h == nil {
		return nil
	}
	return func(ev verbs.CMEvent) {
		if ev.ID == id.CMID {
			ev.ID = id
		}
		h(ev)
	}
}

// ResolveAddr finds the RNIC, and turns id into an identifier of it.
func (id *routedID) ResolveAddr(src netip.Addr, dst netip.AddrPort, timeout time.Duration) error {
	if _, ok := id.CMID.(*unresolved); ok {
		nic, err := id.among.from(src, dst.Addr())
		if err != nil {
			return err
		}
		of, err := nic.CreateID(nil)
		if err != nil {
			return err
		}
		id.CMID = of
		of.SetHandler(id.renamed(id.handler)) // which reads CMID
	}
	return id.CMID.ResolveAddr(src, dst, timeout)
}

// Listen turns id into a listener.
func (id *routedID) Listen(local netip.AddrPort, backlog int) error {
	if _, ok := id.CMID.(*unresolved); !ok {
		return id.CMID.Listen(local, backlog)
	}
	return id.among.listen(id, local, backlog)
}

// unresolved is an identifier without a device.
type unresolved struct{}

func (*unresolved) Device() verbs.Device             { return nil }
func (*unresolved) LocalAddr() (a netip.AddrPort)    { return a }
func (*unresolved) RemoteAddr() (a netip.AddrPort)   { return a }
func (*unresolved) SetHandler(verbs.CMHandler)       {}
func (*unresolved) QP() verbs.QP                     { return nil }
func (*unresolved) Destroy() error                   { return nil }
func (*unresolved) ResolveRoute(time.Duration) error { return errUnresolved }
func (*unresolved) PathMTU() (verbs.MTU, uint32)     { return 0, 0 }
func (*unresolved) Connect(verbs.ConnParam) error    { return errUnresolved }
func (*unresolved) Accept(verbs.ConnParam) error     { return errUnresolved }
func (*unresolved) Reject([]byte) error              { return errUnresolved }
func (*unresolved) Disconnect() error                { return errUnresolved }

func (*unresolved) ResolveAddr(netip.Addr, netip.AddrPort, time.Duration) error { return errUnresolved }
func (*unresolved) Listen(netip.AddrPort, int) error                            { return errUnresolved }
func (*unresolved) CreateQP(verbs.PD, verbs.QPInitAttr) (verbs.QP, error)       { return nil, errUnresolved }

var (
	errUnresolved = fmt.Errorf("software RNIC: %w: the address of the identifier isn't resolved", verbs.ErrState)
	errNoListener = fmt.Errorf("software RNIC: %w: open the RNIC of an address to listen there", verbs.ErrUnsupported)
)
