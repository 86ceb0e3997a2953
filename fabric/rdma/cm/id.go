package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// idState is how far an identifier has come before it has a connection, which has a state of its own.
type idState uint8

const (
	idIdle    idState = iota
	idBound           // address resolved
	idRouted          // route resolved
	idListens         // a listener
	idActive          // Connect was called
	idRequest         // made by a connection request
)

// cmID is a communication identifier (rdma_cm_id). Its fields are guarded by the manager's lock.
type cmID struct {
	m         *Manager
	handler   verbs.CMHandler
	state     idState
	destroyed bool
	accepting bool // Accept is in progress or done
	destroy   sync.Once
	commEst   bool // guarded by the inbox: the QP's first packet was reported

	local, remote netip.AddrPort
	pathMTU       verbs.MTU       // to remote; 0 before ResolveRoute
	param         verbs.ConnParam // from Connect
	qp            verbs.QP
	rec           *record

	backlog, waiting int // of a listener: requests allowed, and present
}

var _ verbs.CMID = (*cmID)(nil)

// begin takes the lock for a call that needs the identifier to be in one of states. If it returns an error it has
// released the lock.
func (id *cmID) begin(op string, states ...idState) error {
	id.m.mu.Lock()
	var err error
	switch {
	case id.destroyed:
		err = fmt.Errorf("%w: identifier destroyed", verbs.ErrClosed)
	case id.m.closed:
		err = fmt.Errorf("%w: connection manager", verbs.ErrClosed)
	default:
		if slices.Contains(states, id.state) {
			return nil
		}
		err = verbs.ErrState
	}
	id.m.mu.Unlock()
	return id.opError(op, err)
}

// opError wraps err. It is called without the lock.
func (id *cmID) opError(op string, err error) error {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	if id.state == idListens {
		return &OpError{op, id.local, err}
	}
	return &OpError{op, id.remote, err}
}

// Device returns nil before the address is resolved.
func (id *cmID) Device() verbs.Device {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	if id.state == idIdle {
		return nil
	}
	return id.m.dev
}

// LocalAddr returns our address and port; zero before they are known.
func (id *cmID) LocalAddr() netip.AddrPort {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	return id.local
}

// RemoteAddr returns the peer's address and port; zero before they are known.
func (id *cmID) RemoteAddr() netip.AddrPort {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	return id.remote
}

// SetHandler makes h handle the events from the next one on.
func (id *cmID) SetHandler(h verbs.CMHandler) {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	id.handler = h
}

// QP returns the queue pair from CreateQP; nil before.
func (id *cmID) QP() verbs.QP {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	return id.qp
}

// ResolveAddr binds id to the manager's device. There is nothing to wait for: the event comes at once.
func (id *cmID) ResolveAddr(src netip.Addr, dst netip.AddrPort, _ time.Duration) error {
	const op = "resolve address"
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if !dst.IsValid() || dst.Port() == 0 || dst.Addr().IsUnspecified() || dst.Addr().IsMulticast() {
		return &OpError{op, dst, fmt.Errorf("%w: destination must be a unicast address with a port", verbs.ErrInvalid)}
	}
	if err := id.begin(op, idIdle); err != nil {
		return err
	}
	defer id.m.mu.Unlock()
	if err := id.m.reach(src, dst.Addr()); err != nil {
		id.post(verbs.CMEvent{Type: verbs.CMAddrError, Err: &OpError{op, dst, err}})
		return nil
	}
	id.state = idBound
	id.local = netip.AddrPortFrom(id.m.addr, ephemeralPort())
	id.remote = dst
	id.post(verbs.CMEvent{Type: verbs.CMAddrResolved})
	return nil
}

// reach returns an error if the device can't reach dst from src.
func (m *Manager) reach(src, dst netip.Addr) error {
	src = src.Unmap()
	if src.IsValid() && !src.IsUnspecified() && src != m.addr {
		return fmt.Errorf("%w: source %v is not the address %v of device %s", ErrUnreachable, src, m.addr, m.attr.Name)
	}
	if dst.Is4() != m.addr.Is4() {
		return fmt.Errorf("%w: device %s has address %v, of the other IP version", ErrUnreachable, m.attr.Name, m.addr)
	}
	return nil
}

// The ephemeral ports are those from 49152 up (RFC 6335).
const (
	firstEphemeral = 0xc000
	ephemeralPorts = 1<<16 - firstEphemeral
)

