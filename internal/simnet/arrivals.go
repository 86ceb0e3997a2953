package simnet

import (
	"cmp"
	"net/netip"
	"time"
)

// arrival is a datagram with the time when it reaches the receiver.
type arrival struct {
	due      time.Time
	sequence uint64 // order of sending, which decides between equal times
	src      netip.AddrPort
	class    uint8
	payload  []byte // shared by duplicates, never written
}

func (a *arrival) compare(b *arrival) int {
	if c := a.due.Compare(b.due); c != 0 {
		return c
	}
	return cmp.Compare(a.sequence, b.sequence)
}

// arrivals is a heap, the earliest at the top (container/heap).
type arrivals []arrival

func (h *arrivals) Len() int           { return len(*h) }
func (h *arrivals) Less(i, j int) bool { return (*h)[i].compare(&(*h)[j]) < 0 }
func (h *arrivals) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push and Pop are for container/heap.
func (h *arrivals) Push(x any) { *h = append(*h, x.(arrival)) }

// Pop removes the last element.
func (h *arrivals) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = arrival{}
	*h = old[:len(old)-1]
	return last
}
