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
	senders shares  // of the room for MADs
	commEst []*cmID // whose QP took its first packet
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

// take empties the box. The MADs are valid until the next call.
func (b *inbox) take() ([]arrival, []*cmID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mads, est := b.mads, b.commEst
	b.mads, b.spare, b.commEst = b.spare[:0], mads, nil
	b.senders.clear()
	return mads, est
}
