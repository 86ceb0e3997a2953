package neighbor

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/ring"
)

const (
	// maxLinks bounds the memory that is shared: datagrams for other peers go through the kernel.
	maxLinks = 64
	// maxMapped is how many links, including those that are over, may have memory mapped before the garbage collector
	// is run to find the unreachable ones.
	maxMapped = 2 * maxLinks
	// maxTried bounds how many peers that aren't neighbors are remembered.
	maxTried = 4096

	firstPause, lastPause = time.Second, time.Minute

	bellPause = time.Millisecond
	lookPause = time.Second // between checks that a neighbor that doesn't wake is still on this host
)

// Table holds the links of one UDP socket.
type Table struct {
	self     netip.AddrPort
	here     func(netip.Addr) bool
	listener *net.UnixListener
	running  sync.WaitGroup
	done     chan struct{} // closed by Close
	mapped   *atomic.Int32 // links whose memory is mapped

	known atomic.Pointer[known]

	mu        sync.Mutex
	answering *net.UnixConn // the connection that accept is reading, nil between two
	tried     map[netip.AddrPort]attempt

	// The following belong to the goroutine that takes.
	taken []*Link // links whose trains were returned last time, and are being read
	first int     // the link to begin with
}

// known holds all links. It is replaced, never modified.
type known struct {
	byPeer map[netip.AddrPort]*Link
	all    []*Link // those in byPeer, and links that are over with something left to take
}

// attempt is an attempt to find a neighbor.
type attempt struct {
	next   time.Time // when to try again
	pause  time.Duration
	faulty bool // it has written something invalid: until next its offers are refused, too
}

// Link is memory shared with a neighbor.
type Link struct {
	peer netip.AddrPort
	here func(netip.Addr) bool
	conn *net.UnixConn
	in   *ring.Reader

	accepted atomic.Bool
	over     atomic.Bool // nothing is put any more

	mu     sync.Mutex // held to put
	out    *ring.Writer
	sleep  uint32    // the peer's sleep for which the last bell was rung …
	rang   time.Time // … and when that was
	looked time.Time // when here was last asked about the peer
}

// Train is a train from a neighbor.
type Train struct {
	ring.Train
	Peer netip.AddrPort
}

// Listen lets neighbors find the UDP socket that is bound to self. here reports whether an address is one of this host.
func Listen(self netip.AddrPort, here func(netip.Addr) bool) (*Table, error) {
	if uid := os.Geteuid(); ambiguous(uid) {
		return nil, fmt.Errorf("user %d: so the system calls all whom this user namespace doesn't know", uid)
	}
	l, err := net.ListenUnix("unixpacket", meetingPoint(self))
	if err != nil {
		return nil, err
	}
	t := &Table{
		self: self, here: here, listener: l, done: make(chan struct{}), mapped: new(atomic.Int32),
		tried: map[netip.AddrPort]attempt{},
	}
	t.known.Store(&known{})
	t.running.Go(t.accept)
	return t, nil
}

// Close ends all links. What was taken stays readable.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.isClosed() {
		t.mu.Unlock()
		return nil
	}
	close(t.done)
	all := t.known.Load().all
	if t.answering != nil {
		_ = t.answering.Close()
	}
	t.mu.Unlock()
	err := t.listener.Close()
	for _, l := range all {
		_ = l.conn.Close()
	}
	t.running.Wait()
	return err
}

func (t *Table) isClosed() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Link returns the link to peer, or nil if there is none, or none yet.
func (t *Table) Link(peer netip.AddrPort) *Link {
	l := t.known.Load().byPeer[peer]
	switch {
	case l == nil && t.self.Compare(peer) < 0:
		t.try(peer, time.Now())
	case l != nil && l.accepted.Load():
		return l
	}
	return nil
}

// try looks for a neighbor, unless a recent attempt failed.
func (t *Table) try(peer netip.AddrPort, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.tried[peer]
	if t.isClosed() || now.Before(a.next) || len(t.known.Load().all) == maxLinks {
		return
	}
	a.pause = min(max(2*a.pause, firstPause), lastPause)
	a.next = now.Add(a.pause)
	t.remember(peer, a)
	t.running.Go(func() { t.dial(peer) })
}

// remember is called with t.mu held.
func (t *Table) remember(peer netip.AddrPort, a attempt) {
	if len(t.tried) == maxTried {
		clear(t.tried)
	}
	t.tried[peer] = a
}

// shuns reports whether peer has recently written something invalid.
func (t *Table) shuns(peer netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.tried[peer]
	return a.faulty && time.Now().Before(a.next)
}

// add registers a link, so that Take takes from it, unless there already is one to its peer, or there are too many.
func (t *Table) add(l *Link) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.known.Load()
	if t.isClosed() || k.byPeer[l.peer] != nil || len(k.all) == maxLinks {
		return fmt.Errorf("closed, linked with %v already, or with %d others", l.peer, len(k.all))
	}
	byPeer := map[netip.AddrPort]*Link{l.peer: l}
	maps.Copy(byPeer, k.byPeer)
	t.known.Store(&known{byPeer: byPeer, all: append(slices.Clip(k.all), l)})
	return nil
}