// ephemeralPort returns a source port as rdma_cm would choose it. It only names the connection: nothing is bound to it.
func ephemeralPort() uint16 { return firstEphemeral | uint16(random32()) }

// post queues an event of id. Called with the lock held.
func (id *cmID) post(e verbs.CMEvent) {
	id.m.events = append(id.m.events, queuedEvent{id, connEvent{CMEvent: e}})
	id.m.inbox.kick()
}

// ResolveRoute only has to find the path MTU, because on RoCE the IP layer routes; the event comes at once.
func (id *cmID) ResolveRoute(time.Duration) error {
	if err := id.begin("resolve route", idBound); err != nil {
		return err
	}
	defer id.m.mu.Unlock()
	id.state = idRouted
	id.pathMTU = id.m.pathMTU(id.remote.Addr())
	id.post(verbs.CMEvent{Type: verbs.CMRouteResolved, Param: verbs.ConnParam{PathMTU: id.pathMTU}})
	return nil
}

// PathMTU finds the path MTU and the options anew.
func (id *cmID) PathMTU() (mtu verbs.MTU, options uint32) {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	if !id.remote.IsValid() {
		return 0, 0
	}
	peer := id.remote.Addr()
	return id.m.pathMTU(peer), id.m.featuresOf(id.m.kindOffer(peer), offered)
}

// CreateQP makes an RC queue pair in state INIT. The consumer's EventHandler still gets every event.
func (id *cmID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create QP"
	if err := id.m.checkQP(pd, init); err != nil {
		return nil, &OpError{Op: op, Err: fmt.Errorf("%w: %w", verbs.ErrInvalid, err)}
	}
	if err := id.begin(op, idBound, idRouted, idRequest); err != nil {
		return nil, err
	}
	access, busy := id.remoteAccess(), id.qp != nil
	id.m.mu.Unlock()
	if busy {
		return nil, id.opError(op, verbs.ErrState)
	}
	consumer := init.EventHandler
	init.EventHandler = func(e verbs.AsyncEvent) {
		if e.Type == verbs.EventCommEst {
			id.m.inbox.putCommEst(id)
		}
		if consumer != nil {
			consumer(e)
		}
	}
	qp, err := pd.CreateQP(init)
	if err != nil {
		return nil, id.opError(op, err)
	}
	if err = qp.Modify(verbs.QPAttr{State: verbs.Init, Access: access}); err == nil {
		err = id.adopt(qp)
	}
	if err != nil {
		return nil, errors.Join(id.opError(op, err), qp.Destroy())
	}
	return qp, nil
}

// checkQP returns an error if a QP with init in pd can't be used for a connection of the device.
func (m *Manager) checkQP(pd verbs.PD, init verbs.QPInitAttr) error {
	switch {
	case init.Type != verbs.RC:
		return errors.New("a connection needs type RC")
	case pd == nil:
		return errors.New("no protection domain")
	case pd.Device().Attr().NodeGUID != m.attr.NodeGUID: // either may be a wrapper of the device
		return fmt.Errorf("protection domain of device %s, the connection is one of %s", pd.Device().Attr().Name, m.attr.Name)
	}
	return nil
}

// adopt assigns qp to the identifier, unless that was destroyed or got another one meanwhile.
func (id *cmID) adopt(qp verbs.QP) error {
	id.m.mu.Lock()
	defer id.m.mu.Unlock()
	switch {
	case id.destroyed:
		return verbs.ErrClosed
	case id.qp != nil:
		return verbs.ErrState
	}
	id.qp = qp
	return nil
}

// Destroy frees the identifier and its QP, and tells the peer if there is one. No event follows; a handler that is
// running in the manager's goroutine at that moment may still be running when Destroy returns. The QP is gone then, even
// if another call is destroying it: Close may, while the consumer, which frees the QP's memory afterwards, does too.
func (id *cmID) Destroy() (err error) {
	id.destroy.Do(func() { err = id.free() })
	return err
}

// free is the first Destroy.
func (id *cmID) free() error {
	m := id.m
	m.mu.Lock()
	id.destroyed = true
	delete(m.ids, id)
	if id.state == idListens {
		delete(m.listeners, id.local.Port())
	}
	qp := id.qp
	if r := id.rec; r != nil {
		r.owner = nil
		m.finish(r, m.apply(r, func(fx *effects) { r.abandon(time.Now(), fx) }))
	} else {
		m.mu.Unlock()
	}
	if qp == nil {
		return nil
	}
	return qp.Destroy()
}
