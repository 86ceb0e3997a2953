package persist

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// If msync is what makes stores durable, it would have to be called twice for each write: for the data, and then for
// the map. So requests change a working map, which is only as durable as the page cache, and a checkpoint makes many
// writes durable together.

// A block that was written and replaced between two checkpoints can be reused at once: no durable map ever names it. So
// a logical block has at most two blocks, and as long as there are more spare blocks than logical ones writes need no
// checkpoint. That is worth a lot: after each checkpoint the first store to a page makes the kernel mark it as dirty,
// and the next checkpoint has it written.

// change is a changed entry of the working map that has to be copied to the durable map.
type change struct {
	x     *extent
	i     int
	entry uint64 // as it is stored in the file
}

// mostChanges is how many entries may differ before a checkpoint begins by itself.
const mostChanges = 1 << 20

// settleAfter is the longest that a change waits for a checkpoint to begin, as the kernel's own dirty pages do
// (vm.dirty_expire_centisecs): a host that never flushes loses no more than that.
const settleAfter = 30 * time.Second

// lookAgain is how long after that to look again, if a checkpoint that began before the change is still running.
const lookAgain = time.Second

// aged begins a checkpoint for changes that have waited long enough.
func (v *atomicVolume) aged() {
	if !v.life.Enter() {
		return
	}
	defer v.life.Leave()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dirty > 0 && v.reclaiming {
		v.aging.Reset(lookAgain)
	} else if v.dirty > 0 {
		v.beginReclaim()
	}
}

// publishWorking changes entries of the working map, those of x from i on.
func (v *atomicVolume) publishWorking(x *extent, i int, lba uint64, b blocks) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	v.mu.Lock()
	defer v.mu.Unlock()
	for j := range b.n {
		at := &x.table[i+j]
		if b.x == nil && atomic.LoadUint64(at) == 0 {
			continue
		}
		if x.dirty.add(i + j) {
			if v.dirty == 0 {
				v.aging.Reset(settleAfter)
			}
			v.dirty++
		}
		if b.x != nil {
			b.x.young.add(b.first + j)
		}
		e := native(atomic.SwapUint64(at, v.entry(lba+uint64(j), b.number(j))))
		old, _ := v.place(lba+uint64(j), e) // a damaged entry named nothing that is in use
		switch {
		case old.x == nil:
		case !old.x.young.remove(old.first):
			old.x.replaced.add(old.first)
		case old.x.pins.retire(old.first, 1) != 0:
			v.giveLocked(old)
		}
	}
	return nil
}

// takeChanges takes what has been gathered for one checkpoint and starts gathering for the next. The error means that
// the working map can't be read any more, and that what was gathered is useless.
func (v *atomicVolume) takeChanges() (xs []*extent, changes []change, err error) {
	defer v.m.caughtReading(&err, debug.SetPanicOnFault(true))
	v.mu.Lock()
	defer v.mu.Unlock()
	xs, changes = *v.extents.Load(), v.changes[:0]
	for _, x := range xs {
		for i := x.dirty.next(0); i >= 0; i = x.dirty.next(i + 1) {
			x.dirty.remove(i)
			changes = append(changes, change{x, i, atomic.LoadUint64(&x.table[i])})
		}
		x.young, x.grown = x.grown, x.young
		x.replaced, x.freeing = x.freeing, x.replaced
	}
	v.dirty = 0
	return xs, changes, nil
}

// checkpoint makes durable what was completed before it began: the data of all blocks, and only then the entries that
// name them. The blocks that they replaced are free afterwards. One runs at a time.
func (v *atomicVolume) checkpoint() error {
	if failed := v.failed.Load(); failed != nil {
		return *failed
	}
	xs, changes, err := v.takeChanges()
	if err != nil {
		v.fail(err)
		return err
	}
	if len(changes) > 0 {
		if err := v.carryOver(xs, changes); err != nil {
			return err
		}
	}
	v.changes = changes // memory for the next
	for _, x := range xs {
		x.grown.empty()
		for i := x.freeing.next(0); i >= 0; i = x.freeing.next(i + 1) {
			x.freeing.remove(i)
			v.retire(blocks{x, i, 1})
		}
	}
	v.serve()
	return nil
}

// carryOver copies changes to the durable map. The volume doesn't grow meanwhile: the system reports an error only
// once, and it could be either's sync that gets it.
func (v *atomicVolume) carryOver(xs []*extent, changes []change) error {
	v.growing.Lock()
	defer v.growing.Unlock()
	if failed := v.failed.Load(); failed != nil {
		return *failed
	}
	err := v.bring(xs, changes)
	if err != nil {
		v.lose(err)
	}
	return err
}

// bring does the work of carryOver.
func (v *atomicVolume) bring(xs []*extent, changes []change) error {
	for _, x := range xs {
		if err := v.sync(x.data); err != nil {
			return err
		}
	}
	if err := v.apply(changes); err != nil {
		return err
	}
	return v.syncTables(xs)
}

// lose is called, with growing held, if a sync failed: from then on the system regards the pages as clean, whichever
// write they belong to. So nothing is written any more.
func (v *atomicVolume) lose(err error) {
	v.fail(err)
	_ = v.setSession(unsure) // the medium may accept nothing more
}

// apply stores changes in the durable maps.
func (v *atomicVolume) apply(changes []change) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for _, c := range changes {
		if at := &c.x.durable[c.i]; atomic.LoadUint64(at) != c.entry {
			atomic.StoreUint64(at, c.entry)
		}
	}
	return nil
}

// syncTables makes the durable maps durable.
func (v *atomicVolume) syncTables(xs []*extent) error {
	for _, x := range xs {
		if err := v.sync(bytesOf(x.durable)); err != nil {
			return err
		}
	}
	return nil
}
