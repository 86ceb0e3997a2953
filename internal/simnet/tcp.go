package simnet

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// TCP is the TCP of all addresses of a Network. It implements socket.Network.
type TCP struct {
	network *Network
	coming  inbox

	mu        sync.Mutex // locked before those of the network and the inbox
	rng       *rand.Rand
	conns     map[ends]*tcpConn
	listeners map[netip.AddrPort]*tcpListener
	stalled   map[netip.Addr]time.Time // until when addresses stand still
	made      uint64                   // connections so far
}

var _ socket.Network = (*TCP)(nil)

// ends are the addresses of a connection, seen from one of them.
type ends struct{ local, remote netip.AddrPort }

func newTCP(n *Network, seed uint64) *TCP {
	return &TCP{
		network: n, rng: rand.New(rand.NewPCG(seed, 1)), coming: newInbox(),
		conns: map[ends]*tcpConn{}, listeners: map[netip.AddrPort]*tcpListener{}, stalled: map[netip.Addr]time.Time{},
	}
}

// TCP returns the TCP of the network.
func (n *Network) TCP() *TCP { return n.tcp }

// Stall has an address stand still for a time: what arrives meanwhile is taken afterwards, all at once.
func (t *TCP) Stall(addr netip.Addr, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stalled[addr] = time.Now().Add(d)
}

// Dial implements socket.Network. An invalid local address means remote's: a connection within a host.
func (t *TCP) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort) (socket.Conn, error) {
	if !local.IsValid() {
		local = remote.Addr()
	}
	t.mu.Lock()
	c := t.newConn(t.freeEnds(local, remote), synSent)
	c.sendSYN()
	t.mu.Unlock()
	select {
	case <-c.settled:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := ctx.Err()
	switch {
	case c.state == established:
		return c, nil
	case c.err != 0:
		err = os.NewSyscallError("connect", c.err)
	}
	c.forget()
	return nil, opError("dial", remote, err)
}

// freeEnds returns ends whose local port no connection to remote has, not even one that only remote still knows.
func (t *TCP) freeEnds(local netip.Addr, remote netip.AddrPort) ends {
	for {
		p := ends{netip.AddrPortFrom(local, uint16(firstFreePort+t.rng.IntN(1<<16-firstFreePort))), remote}
		q := ends{p.remote, p.local}
		if t.conns[p] == nil && t.conns[q] == nil && p != q {
			return p
		}
	}
}

// backlog is how many connections may wait for Accept.
const backlog = 16

// tcpListener is a socket.Listener.
type tcpListener struct {
	tcp    *TCP
	addr   netip.AddrPort
	closed chan struct{}
	ready  chan struct{} // of capacity 1: a connection waits

	// Under TCP.mu:
	opening int // connections that aren't established yet
	waiting []*tcpConn
}

// Listen implements socket.Network for one address.
func (t *TCP) Listen(addr netip.AddrPort) (socket.Listener, error) {
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() {
		return nil, opError("listen", addr, unix.EADDRNOTAVAIL)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for port := uint16(firstFreePort); addr.Port() == 0; port++ {
		if a := netip.AddrPortFrom(addr.Addr(), port); t.listeners[a] == nil {
			addr = a
		}
	}
	if t.listeners[addr] != nil {
		return nil, opError("listen", addr, unix.EADDRINUSE)
	}
	l := &tcpListener{tcp: t, addr: addr, closed: make(chan struct{}), ready: make(chan struct{}, 1)}
	t.listeners[addr] = l
	return l, nil
}

// opError returns an error as package net does.
func opError(op string, addr netip.AddrPort, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: err}
}

// Addr implements socket.Listener.
func (l *tcpListener) Addr() netip.AddrPort { return l.addr }

// Accept implements socket.Listener.
func (l *tcpListener) Accept() (socket.Conn, error) {
	for {
		if c := l.next(); c != nil {
			return c, nil
		}
		select {
		case <-l.ready:
		case <-l.closed:
			return nil, opError("accept", l.addr, net.ErrClosed)
		}
	}
}

func (l *tcpListener) next() *tcpConn {
	l.tcp.mu.Lock()
	defer l.tcp.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c
}

// Close implements socket.Listener. It resets the connections that nobody accepted, and forgets those that aren't
// established yet, whose peers are answered with a reset.
func (l *tcpListener) Close() error {
	t := l.tcp
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listeners[l.addr] != l {
		return opError("close", l.addr, net.ErrClosed)
	}
	delete(t.listeners, l.addr)
	close(l.closed)
	for _, c := range l.waiting {
		c.reset()
	}
	l.waiting = nil
	for _, c := range t.conns {
		if c.listener == l {
			c.forget()
		}
	}
	return nil
}

// segment is the header of a TCP segment. Numbers are so wide, and those of connections so far apart, that segments of
// an earlier connection are never taken for those of a later one.
type segment struct {
	syn, ack, fin, rst bool
	number             uint64 // of the first byte
	acked              uint64 // the number that is expected next, if ack is set
	window             int    // how many bytes from there on the sender has room for
}

// flight is a segment on its way to the receiver.
type flight struct {
	moment
	at      ends // of the receiver
	segment segment
	data    []byte
}

// inbox holds the segments in flight.
type inbox struct {
	mu     sync.Mutex
	queued pqueue.Queue[flight]
}

func newInbox() inbox {
	return inbox{queued: pqueue.New(func(a, b flight) bool { return a.before(b.moment) }, nil)}
}

// take returns a segment that has arrived by now.
func (i *inbox) take(now time.Time) (f flight, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queued.Len() == 0 || i.queued.First().due.After(now) {
		return f, false
	}
	return i.queued.Pop(), true
}

// expect has receive take f when it is due.
func (t *TCP) expect(f flight) {
	t.coming.mu.Lock()
	t.coming.queued.Push(f)
	t.coming.mu.Unlock()
	time.AfterFunc(max(time.Until(f.due), time.Nanosecond), t.receive)
}

// receive handles all segments that have arrived.
func (t *TCP) receive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for f, ok := t.coming.take(now); ok; f, ok = t.coming.take(now) {
		if until := t.stalled[f.at.local.Addr()]; now.Before(until) {
			f.due = until
			t.expect(f)
			continue
		}
		t.network.countArrived(1, 0)
		t.handle(f)
	}
}

func (t *TCP) handle(f flight) {
	l := t.listeners[f.at.local]
	c := t.conns[f.at]
	switch {
	case c != nil:
		c.handle(f.segment, f.data)
	case f.segment.rst:
	case f.segment.syn && !f.segment.ack && l != nil:
		l.open(f.at, f.segment)
	default:
		t.refuse(f)
	}
}

// open begins a connection for a SYN, unless too many wait: the peer will send another one.
func (l *tcpListener) open(at ends, s segment) {
	if l.opening+len(l.waiting) >= backlog {
		return
	}
	l.opening++
	c := l.tcp.newConn(at, synReceived)
	c.listener = l
	c.expected = s.number + 1
	c.window = s.window
	c.sendSYN()
}

// refuse answers a segment that belongs to no connection with a reset.
func (t *TCP) refuse(f flight) {
	s := segment{rst: true, number: f.segment.acked}
	if !f.segment.ack {
		s = segment{rst: true, ack: true, acked: f.segment.number + 1}
	}
	t.send(f.at, s, nil)
}

// send puts a segment on the network.
func (t *TCP) send(at ends, s segment, data []byte) {
	d := &Datagram{Src: at.local, Dst: at.remote, Payload: append([]byte(nil), data...), segment: &s}
	t.network.transmit(d, time.Now())
}
