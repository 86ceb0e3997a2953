package udp

import (
	"cmp"
	"net/netip"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/neighbor"
)

// neighbors holds the peers with which a conn shares memory.
type neighbors struct {
	table *neighbor.Table
	begun *neighbor.Link // the link between Begin and End, whose caller has it

	// The following belong to the receiving goroutine.
	got   [RecvBatch]neighbor.Train
	turns int // receives from neighbors since the last one from the socket
}

const (
	// neighborTurns is how many times in a row neighbors come first before it is the socket's turn.
	neighborTurns = 16
	// neighborLooks is how many polls of the neighbors, which cost next to nothing, there are for each poll of the
	// socket, which is a system call.
	neighborLooks = 32
)

func newNeighbors(self netip.AddrPort, scope uint32) (*neighbors, error) {
	t, err := neighbor.Listen(self, func(a netip.Addr) bool { return isHere(a, scope) })
	if err != nil {
		return nil, err
	}
	return &neighbors{table: t}, nil
}

// bell is the datagram that wakes a neighbor; no meaningful datagram is this short.
var bell = [][]byte{{0}}

func isBell(r *Received) bool { return r.SegmentSize == 1 }

// sendNear sends the trains for neighbors through the memory shared with them, and hands the rest to the kernel.
func (s *sender) sendNear(c *conn, trains []Train) (int, error) {
	table := c.near.table
	for done := 0; done < len(trains); {
		link, end := table.Link(trains[done].Dst), done+1
		for end < len(trains) && (trains[end].Dst == trains[end-1].Dst || link == nil && table.Link(trains[end].Dst) == nil) {
			end++
		}
		var n int
		var err error
		if link != nil {
			n, err = s.put(c, link, trains[done:end])
		} else {
			n, err = s.send(c, trains[done:end])
		}
		if err != nil {
			return done + n, err
		}
		done = end
	}
	return len(trains), nil
}

// put sends trains to a neighbor and wakes it, even if a later train is refused.
func (s *sender) put(c *conn, link *neighbor.Link, trains []Train) (done int, err error) {
	for done < len(trains) && err == nil {
		if err = c.putTrain(link, &trains[done]); err == nil {
			done++
		}
	}
	if done > 0 && link.Bell() {
		err = cmp.Or(err, s.ring(c, link))
	}
	return done, err
}

// putTrain sends a train to a neighbor. If there is no room the train is lost, as in a socket.
func (c *conn) putTrain(link *neighbor.Link, t *Train) error {
	if t.Bytes <= 0 || t.Bytes > MaxTrainBytes || t.sum() != t.Bytes {
		return trainError(t, "%d bytes, and parts of %d: want the same, 1 to %d", t.Bytes, t.sum(), MaxTrainBytes)
	}
	switch room, there := putParts(link, t); {
	case !there: // the error that the kernel returns
		return &OpError{Op: "send", Addr: t.Dst, Err: unix.EFAULT}
	case room:
		c.countShared(t)
	default:
		c.countDropped(t)
	}
	return nil
}

// putParts reports whether there is room for a train, and whether all of the train's memory is accessible.
func putParts(link *neighbor.Link, t *Train) (room, there bool) {
	there = true
	defer mem.Caught(&there, debug.SetPanicOnFault(true), t.Parts...)
	return link.Put(t.Parts, t.Bytes, t.SegmentSize, t.TrafficClass), there
}

// ring wakes a neighbor that sleeps.
func (s *sender) ring(c *conn, link *neighbor.Link) error {
	s.bell[0] = Train{Dst: link.Peer(), Parts: bell, Bytes: 1, SegmentSize: 1, TrafficClass: c.cfg.TrafficClass}
	_, err := s.send(c, s.bell[:])
	return err
}

func (c *conn) countShared(t *Train) {
	c.counters.TxDatagrams.Add(uint64(max(t.Datagrams(), 1)))
	c.counters.TxBytes.Add(uint64(t.Bytes))
	c.counters.TxShared.Add(uint64(t.Bytes))
}

func (c *conn) Shares(dst netip.AddrPort) bool { return c.near != nil && c.near.table.Link(dst) != nil }

func (c *conn) Begin(t *Train) []byte {
	if link := c.near.table.Link(t.Dst); link != nil && !c.isClosed() {
		if to := link.Begin(t.Bytes, t.SegmentSize, t.TrafficClass); to != nil {
			c.near.begun = link
			return to
		}
		c.wake(link)
	}
	c.countDropped(t)
	return nil
}

func (c *conn) End(t *Train, whole bool) {
	link := c.near.begun
	c.near.begun = nil
	link.End(whole)
	if !whole {
		return
	}
	c.countShared(t)
	c.wake(link)
}

// wake wakes a sleeping neighbor, even if there was no room for the train: the last bell may have been lost.
func (c *conn) wake(link *neighbor.Link) {
	if !link.Bell() || !c.enter() {
		return
	}
	defer c.leave()
	s := &c.tx
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = 0
	_ = s.ring(c, link) // a neighbor that isn't woken now finds the train when it wakes
}

// first reports whether the i-th poll in a row should be of neighbors alone.
func (k *neighbors) first(i int) bool { return k != nil && i%neighborLooks != 0 && k.table.Linked() }

// tryNear receives from neighbors, or else from the socket, without waiting. If it was the socket's turn and the socket
// has nothing, it asks the neighbors after all.
func (c *conn) tryNear(rx []Received) (int, error) {
	if n := c.takeNear(rx); n > 0 {
		return n, nil
	}
	if n, err := c.recv(rx, unix.MSG_DONTWAIT); n > 0 || err != nil {
		return n, err
	}
	return c.takeNear(rx), nil
}

// takeNear receives from neighbors, unless it is the socket's turn.
func (c *conn) takeNear(rx []Received) int {
	k := c.near
	if k.turns == neighborTurns || c.isClosed() {
		k.turns = 0
		return 0
	}
	n := k.table.Take(k.got[:min(len(rx), RecvBatch)])
	if n == 0 {
		return 0
	}
	k.turns++
	datagrams, bytes := 0, 0
	for i := range k.got[:n] {
		t := &k.got[i]
		rx[i] = Received{Buf: t.Bytes, SegmentSize: t.Segment, Src: t.Peer, Dst: c.local.Addr(), TrafficClass: t.Class}
		datagrams += rx[i].Count()
		bytes += len(t.Bytes)
	}
	c.counters.RxDatagrams.Add(uint64(datagrams))
	c.counters.RxShared.Add(uint64(bytes))
	c.counters.RxBytes.Add(uint64(bytes))
	return n
}

// waitNear blocks until a datagram arrives at the socket, or a neighbor rings the bell.
func (c *conn) waitNear(rx []Received) (int, error) {
	for {
		if n, err := c.tryNear(rx); n > 0 || err != nil {
			return n, err
		}
		n, err := 0, error(nil)
		if c.near.table.Sleep() {
			n, err = c.recv(rx, unix.MSG_WAITFORONE)
		}
		c.near.table.Wake()
		if n > 0 || err != nil {
			return n, err
		}
	}
}
