package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network connects devices and raw peers by their addresses. Like a real network it doesn't keep the order if a filter
// delays.
type network struct {
	mu    sync.Mutex
	ports map[netip.Addr]func(src netip.Addr, mad []byte)
	log   []wired
	// unrecorded leaves log empty; set it before use.
	unrecorded bool
	// filter decides what happens to a MAD: it returns the delay of each copy to deliver.
	filter func(wired) []time.Duration
}

// wired is a MAD on the wire.
type wired struct {
	src, dst netip.Addr
	at       time.Time
	tid      uint64
	msg      mad.Message
}

// atOnce is the delay of MADs when there is no filter.
var atOnce = []time.Duration{0}

func newNetwork() *network {
	return &network{ports: map[netip.Addr]func(netip.Addr, []byte){}}
}

func (n *network) send(src, dst netip.Addr, b []byte) {
	tid, msg, err := mad.Parse(b)
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	w := wired{src, dst, time.Now(), tid, msg}
	if !n.unrecorded {
		n.log = append(n.log, w)
	}
	copies := atOnce
	if n.filter != nil {
		copies = n.filter(w)
	}
	n.mu.Unlock()
	b = slices.Clone(b)
	for _, d := range copies {
		if d == 0 {
			n.arrive(src, dst, b)
		} else {
			time.AfterFunc(d, func() { n.arrive(src, dst, b) })
		}
	}
}

func (n *network) arrive(src, dst netip.Addr, b []byte) {
	n.mu.Lock()
	port := n.ports[dst]
	n.mu.Unlock()
	if port != nil {
		port(src, b)
	}
}

// sent returns the messages of one kind that src sent.
func (n *network) sent(src netip.Addr, a mad.AttributeID) []wired {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []wired
	for _, w := range n.log {
		if w.src == src && w.msg.AttributeID() == a {
			all = append(all, w)
		}
	}
	return all
}

func (n *network) setFilter(f func(wired) []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.filter = f
}

// fakeDevice is a device that has QPs without a data path.
type fakeDevice struct {
	verbs.Device
	attr verbs.DeviceAttr
	net  *network

	mu      sync.Mutex
	sendErr error
	nextQPN uint32
	qps     map[uint32]*fakeQP
}

func newDevice(n *network, addr string) *fakeDevice {
	a := netip.MustParseAddr(addr)
	b := a.As16()
	return &fakeDevice{
		net: n, nextQPN: 0x100, qps: map[uint32]*fakeQP{},
		attr: verbs.DeviceAttr{
			Name: "fake" + addr, Addr: a, NodeGUID: 0x0200_0000_0000_0000 | uint64(b[15]),
			ActiveMTU: verbs.MTU4096, MaxQPRdAtom: 128, MaxQPInitAtom: 64, AckDelay: 15,
		},
	}
}

func (d *fakeDevice) Attr() verbs.DeviceAttr { return d.attr }

func (d *fakeDevice) SendMAD(dst netip.Addr, mad []byte) error {
	d.mu.Lock()
	err := d.sendErr
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.net.send(d.wireAddr(), dst.WithZone(""), mad)
	return nil
}

func (d *fakeDevice) setSendErr(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sendErr = err
}

func (d *fakeDevice) HandleMADs(h func(netip.Addr, []byte)) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if h == nil {
		delete(d.net.ports, d.wireAddr())
		return
	}
	d.net.ports[d.wireAddr()] = h
}

// wireAddr returns the device's address as it is in packets, without a zone.
func (d *fakeDevice) wireAddr() netip.Addr { return d.attr.Addr.WithZone("") }

func (d *fakeDevice) AllocPD() (verbs.PD, error) { return &fakePD{dev: d}, nil }

func (d *fakeDevice) liveQPs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.qps)
}

type fakePD struct {
	verbs.PD
	dev    *fakeDevice
	modify func(to verbs.QPState) error // called before a transition; may be nil

	destroy func() // called before a QP is destroyed; may be nil
}

func (p *fakePD) Device() verbs.Device { return p.dev }

func (p *fakePD) CreateQP(init verbs.QPInitAttr) (verbs.QP, error) {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	p.dev.nextQPN++
	q := &fakeQP{pd: p, num: p.dev.nextQPN, handler: init.EventHandler}
	p.dev.qps[q.num] = q
	return q, nil
}

type fakeQP struct {
	verbs.QP
	pd      *fakePD
	num     uint32
	handler func(verbs.AsyncEvent)

	mu     sync.Mutex
	attr   verbs.QPAttr // of the last transition, with those of RTR
	access verbs.Access
	dead   bool
}

