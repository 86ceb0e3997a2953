package blockdev

import (
	"sync"
	"sync/atomic"
)

// A volume in memory that keeps some places over can have a stripe written elsewhere as a whole, and then be there: nothing
// is copied, and who still reads the old place isn't met.

// spares is how many places a volume has over, unless it is smaller: 16 MiB, which are used only where as much is lent
// at once, and then kept for the next loans until much is discarded.
const spares = 256

// places says in which part of a mapping each stripe lies, and which parts are free. One that is free is in one list.
type places struct {
	mem  []byte          // the mapping
	of   []atomic.Uint32 // a stripe's place; 0 is the one of its own number
	next []place         // of one that is in a list

	mu   sync.Mutex
	free place
}

// place is one more than the number of a part of the mapping, as large as a stripe; 0 is none. One stands for the list
// that begins with it, too.
type place uint32

// newPlaces has each stripe in the place of its own number in mem, and what is behind those free.
func newPlaces(mem []byte, stripes int) *places {
	n := len(mem) >> stripeShift
	p := &places{mem: mem, of: make([]atomic.Uint32, stripes), next: make([]place, n)}
	for x := place(n); x > place(stripes); x-- {
		p.free = p.link(x, p.free)
	}
	return p
}

// offset is where a place begins in the mapping.
func (x place) offset() int64 { return int64(x-1) << stripeShift }

// bytes are those of a place.
func (p *places) bytes(x place) []byte {
	return p.mem[x.offset() : x.offset()+stripeSize : x.offset()+stripeSize]
}

// stripe is where a stripe lies. It stays readable there for as long as there is a view of it in the Guard, which
// began before.
func (p *places) stripe(s int64) place {
	if x := p.of[s].Load(); x != 0 {
		return place(x)
	}
	return place(s + 1)
}

// move has a stripe lie elsewhere, and returns where it was. The stripe's entry of the Guard is locked.
func (p *places) move(s int64, to place) (from place) {
	from = p.stripe(s)
	p.of[s].Store(uint32(to))
	return from
}

// link is the list that begins with x and goes on with rest.
func (p *places) link(x, rest place) place {
	p.next[x-1] = rest
	return x
}

// after is what follows x in its list.
func (p *places) after(x place) place { return p.next[x-1] }

// take takes a list of n places, at least one; 0 where fewer are free.
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

// give makes a list free.
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
