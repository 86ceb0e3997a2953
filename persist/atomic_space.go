package persist

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// Blocks that are free, in use and waited for.

// waiter is a write that waits for a free block.
type waiter struct {
	r    *blockdev.Request
	done int64 // bytes that have been written
	next *waiter
}

// waiters are in the order of arrival.
type waiters struct {
	first, last *waiter
	serving     bool    // a goroutine is in serve
	idle        *waiter // free list
}

func (w *waiters) push(r *blockdev.Request, done int64, front bool) {
	x := w.idle
	if x == nil {
		x = &waiter{}
	} else {
		w.idle = x.next
	}
	*x = waiter{r: r, done: done}
	switch {
	case w.first == nil:
		w.first, w.last = x, x
	case front:
		x.next, w.first = w.first, x
	default:
		w.last.next, w.last = x, x
	}
}

func (w *waiters) pop() (r *blockdev.Request, done int64) {
	x := w.first
	w.first = x.next
	r, done = x.r, x.done
	*x = waiter{next: w.idle}
	w.idle = x
	return r, done
}

// takeOrWait takes up to most adjacent free blocks for a write of which done bytes are already written. If there are
// none, or others already wait, the write waits: serve continues it, and takeOrWait returns false.
func (v *atomicVolume) takeOrWait(most int, r *blockdev.Request, done int64, served bool) (blocks, bool) {
	v.mu.Lock()
	var b blocks
	if served || v.waiting.first == nil {
		b = v.take(most)
	}
	if b.n == 0 {
		v.waiting.push(r, done, served)
	}
	v.reclaimScarce()
	v.mu.Unlock()
	if b.n == 0 {
		v.failWaiting()
	}
	return b, b.n > 0
}

// takeAll takes exactly n free blocks in at most blockdev.MaxSegments pieces, or none.
func (v *atomicVolume) takeAll(n int, p *pieces) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	ok := v.waiting.first == nil && n <= v.free
	for left := n; ok && left > 0; {
		b := v.take(left)
		left -= b.n
		if ok = v.slots.add(p, b); !ok {
			v.giveLocked(b)
		}
	}
	if !ok {
		for _, b := range p.all() {
			v.giveLocked(b)
		}
	}
	v.reclaimScarce()
	return ok
}

// take takes up to most adjacent blocks, from the first extent that has some, and prefetches the beginning of the block
// that is likely to be taken next.
func (v *atomicVolume) take(most int) blocks {
	for _, x := range *v.extents.Load() {
		if first, n := x.free.take(most); n > 0 {
			v.free -= n
			if next := x.free.likely(first + n - 1); next >= 0 {
				prefetch.Start(x.data[next<<v.shift : (next+1)<<v.shift])
			}
			return blocks{x, first, n}
		}
	}
	return blocks{}
}

// giveLocked frees blocks. mu is held.
func (v *atomicVolume) giveLocked(b blocks) {
	for i := range b.n {
		b.x.free.add(b.first + i)
	}
	v.free += b.n
}

// give frees blocks.
func (v *atomicVolume) give(b blocks) {
	if b.x == nil {
		return
	}
	v.mu.Lock()
	v.giveLocked(b)
	v.mu.Unlock()
}

// giveAll is give for several runs of blocks.
func (v *atomicVolume) giveAll(all []blocks) {
	for _, b := range all {
		v.give(b)
	}
}

// serve lets writes continue that wait for free blocks, in the caller's goroutine. Whoever freed some calls it, without
// holding locks.
func (v *atomicVolume) serve() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiting.serving {
		return // the one that serves looks again
	}
	v.waiting.serving = true
	for v.waiting.first != nil && v.free > 0 {
		r, done := v.waiting.pop()
		v.mu.Unlock()
		v.proceed(r, done, true)
		v.mu.Lock()
	}
	v.waiting.serving = false
	if v.waiting.first != nil { // it has waited since before the caller replaced blocks that a checkpoint can free
		v.reclaimScarce()
	}
}

// retire frees blocks that no map names any more, as soon as no view shows them.
func (v *atomicVolume) retire(b blocks) {
	for b.n > 0 {
		n := together(b.first, b.n)
		v.giveSome(blocks{b.x, b.first, n}, b.x.pins.retire(b.first, n))
		b.first, b.n = b.first+n, b.n-n
	}
}

// giveSome frees those of b whose bit in which is set.
func (v *atomicVolume) giveSome(b blocks, which uint8) {
	runs(which, func(first, n int) { v.give(blocks{b.x, b.first + first, n}) })
}

// release undoes a view's pins on blocks, and reports whether any became free.
func (v *atomicVolume) release(b blocks) (freed bool) {
	if b.x == nil {
		return false
	}
	for b.n > 0 {
		n := together(b.first, b.n)
		if which := b.x.pins.unpin(b.first, n); which != 0 {
			v.giveSome(blocks{b.x, b.first, n}, which)
			freed = true
		}
		b.first, b.n = b.first+n, b.n-n
	}
	return freed
}

// reclaimScarce begins a checkpoint if free blocks are becoming scarce, or the next checkpoint long. mu is held: as
// soon as it is released, a write that waits may continue, and then the volume may be closed.
func (v *atomicVolume) reclaimScarce() {
	if v.kind != onSync || v.dirty == 0 || v.free > v.low && v.dirty < mostChanges {
		return
	}
	v.beginReclaim()
}

// beginReclaim begins a checkpoint that no request asked for, unless one has begun. mu is held.
func (v *atomicVolume) beginReclaim() {
	if v.reclaiming {
		return
	}
	v.reclaiming = true
	if v.flushes.Lead(&v.reclaim) {
		v.pool.Submit(&v.reclaim)
	}
}

// reclaimed ends a checkpoint that no request asked for. Writes that it let continue may have used up what it freed.
func (v *atomicVolume) reclaimed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reclaiming = false
	if v.failed.Load() == nil {
		v.reclaimScarce()
	}
}

// failWaiting ends the writes that wait for blocks, if the volume has failed.
func (v *atomicVolume) failWaiting() {
	for v.failed.Load() != nil {
		v.mu.Lock()
		if v.waiting.first == nil {
			v.mu.Unlock()
			return
		}
		r, _ := v.waiting.pop()
		v.mu.Unlock()
		v.finish(r, *v.failed.Load())
	}
}
