package udp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// refusedFor is how long a destination gets no trains whose route has refused one. The route may change, and to
	// find that out costs one call.
	refusedFor = time.Minute
	// maxRefused bounds how many of them are remembered.
	maxRefused = 4096
)

// refusals are the destinations whose routes have refused segmentation.
type refusals struct {
	some atomic.Bool // there are any

	mu    sync.Mutex
	until map[netip.AddrPort]time.Time
	next  time.Time // no entry ends before
}

func (r *refusals) add(dst netip.AddrPort, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) == maxRefused {
		r.until = map[netip.AddrPort]time.Time{}
	}
	if len(r.until) == 0 {
		r.next = now.Add(refusedFor)
	}
	r.until[dst] = now.Add(refusedFor)
	r.some.Store(true)
}

func (r *refusals) has(dst netip.AddrPort, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.next) {
		r.expire(now)
	}
	_, found := r.until[dst]
	return found
}

// expire forgets those whose time is over, also of destinations to which nothing is sent any more.
func (r *refusals) expire(now time.Time) {
	r.next = now.Add(refusedFor)
	for dst, until := range r.until {
		if !now.Before(until) {
			delete(r.until, dst)
		} else if until.Before(r.next) {
			r.next = until
		}
	}
	r.some.Store(len(r.until) > 0)
}
