package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/inuse"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// HostConfig configures a Transport. The zero value uses the defaults.
type HostConfig struct {
	// ResolveTimeout bounds address resolution and route resolution separately; 0 means 3 s.
	ResolveTimeout time.Duration
	// Memory bounds the memory that Alloc hands out, in bytes; 0 means 1 GiB.
	Memory int64
}

const (
	defaultResolveTimeout = 3 * time.Second
	defaultHostMemory     = 1 << 30
)

// Validate returns an ErrConfig error that names the first field that can't be used, and its valid values.
func (c HostConfig) Validate() error {
	switch {
	case c.ResolveTimeout < 0:
		return badConfig("ResolveTimeout %v: want a time, or 0 for %v", c.ResolveTimeout, defaultResolveTimeout)
	case c.Memory < 0:
		return badConfig("Memory %d: want bytes, or 0 for %d", c.Memory, defaultHostMemory)
	}
	return nil
}

func (c HostConfig) withDefaults() HostConfig {
	c.ResolveTimeout = cmp.Or(c.ResolveTimeout, defaultResolveTimeout)
	c.Memory = cmp.Or(c.Memory, defaultHostMemory)
	return c
}

// Transport makes NVMe/RDMA queue connections: host.Transport over any verbs provider.
type Transport struct {
	cm       verbs.ConnectionManager
	cfg      HostConfig
	memory   *memory
	counters *Counters

	queues inuse.Count // those that are open or being dialled
}

var _ host.Transport = (*Transport)(nil)

// NewTransport makes a Transport that connects through cm.
func NewTransport(cm verbs.ConnectionManager, cfg HostConfig) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cm == nil {
		return nil, badConfig("no ConnectionManager: want that of an RNIC")
	}
	cfg = cfg.withDefaults()
	m, err := newMemory(cfg.Memory, 0, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		return nil, err
	}
	return &Transport{cm: cm, cfg: cfg, memory: m, counters: new(Counters)}, nil
}

// Type returns nvme.TransportRDMA.
func (t *Transport) Type() nvme.TransportType { return nvme.TransportRDMA }

// Counters returns the counters of all queues together.
func (t *Transport) Counters() *Counters { return t.counters }

// Alloc implements host.Transport: it returns registered memory, HostConfig.Memory in all. After Close the error is
// ErrClosed.
func (t *Transport) Alloc(n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("rdma: %w: %d bytes of registered memory: want at least 1", host.ErrRange, n)
	}
	b := t.memory.arena.Alloc(n)
	if b == nil && t.queues.Closed() {
		return nil, fmt.Errorf("rdma: %w", errTransportClosed)
	}
	if b == nil {
		return nil, fmt.Errorf("rdma: %w: %d bytes (HostConfig.Memory is %d): %w", host.ErrNoMemory, n, t.cfg.Memory, t.memory.arena.Err())
	}
	return b, nil
}

// Free frees memory from Alloc.
func (t *Transport) Free(b []byte) { t.memory.arena.Free(b) }

// Close prevents new queues from being dialled, waits until all are closed, which is up to their users, and frees the
// memory: what Alloc handed out must not be used afterwards. It may be called again.
func (t *Transport) Close() error {
	t.queues.Close()
	t.memory.close()
	return nil
}

// Dial connects one queue pair. The error is a *ConnError that names the stage; it wraps a *RejectError if the peer
// refused, ErrClosed after Close, and ErrDeviceRemoval if the device is closed. If the peer supports only smaller
// packets, Dial tries again with those.
func (t *Transport) Dial(ctx context.Context, a host.QueueAttr) (host.TransportQueue, error) {
	if !t.queues.Begin() {
		return nil, &ConnError{Stage: "connect", Peer: a.Remote, QID: a.QID, Err: errTransportClosed}
	}
	q, err := t.dial(ctx, a)
	if err != nil {
		t.queues.End()
		return nil, err
	}
	return q, nil
}

// dial is Dial without the accounting that lets Close wait for it.
func (t *Transport) dial(ctx context.Context, a host.QueueAttr) (*hostQueue, error) {
	var mtu verbs.MTU // the path's
	for {
		d := &dialer{t: t, attr: a, mtu: mtu, events: make(chan verbs.CMEvent, 4)}
		q, err := d.try(ctx)
		if err == nil {
			return q, nil
		}
		if mtu = d.smaller(err); mtu == 0 {
			return nil, err
		}
	}
}

// dialer waits for the events of connection set-up.
type dialer struct {
	t      *Transport
	attr   host.QueueAttr
	mtu    verbs.MTU // to ask for; 0 before it is known
	events chan verbs.CMEvent

	queue atomic.Pointer[hostQueue]
}

// smaller returns the path MTU to try after err; 0 if another one wouldn't help. A peer refuses a path MTU that its
// interface, or its path to us, doesn't support (IBTA table 109, reason 26), and doesn't say which it would accept:
// what we know of the path may not apply to it, as the MTU of ::1 says nothing about another address of this host.
func (d *dialer) smaller(err error) verbs.MTU {
	var refused *RejectError
	if !errors.As(err, &refused) || refused.Reason != verbs.RejectInvalidMTU {
		return 0
	}
	return d.mtu - 1
}

