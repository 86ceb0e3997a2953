package mem

import (
	"math/bits"
	"sync/atomic"
)

// The state of a block is stored at its first unit: what it is, and its size. Other units of a
// block have state 0.
const (
	stateFree uint32 = 1 << 30 // in a free list; the low bits are its order
	stateUsed uint32 = 2 << 30 // handed out; the low bits are its size in units
	stateIdle uint32 = 3 << 30 // being freed, or cached; the low bits as for stateUsed
	stateMask uint32 = 3 << 30
)

const (
	noUnit    = ^uint32(0)
	maxOrders = 31
)

// block is a run of units.
type block struct {
	chunk *chunk
	unit  uint32
}

// books describes the block that begins at a unit.
type books struct {
	state      atomic.Uint32 // Free reads it without a lock
	next, prev uint32        // in the free list of its order
}

// chunk is a buddy allocator for one mapping. Arena.mu guards everything except the states.
type chunk struct {
	mem   []byte
	index int
	pages pages
	units []books
	top   int               // order of the whole chunk
	lists [maxOrders]uint32 // first free block of each order
	avail uint32            // one bit for each list that isn't empty
	used  uint32            // units that aren't in a list
}

// newChunk manages mem, whose size is a power of two.
func newChunk(mem []byte, index int, kind pages) *chunk {
	n := len(mem) / unit
	c := &chunk{mem: mem, index: index, pages: kind, units: make([]books, n), top: bits.Len(uint(n)) - 1}
	for i := range c.lists {
		c.lists[i] = noUnit
	}
	c.push(0, c.top)
	return c
}

// take finds room for units, in the smallest free block that is large enough, and returns the
// rest of that block.
func (c *chunk) take(units uint32) (uint32, bool) {
	order := bits.Len32(units - 1)
	fitting := c.avail >> order
	if fitting == 0 {
		return 0, false
	}
	order += bits.TrailingZeros32(fitting)
	u := c.lists[order]
	c.unlink(u, order)
	c.used += units
	for at, need := u, units; need != 1<<order; {
		order--
		half := uint32(1) << order
		if need <= half {
			c.push(at+half, order)
		} else {
			at, need = at+half, need-half
		}
	}
	return u, true
}

// release takes units back, in the largest blocks that their position allows.
func (c *chunk) release(u, units uint32) {
	c.used -= units
	c.units[u].state.Store(0)
	for units > 0 {
		order := min(bits.TrailingZeros32(u), bits.Len32(units)-1)
		c.join(u, order)
		u += 1 << order
		units -= 1 << order
	}
}

// join frees a block and merges it with its free buddies.
func (c *chunk) join(u uint32, order int) {
	for order < c.top {
		buddy := u ^ 1<<order
		if c.units[buddy].state.Load() != stateFree|uint32(order) {
			break
		}
		c.unlink(buddy, order)
		u &^= 1 << order
		order++
	}
	c.push(u, order)
}

func (c *chunk) push(u uint32, order int) {
	head := c.lists[order]
	b := &c.units[u]
	b.state.Store(stateFree | uint32(order))
	b.next, b.prev = head, noUnit
	if head != noUnit {
		c.units[head].prev = u
	}
	c.lists[order] = u
	c.avail |= 1 << order
}

func (c *chunk) unlink(u uint32, order int) {
	b := &c.units[u]
	b.state.Store(0)
	if b.next != noUnit {
		c.units[b.next].prev = b.prev
	}
	if b.prev != noUnit {
		c.units[b.prev].next = b.next
		return
	}
	c.lists[order] = b.next
	if b.next == noUnit {
		c.avail &^= 1 << order
	}
}

// unitsFor returns how many units a buffer of n bytes takes: a power of two up to a page, whole
// pages above that.
func unitsFor(n int) uint32 {
	if n <= unit {
		return 1
	}
	if n <= pageSize {
		return 1 << bits.Len32(uint32(n-1)/unit)
	}
	return uint32((n+pageSize-1)/pageSize) * (pageSize / unit)
}
