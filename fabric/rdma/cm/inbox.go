package cm

import (
	"net/netip"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// boxSize bounds the MADs of either kind that wait for the manager's goroutine.
const boxSize = 1024

// arrival is a MAD and where it came from.
type arrival struct {
	src netip.Addr
	mad [mad.Size]byte
}

// box is MADs that wait, in the order in which they came.
type box struct {
	mads    []arrival
	spare   []arrival
	senders shares // of the room
}

func newBox() box { return box{senders: newShares(boxSize)} }

// put copies a MAD; false when the sender's share is full.
func (b *box) put(a *arrival) bool {
	room := b.senders.take(a.src)
	if room {
		b.mads = append(b.mads, *a)
	}
	return room
}

// take empties the box. What it returns is valid until the next call.
func (b *box) take() []arrival {
	mads := b.mads
	b.mads, b.spare = b.spare[:0], mads
	b.senders.clear()
	return mads
}

// inbox takes what happens in the device's context and hands it to the manager's goroutine, so
// that the device never waits. What concerns a connection that is there overtakes what may begin one: however many ask
// at once, whoever confirms leaves its place to the next.
type inbox struct {
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	named   box               // MADs that name an ID of ours
	others  box               // REQs, and whatever else is from somebody who doesn't know us
	commEst []*cmID           // whose QP took its first packet
	waiting []chan<- struct{} // closed when all that came before is dealt with
}

func newInbox() inbox {
	return inbox{wake: make(chan struct{}, 1), named: newBox(), others: newBox()}
}

// kick makes the manager's goroutine look around.
func (b *inbox) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// putMAD copies a MAD; false when the sender's share of the room is full.
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

// putCommEst says that the QP of id took its first packet; only the first call for an id counts.
func (b *inbox) putCommEst(id *cmID) {
	b.mu.Lock()
	if !id.commEst {
		id.commEst = true
		b.commEst = append(b.commEst, id)
	}
	b.mu.Unlock()
	b.kick()
}

// settled gives a channel that is closed when all that is in the box has been dealt with.
func (b *inbox) settled() <-chan struct{} {
	c := make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	b.kick()
	return c
}

// news is what concerns connections that are there.
type news struct {
	mads    []arrival // valid until the next call of takeNews or take
	commEst []*cmID
}

// takeNews takes that alone.
func (b *inbox) takeNews() news {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newsLocked()
}

// take empties the inbox. The requests, and others, are valid until the next call; what waits is to be closed when all
// has been dealt with.
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
