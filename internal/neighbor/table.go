package neighbor

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/ring"
)

const (
	// maxLinks bounds the memory that is shared: others have their datagrams sent by the system.
	maxLinks = 64
	// maxTried bounds what is remembered of peers that aren't neighbors.
	maxTried = 4096

	firstPause, lastPause = time.Second, time.Minute

	bellPause = time.Millisecond
)

// Table has the links of one UDP socket.
type Table struct {
	self     netip.AddrPort
	listener *net.UnixListener
	running  sync.WaitGroup
	done     chan struct{} // closed by Close

	known atomic.Pointer[known]

	mu        sync.Mutex
	answering *net.UnixConn // to whom accept listens, nil between two
	tried     map[netip.AddrPort]attempt

	// Of the goroutine that takes.
	taken []*Link // that gave something last time, whose memory is being read
	first int     // the link to begin with
}

// known are all links. It is replaced, never changed.
type known struct {
	byPeer map[netip.AddrPort]*Link
	all    []*Link
}

// attempt is one to find a neighbor.
type attempt struct {
	next  time.Time // when to try again
	pause time.Duration
}

// Link is shared memory with a neighbor.
type Link struct {
	peer netip.AddrPort
	conn *net.UnixConn
	in   *ring.Reader

	accepted atomic.Bool

	mu    sync.Mutex // of who puts
	out   *ring.Writer
	sleep uint32    // of the peer, from which the last bell was to wake it …
	rang  time.Time // … and when that was
}

// Train is one from a neighbor.
type Train struct {
	ring.Train
	Peer netip.AddrPort
}

// Listen lets neighbors find the UDP socket that is bound to self.
func Listen(self netip.AddrPort) (*Table, error) {
	l, err := net.ListenUnix("unixpacket", meetingPoint(self))
	if err != nil {
		return nil, err
	}
	t := &Table{self: self, listener: l, done: make(chan struct{}), tried: map[netip.AddrPort]attempt{}}
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

// Link is the one to peer; nil where there is none, or none yet.
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

// try looks for a neighbor, unless that was in vain lately.
func (t *Table) try(peer netip.AddrPort, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.tried[peer]
	if t.isClosed() || now.Before(a.next) || len(t.known.Load().all) == maxLinks {
		return
	}
	if len(t.tried) == maxTried {
		clear(t.tried)
	}
	a.pause = min(max(2*a.pause, firstPause), lastPause)
	a.next = now.Add(a.pause)
	t.tried[peer] = a
	t.running.Go(func() { t.dial(peer) })
}

// add makes a link known from which is taken, unless there is one to its peer, or there are too many.
func (t *Table) add(l *Link) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.known.Load()
	if t.isClosed() || k.byPeer[l.peer] != nil || len(k.all) == maxLinks {
		return fmt.Errorf("%d links, one of them to %v: %v", len(k.all), l.peer, k.byPeer[l.peer] != nil)
	}
	byPeer := map[netip.AddrPort]*Link{l.peer: l}
	maps.Copy(byPeer, k.byPeer)
	t.publish(byPeer)
	return nil
}

// drop forgets a link. Its peer may come back at once.
func (t *Table) drop(l *Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byPeer := maps.Clone(t.known.Load().byPeer)
	if byPeer[l.peer] == l {
		delete(byPeer, l.peer)
		t.publish(byPeer)
		t.tried[l.peer] = attempt{next: time.Now().Add(firstPause)}
	}
	_ = l.conn.Close()
}

func (t *Table) publish(byPeer map[netip.AddrPort]*Link) {
	k := &known{byPeer: byPeer}
	for _, l := range byPeer {
		k.all = append(k.all, l)
	}
	t.known.Store(k)
}

// Linked says whether there are links.
func (t *Table) Linked() bool { return len(t.known.Load().all) > 0 }

// Take fills got with trains and returns how many; their bytes are valid until the next Take. A link whose
// memory is corrupt is over.
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
			if err != nil {
				_ = l.conn.Close()
			}
			if !ok {
				break
			}
			got[n] = Train{Train: train, Peer: l.peer}
			n++
		}
		if n > before {
			l.in.Wake() // a new one's isn't awake
			t.taken = append(t.taken, l)
		}
	}
	t.first++
	return n
}

// Sleep has neighbors wake whoever takes, and says whether it may sleep: there is nothing to take.
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
	return true
}

// Wake says that whoever takes is awake.
func (t *Table) Wake() {
	for _, l := range t.known.Load().all {
		l.in.Wake()
	}
}

// Put sends a train of n bytes, gathered from parts, whose datagrams have segment bytes each. It returns false
// where there is no room for it.
func (l *Link) Put(parts [][]byte, n, segment int, class uint8) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Put(parts, n, segment, class)
}

// Asleep says whether the peer sleeps.
func (l *Link) Asleep() bool { return l.out.Asleep() != 0 }

// Bell says whether the peer is to be woken for what was put: once each time that it sleeps, since many may put
// something until it is awake, and again after bellPause, since what wakes it may get lost.
func (l *Link) Bell() bool {
	sleep := l.out.Asleep()
	if sleep == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if sleep == l.sleep && now.Sub(l.rang) < bellPause {
		return false
	}
	l.sleep, l.rang = sleep, now
	return true
}

// Peer is the address of the neighbor's UDP socket.
func (l *Link) Peer() netip.AddrPort { return l.peer }
