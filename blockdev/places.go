package blockdev

import (
	"sync"
	"sync/atomic"
)

// A volume in memory that has spare places can have a whole stripe written to one of them, and then make that the
// stripe's place: nothing is copied, and readers of the old place aren't disturbed.

// spares is how many spare places a volume has, unless it is smaller: 16 MiB, which use memory only if as much is lent
// at once, and then keep it for later loans until much is discarded.
const spares = 256

// places records in which part of a mapping each stripe lies, and which parts are free. A free place is in exactly one
// list.
type places struct {
	mem  []byte          // the mapping
	of   []atomic.Uint32 // each stripe's place; 0 is the place of its own number
	next []place         // for a place that is in a list

	mu   sync.Mutex
	free place
}

// place is one more than the number of a stripe-sized part of the mapping; 0 is none. It also stands for the list that
// begins with it.
type place uint32

// newPlaces puts each stripe in the place of its own number in mem; the places behind those are free.
func newPlaces(mem []byte, stripes int) *places {
	n := len(mem) >> stripeShift
	p := &places{mem: mem, of: make([]atomic.Uint32, stripes), next: make([]place, n)}
	for x := place(n); x > place(stripes); x-- {
		p.free = p.link(x, p.free)
	}
	return p
}

// offset returns where a place begins in the mapping.
func (x place) offset() int64 { return int64(x-1) << stripeShift }

// bytes returns the memory of a place.
func (p *places) bytes(x place) []byte {
	return p.mem[x.offset() : x.offset()+stripeSize : x.offset()+stripeSize]
}

// stripe returns the place of a stripe. The stripe stays readable there as long as there is a view of it in the Guard
// that began earlier.
func (p *places) stripe(s int64) place {
	if x := p.of[s].Load(); x != 0 {
		return place(x)
	}
	return place(s + 1)
}

// move moves a stripe to another place, and returns the old one. The stripe's entry of the Guard is locked.
func (p *places) move(s int64, to place) (from place) {
	from = p.stripe(s)
	p.of[s].Store(uint32(to))
	return from
}

// link returns the list that begins with x and continues with rest.
func (p *places) link(x, rest place) place {
	p.next[x-1] = rest
	return x
}

// after returns the place that follows x in its list.
func (p *places) after(x place) place { return p.next[x-1] }

// take takes a list of n free places, at least one; 0 if fewer are free.
func (p *places) take(n int) (list place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.free
	for i := 1; i < n && last != 0; i++ {
		last = p.after(last)
	}
	if last == 0 {
		return 0
	}
	list, p.free = p.free, p.after(last)
	p.link(last, 0)
	return list
}

// give frees the places of a list.
func (p *places) give(list place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for list != 0 {
		rest := p.after(list)
		p.free, list = p.link(list, p.free), rest
	}
}

// empty gives the memory of free places back to the system.
func (p *places) empty() {
	p.mu.Lock()
	list := p.free
	p.free = 0
	p.mu.Unlock()
	for x := list; x != 0; x = p.after(x) {
		free(p.bytes(x))
	}
	p.give(list)
}
