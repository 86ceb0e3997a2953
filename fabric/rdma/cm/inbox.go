package cm

import (
	"net/netip"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// inboxSize bounds the MADs that wait for the manager's goroutine.
const inboxSize = 1024

// arrival is a MAD and where it came from.
type arrival struct {
	src netip.Addr
	mad [mad.Size]byte
}

// inbox takes what happens in the device's context and hands it to the manager's goroutine, so
// that the device never waits.
type inbox struct {
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	mads    []arrival
	spare   []arrival
	senders shares            // of the room for MADs
	commEst []*cmID           // whose QP took its first packet
	waiting []chan<- struct{} // closed when all that came before is dealt with
}

func newInbox() inbox {
	return inbox{wake: make(chan struct{}, 1), senders: newShares(inboxSize)}
}

// kick makes the manager's goroutine look around.
func (b *inbox) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// putMAD copies a MAD; false when the sender's share of the box is full.
func (b *inbox) putMAD(src netip.Addr, datagram []byte) bool {
	b.mu.Lock()
	room := b.senders.take(src)
	if room {
		b.mads = append(b.mads, arrival{src: src})
		copy(b.mads[len(b.mads)-1].mad[:], datagram)
	}
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

// taken is what was in the box.
type taken struct {
	mads    []arrival // valid until the next call of take
	commEst []*cmID
	waiting []chan<- struct{} // to be closed when that has been dealt with
}

// take empties the box.
func (b *inbox) take() taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := taken{b.mads, b.commEst, b.waiting}
	b.mads, b.spare, b.commEst, b.waiting = b.spare[:0], t.mads, nil, nil
	b.senders.clear()
	return t
}