// drop ends a link, and forgets it once everything that was put before is taken. Its peer may come back at once.
func (t *Table) drop(l *Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(l, attempt{next: time.Now().Add(firstPause)})
	if l.in.Drained() { // otherwise Take finds that it is over
		t.forget(l)
	}
}

// lose forgets a link that is over. If err is not nil the link is corrupt: it is ended, and its contents are lost.
func (t *Table) lose(l *Link, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.end(l, attempt{next: time.Now().Add(lastPause), faulty: true})
	}
	t.forget(l)
}

// end stops putting to a link. If the peer had answered, next says when to look for it again. It is called with t.mu
// held.
func (t *Table) end(l *Link, next attempt) {
	_ = l.conn.Close()
	l.over.Store(true) // first, so that a goroutine that finds no link finds it over, and forgets it with the last Take
	k := t.known.Load()
	if k.byPeer[l.peer] == l {
		byPeer := maps.Clone(k.byPeer)
		delete(byPeer, l.peer)
		t.known.Store(&known{byPeer: byPeer, all: k.all})
		if l.accepted.Load() || next.faulty {
			t.remember(l.peer, next)
		}
	}
}

// forget stops taking from a link. It is called with t.mu held.
func (t *Table) forget(l *Link) {
	k := t.known.Load()
	if i := slices.Index(k.all, l); i >= 0 {
		t.known.Store(&known{byPeer: k.byPeer, all: slices.Delete(slices.Clone(k.all), i, i+1)})
	}
}

// Linked reports whether there are links.
func (t *Table) Linked() bool { return len(t.known.Load().all) > 0 }

// Take fills got with trains and returns how many; their bytes are valid until the next Take. A link whose memory is
// corrupt is ended, and its contents are lost.
func (t *Table) Take(got []Train) (n int) {
	for i, l := range t.taken {
		l.in.Release()
		t.taken[i] = nil
	}
	t.taken = t.taken[:0]
	all := t.known.Load().all
	for i := range all {
		l := all[(t.first+i)%len(all)]
		before := n
		for n < len(got) {
			train, ok, err := l.in.Next()
			if !ok {
				if err != nil || l.over.Load() && l.in.Empty() {
					t.lose(l, err)
				}
				break
			}
			got[n] = Train{Train: train, Peer: l.peer}
			n++
		}
		if n > before {
			l.in.Wake() // a new link's reader starts asleep
			t.taken = append(t.taken, l)
		}
	}
	t.first++
	runtime.KeepAlive(all) // other goroutines may forget a link, which is then unmapped
	return n
}

// Sleep asks neighbors to wake the goroutine that takes, and reports whether it may sleep, as there is nothing to take.
func (t *Table) Sleep() bool {
	all := t.known.Load().all
	for _, l := range all {
		l.in.Sleep()
	}
	for _, l := range all {
		if !l.in.Empty() {
			return false
		}
	}
	runtime.KeepAlive(all)
	return true
}

// Wake says that the goroutine that takes is awake.
func (t *Table) Wake() {
	all := t.known.Load().all
	for _, l := range all {
		l.in.Wake()
	}
	runtime.KeepAlive(all)
}

// Put sends a train of n bytes, gathered from parts, whose datagrams have segment bytes each. It returns false if there
// is no room for it.
func (l *Link) Put(parts [][]byte, n, segment int, class uint8) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Put(parts, n, segment, class)
}

// Begin returns n bytes of memory for a train whose datagrams have segment bytes each, and keeps others from putting
// until End. It returns nil, and End must not be called, if there is no room.
func (l *Link) Begin(n, segment int, class uint8) []byte {
	l.mu.Lock()
	to := l.out.Begin(n, segment, class)
	if to == nil {
		l.mu.Unlock()
	}
	return to
}

// End sends what was written since Begin, if whole is true.
func (l *Link) End(whole bool) {
	if whole {
		l.out.End()
	}
	l.mu.Unlock()
}

// Bell reports whether the caller must wake the peer for what was put: once each time that it sleeps, since several may
// put something before it is awake, and again after bellPause, since the wake-up may get lost.
func (l *Link) Bell() bool {
	sleep := l.out.Asleep()
	if sleep == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if sleep == l.sleep {
		if now.Sub(l.rang) < bellPause {
			return false
		}
		l.look(now)
	}
	l.sleep, l.rang = sleep, now
	return true
}

// look ends the link if the peer doesn't wake because its address, where bells are sent, now belongs to another host.
func (l *Link) look(now time.Time) {
	if now.Sub(l.looked) < lookPause {
		return
	}
	if l.looked = now; !l.here(l.peer.Addr()) {
		_ = l.conn.Close()
	}
}

// Peer returns the address of the neighbor's UDP socket.
func (l *Link) Peer() netip.AddrPort { return l.peer }
