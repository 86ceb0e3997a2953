package simnet

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// arrival is a datagram with the time when it reaches the receiver.
type arrival struct {
	due      time.Time
	sequence uint64 // order of sending, which breaks ties
	src      netip.AddrPort
	class    uint8
	payload  []byte // shared by duplicates, never written
}

// newArrivals returns a queue of arrivals, the earliest first.
func newArrivals() pqueue.Queue[arrival] {
	return pqueue.New(func(a, b arrival) bool {
		if c := a.due.Compare(b.due); c != 0 {
			return c < 0
		}
		return a.sequence < b.sequence
	}, nil)
}