func (q *fakeQP) QPNum() uint32 { return q.num }

func (q *fakeQP) Modify(a verbs.QPAttr) error {
	if f := q.pd.modify; f != nil {
		if err := f(a.State); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead {
		return verbs.ErrClosed
	}
	from := q.attr.State
	ok := a.State == verbs.Err || a.State == verbs.Reset ||
		from != verbs.Err && a.State == from+1
	if !ok {
		return fmt.Errorf("%w: %v to %v", verbs.ErrInvalid, from, a.State)
	}
	if a.State == verbs.Init {
		q.access = a.Access
	}
	if a.State == verbs.Err {
		q.attr.State = verbs.Err
		return nil
	}
	q.attr = a
	return nil
}

func (q *fakeQP) Query() verbs.QPAttr {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attr
}

func (q *fakeQP) Destroy() error {
	if f := q.pd.destroy; f != nil {
		f()
	}
	q.mu.Lock()
	q.dead = true
	q.mu.Unlock()
	q.pd.dev.mu.Lock()
	defer q.pd.dev.mu.Unlock()
	if q.pd.dev.qps[q.num] == nil {
		return verbs.ErrClosed
	}
	delete(q.pd.dev.qps, q.num)
	return nil
}

// node is a device with its manager.
type node struct {
	t    *testing.T
	dev  *fakeDevice
	m    *Manager
	addr netip.Addr
}

func newNode(t *testing.T, n *network, addr string, cfg Config) *node {
	dev := newDevice(n, addr)
	m, err := New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &node{t, dev, m, dev.attr.Addr}
}

// end is an identifier with its events.
type end struct {
	*node
	id     verbs.CMID
	events chan verbs.CMEvent
	// handle acts on an event in its handler, before the test sees it.
	handle func(verbs.CMEvent)
}

func (nd *node) newEnd() *end {
	e := &end{node: nd, events: make(chan verbs.CMEvent, 1024)}
	id, err := nd.m.CreateID(e.handler)
	if err != nil {
		nd.t.Fatal(err)
	}
	e.id = id
	return e
}

func (e *end) handler(ev verbs.CMEvent) {
	ev.Param.PrivateData = slices.Clone(ev.Param.PrivateData)
	if e.handle != nil {
		e.handle(ev)
	}
	e.events <- ev
}

// want waits for the next event, up to an hour of virtual time.
func (e *end) want(typ verbs.CMEventType) verbs.CMEvent {
	e.t.Helper()
	select {
	case ev := <-e.events:
		if ev.Type != typ {
			e.t.Fatalf("%v: event %d (%v, reason %d), want %d", e.addr, ev.Type, ev.Err, ev.Reason, typ)
		}
		return ev
	case <-time.After(time.Hour):
		e.t.Fatalf("%v: no event, want %d", e.addr, typ)
	}
	panic("unreachable")
}

func (e *end) wantNone() {
	e.t.Helper()
	select {
	case ev := <-e.events:
		e.t.Fatalf("%v: unexpected event %d (%v, reason %d)", e.addr, ev.Type, ev.Err, ev.Reason)
	default:
	}
}

func (e *end) createQP(id verbs.CMID) *fakeQP {
	pd, _ := e.dev.AllocPD()
	qp, err := id.CreateQP(pd, verbs.QPInitAttr{Type: verbs.RC})
	if err != nil {
		e.t.Errorf("create QP: %v", err)
		return nil
	}
	return qp.(*fakeQP)
}

func (e *end) qp() *fakeQP { return e.id.QP().(*fakeQP) }

// hostParam are the parameters of a Linux nvme-rdma host.
var hostParam = verbs.ConnParam{
	PrivateData: []byte("request"), ResponderResources: 128, FlowControl: true, RetryCount: 7, RNRRetryCount: 7,
}

var acceptParam = verbs.ConnParam{
	PrivateData: []byte("reply"), ResponderResources: 4, InitiatorDepth: 200, FlowControl: true, RNRRetryCount: 6,
}

// listen makes a listener on port 4420 that accepts every request; the events of all its connections come to the
// returned end, whose id is the last connection.
func (nd *node) listen(backlog int) *end {
	l := nd.newEnd()
	if err := l.id.Listen(netip.AddrPortFrom(netip.Addr{}, 4420), backlog); err != nil {
		nd.t.Fatal(err)
	}
	l.handle = func(ev verbs.CMEvent) {
		if ev.Type != verbs.CMConnectRequest {
			return
		}
		l.createQP(ev.ID)
		if err := ev.ID.Accept(acceptParam); err != nil {
			nd.t.Errorf("accept: %v", err)
		}
	}
	return l
}

// prepare takes a new identifier to the state in which it can connect.
func (nd *node) prepare(dst netip.Addr) *end {
	e := nd.newEnd()
	if err := e.id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(dst, 4420), time.Second); err != nil {
		nd.t.Fatal(err)
	}
	e.want(verbs.CMAddrResolved)
	if err := e.id.ResolveRoute(time.Second); err != nil {
		nd.t.Fatal(err)
	}
	e.want(verbs.CMRouteResolved)
	e.createQP(e.id)
	return e
}

