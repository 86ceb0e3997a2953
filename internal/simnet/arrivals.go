package simnet

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// moment is when something arrives, and which of what arrives then comes first.
type moment struct {
	due      time.Time
	sequence uint64 // order of sending
}

func (m moment) before(o moment) bool {
	if c := m.due.Compare(o.due); c != 0 {
		return c < 0
	}
	return m.sequence < o.sequence
}

// arrival is a datagram on its way to the receiver.
type arrival struct {
	moment
	src     netip.AddrPort
	class   uint8
	payload []byte // shared by duplicates, never written
}

// newArrivals returns a queue of arrivals, the earliest first.
func newArrivals() pqueue.Queue[arrival] {
	return pqueue.New(func(a, b arrival) bool { return a.before(b.moment) }, nil)
}
