package cm

import (
	"net/netip"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// boxSize limits the MADs of either kind that wait for the manager's goroutine.
const boxSize = 1024

// arrival is a MAD and where it came from.
type arrival struct {
	src netip.Addr
	mad [mad.Size]byte
}

// box holds waiting MADs, in the order of arrival.
type box struct {
	mads    []arrival
	spare   []arrival
	senders shares // of the box's room
}

func newBox() box { return box{senders: newShares(boxSize)} }

// put copies a MAD; it returns false if the sender's share is full.
func (b *box) put(a *arrival) bool {
	room := b.senders.take(a.src)
	if room {
		b.mads = append(b.mads, *a)
	}
	return room
}

// take empties the box. The result is valid until the next call.
func (b *box) take() []arrival {
	mads := b.mads
	b.mads, b.spare = b.spare[:0], mads
	b.senders.clear()
	return mads
}

// inbox collects what happens in the device's context for the manager's goroutine, so that the device never waits.
// Messages for existing connections overtake those that may create one: however many peers ask at once, a peer that
// confirms makes its place available to the next.
type inbox struct {
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	named   box               // MADs that name an ID of ours
	others  box               // REQs, and everything else from senders that don't know our ID
	commEst []*cmID           // identifiers whose QP received its first packet
	waiting []chan<- struct{} // closed when everything that came before is handled
}

func newInbox() inbox {
	return inbox{wake: make(chan struct{}, 1), named: newBox(), others: newBox()}
}

// kick wakes the manager's goroutine.
func (b *inbox) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// putMAD copies a MAD; it returns false if the sender's share of the room is full.
func (b *inbox) putMAD(src netip.Addr, datagram []byte) bool {
	a := arrival{src: src}
	copy(a.mad[:], datagram)
	b.mu.Lock()
	to := &b.others
	if mad.RemoteID(a.mad[:]) != 0 {
		to = &b.named
	}
	room := to.put(&a)
	b.mu.Unlock()
	b.kick()
	return room
}

// putCommEst says that the QP of id received its first packet; only the first call for an id counts.
func (b *inbox) putCommEst(id *cmID) {
	b.mu.Lock()
	if !id.commEst {
		id.commEst = true
		b.commEst = append(b.commEst, id)
	}
	b.mu.Unlock()
	b.kick()
}

// settled returns a channel that is closed when everything in the inbox has been handled.
func (b *inbox) settled() <-chan struct{} {
	c := make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	b.kick()
	return c
}

// news is what concerns existing connections.
type news struct {
	mads    []arrival // valid until the next call of takeNews or take
	commEst []*cmID
}

// takeNews takes only the news.
func (b *inbox) takeNews() news {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newsLocked()
}

// take empties the inbox. others is valid until the next call; the channels in waiting are to be closed when everything
// has been handled.
func (b *inbox) take() (n news, others []arrival, waiting []chan<- struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting = b.waiting
	b.waiting = nil
	return b.newsLocked(), b.others.take(), waiting
}

func (b *inbox) newsLocked() news {
	n := news{b.named.take(), b.commEst}
	b.commEst = nil
	return n
}