func (nd *node) connect(dst netip.Addr) *end {
	e := nd.prepare(dst)
	if err := e.id.Connect(hostParam); err != nil {
		nd.t.Fatal(err)
	}
	return e
}

// busy blocks the manager's goroutine in a handler, after it has done all its work, until release is called.
func (nd *node) busy() (release func()) {
	synctest.Wait()
	block, entered := make(chan struct{}), make(chan struct{})
	e := nd.newEnd()
	e.handle = func(ev verbs.CMEvent) {
		if ev.Type == verbs.CMAddrResolved {
			close(entered)
			<-block
		}
	}
	if err := e.id.ResolveAddr(netip.Addr{}, netip.AddrPortFrom(nd.addr, 1), 0); err != nil {
		nd.t.Fatal(err)
	}
	<-entered
	return func() { close(block) }
}

func (nd *node) wantEmpty() {
	nd.t.Helper()
	nd.m.mu.Lock()
	defer nd.m.mu.Unlock()
	tb := &nd.m.table
	if len(tb.byLocal)+len(tb.byID)+len(tb.byQPN)+len(tb.uses)+tb.timers.Len() != 0 {
		nd.t.Errorf("%v: table not empty: %d %d %d %d %d", nd.addr, len(tb.byLocal), len(tb.byID), len(tb.byQPN), len(tb.uses), tb.timers.Len())
	}
	c := nd.m.Counters()
	if c.Connections.Load() != 0 || c.HalfOpen.Load() != 0 {
		nd.t.Errorf("%v: gauges %d %d", nd.addr, c.Connections.Load(), c.HalfOpen.Load())
	}
}

// rawPeer is a peer whose messages the test makes one by one.
type rawPeer struct {
	t    *testing.T
	net  *network
	addr netip.Addr
	in   chan wired
}

func newRawPeer(t *testing.T, n *network, addr string) *rawPeer {
	p := &rawPeer{t, n, netip.MustParseAddr(addr), make(chan wired, 4096)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[p.addr] = func(src netip.Addr, b []byte) {
		tid, msg, _ := mad.Parse(b)
		p.in <- wired{src, p.addr, time.Now(), tid, msg}
	}
	return p
}

func (p *rawPeer) send(dst netip.Addr, tid uint64, m mad.Message) {
	p.net.send(p.addr, dst, mad.Append(nil, tid, m))
}

// receive waits for the next message, which must be of type T.
func receive[T mad.Message](p *rawPeer) (uint64, T) {
	p.t.Helper()
	select {
	case w := <-p.in:
		m, ok := w.msg.(T)
		if !ok {
			p.t.Fatalf("peer got %v %+v, want %T", w.msg.AttributeID(), w.msg, m)
		}
		return w.tid, m
	case <-time.After(time.Hour):
		var m T
		p.t.Fatalf("peer got nothing, want %T", m)
	}
	panic("unreachable")
}

func (p *rawPeer) nothing() {
	p.t.Helper()
	select {
	case w := <-p.in:
		p.t.Fatalf("peer got %v %+v, want nothing", w.msg.AttributeID(), w.msg)
	default:
	}
}

// req returns a valid REQ of p to dst.
func (p *rawPeer) req(dst netip.Addr, commID, qpn uint32) *mad.REQ {
	r := &mad.REQ{
		LocalCommID: commID, ServiceID: mad.ServiceID(4420), LocalCAGUID: 0x77, LocalQPN: qpn,
		ResponderResources: 16, LocalResponse: 20, RemoteResponse: 20, StartingPSN: 0xabcdef,
		RetryCount: 7, RNRRetryCount: 7, MaxCMRetries: 15, PKey: 0xffff, PathMTU: verbs.MTU1024,
		Primary: mad.Path{
			LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: verbs.GIDFrom(p.addr), RemoteGID: verbs.GIDFrom(dst),
			HopLimit: 64, ACKTimeout: 18,
		},
	}
	copy(r.PrivateData[:], mad.PrivateHeader{SourcePort: 50000, Source: p.addr, Destination: dst}.Bytes())
	return r
}