// event keeps the events that dial waits for. Set-up produces at most one event per call, so the channel doesn't fill
// before a disconnection, which is passed to the queue directly.
func (d *dialer) event(ev verbs.CMEvent) {
	if q := d.queue.Load(); q != nil {
		q.cmEvent(ev)
	}
	ev.Param.PrivateData = append([]byte(nil), ev.Param.PrivateData...)
	select {
	case d.events <- ev:
	default:
	}
}

func (d *dialer) failed(stage string, err error) error {
	if errors.Is(err, verbs.ErrClosed) { // only closing the device does this here
		err = fmt.Errorf("%w: %w", ErrDeviceRemoval, err)
	}
	return &ConnError{Stage: stage, Peer: d.attr.Remote, QID: d.attr.QID, Err: err}
}

// wait waits for the next event, which has to be of type want.
func (d *dialer) wait(ctx context.Context, stage string, want verbs.CMEventType) (verbs.CMEvent, error) {
	select {
	case <-ctx.Done():
		return verbs.CMEvent{}, d.failed(stage, ctx.Err())
	case ev := <-d.events:
		switch {
		case ev.Type == want:
			return ev, nil
		case ev.Type == verbs.CMRejected:
			e := &RejectError{Reason: ev.Reason}
			if ev.Reason == verbs.RejectConsumer {
				e.Status, _ = parseReject(ev.Param.PrivateData)
			}
			return ev, d.failed(stage, e)
		case ev.Type == verbs.CMDeviceRemoval:
			return ev, d.failed(stage, ErrDeviceRemoval)
		case ev.Err != nil:
			return ev, d.failed(stage, ev.Err)
		}
		return ev, d.failed(stage, ErrDisconnected)
	}
}

// try makes one attempt to connect to the peer.
func (d *dialer) try(ctx context.Context) (*hostQueue, error) {
	if err := validAttr(d.attr); err != nil {
		return nil, d.failed("connect", err)
	}
	id, err := d.t.cm.CreateID(d.event)
	if err != nil {
		return nil, d.failed("create identifier", err)
	}
	q, err := d.dial(ctx, id)
	if err != nil {
		_ = id.Destroy()
	}
	return q, err
}

func (d *dialer) dial(ctx context.Context, id verbs.CMID) (*hostQueue, error) {
	timeout := d.t.cfg.ResolveTimeout
	if err := id.ResolveAddr(d.attr.Local, d.attr.Remote, timeout); err != nil {
		return nil, d.failed("resolve address", err)
	}
	if _, err := d.wait(ctx, "resolve address", verbs.CMAddrResolved); err != nil {
		return nil, err
	}
	if err := id.ResolveRoute(timeout); err != nil {
		return nil, d.failed("resolve route", err)
	}
	route, err := d.wait(ctx, "resolve route", verbs.CMRouteResolved)
	if err != nil {
		return nil, err
	}
	if d.mtu == 0 {
		d.mtu = cmp.Or(route.Param.PathMTU, id.Device().Attr().ActiveMTU)
	}
	q, err := d.t.newQueue(id, d.attr)
	if err != nil {
		return nil, d.failed("create queue pair", err)
	}
	d.queue.Store(q)
	if err := d.connect(ctx, id); err != nil {
		q.abandon()
		return nil, err
	}
	attr := q.qp.Query()
	q.mtu, q.evenSends = attr.PathMTU.Bytes(), attr.EvenSends
	q.start()
	return q, nil
}

func (d *dialer) connect(ctx context.Context, id verbs.CMID) error {
	a := d.attr
	req := connectRequest{
		QID: a.QID, HRQSize: uint16(a.Size), HSQSize: uint16(a.Size - 1), CNTLID: a.CNTLID,
	}
	// The target moves data by READ from this side only, so this side serves READs, as many as the device can, and
	// issues none.
	err := id.Connect(verbs.ConnParam{
		PrivateData:        req.bytes(),
		ResponderResources: uint8(min(id.Device().Attr().MaxQPRdAtom, 255)),
		InitiatorDepth:     0,
		RetryCount:         7,
		RNRRetryCount:      7,
		PathMTU:            d.mtu,
	})
	if err != nil {
		return d.failed("connect", err)
	}
	ev, err := d.wait(ctx, "connect", verbs.CMEstablished)
	if err != nil {
		return err
	}
	if _, err := parseConnectAccept(ev.Param.PrivateData); err != nil {
		return d.failed("connect", fmt.Errorf("%w: %w", ErrProtocol, err))
	}
	return nil
}

// validAttr returns an error if a can't be connected.
func validAttr(a host.QueueAttr) error {
	if a.Size < 2 || a.Size > 65535 {
		return fmt.Errorf("queue size %d: want 2 to 65535", a.Size)
	}
	if !a.Remote.IsValid() || a.Remote.Port() == 0 {
		return fmt.Errorf("address %v: want an IP address and a port", a.Remote)
	}
	return nil
}
