package persist

import (
	"runtime/debug"
	"sync/atomic"
)

// Where msync is what makes stores durable, it would have to be called twice for each write:
// for the data, and then for the map. So requests change a working map, which is only as
// durable as the page cache, and a checkpoint does it for many writes together.

// change is what a write did to the working map, in order.
type change struct {
	x   *extent // that maps
	i   int     // the first entry
	lba uint64  // of that
	b   blocks
}

// publishWorking changes entries of the working map: those of x from i on.
func (v *atomicVolume) publishWorking(x *extent, i int, lba uint64, b blocks) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for j := range b.n {
		at := &x.table[i+j]
		if b.x == nil && atomic.LoadUint64(at) == 0 {
			continue
		}
		e := native(atomic.SwapUint64(at, v.entry(lba+uint64(j), b.number(j))))
		if old, err := v.place(xs, lba+uint64(j), e); err == nil && old.x != nil {
			old.x.replaced.add(old.first)
		}
		changed = true
	}
	if changed {
		v.changes = append(v.changes, change{x, i, lba, b})
	}
	return nil
}

// checkpoint makes durable what was completed before it began: the data of all blocks, and
// only then the entries that name them. Blocks that they replaced are free afterwards. One
// runs at a time. The system tells of an error once, and then takes the pages for clean; so
// after one nothing is written any more.
func (v *atomicVolume) checkpoint() error {
	if failed := v.failed.Load(); failed != nil {
		return *failed
	}
	v.mu.Lock()
	xs := *v.extents.Load() // all that the changes name
	changes := v.changes
	v.changes, v.spare = v.spare[:0], nil
	for _, x := range xs {
		x.replaced, x.freeing = x.freeing, x.replaced
	}
	v.mu.Unlock()
	if len(changes) > 0 {
		if err := v.carryOver(xs, changes); err != nil {
			v.fail(err)
			return err
		}
	}
	clear(changes)
	v.mu.Lock()
	v.spare = changes
	v.mu.Unlock()
	for _, x := range xs {
		for i := x.freeing.next(0); i >= 0; i = x.freeing.next(i + 1) {
			x.freeing.remove(i)
			v.retire(blocks{x, i, 1})
		}
	}
	v.serve()
	return nil
}

// carryOver brings changes to the durable map.
func (v *atomicVolume) carryOver(xs []*extent, changes []change) error {
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

// apply stores changes in the durable maps.
func (v *atomicVolume) apply(changes []change) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for _, c := range changes {
		for j := range c.b.n {
			at := &c.x.durable[c.i+j]
			if e := v.entry(c.lba+uint64(j), c.b.number(j)); atomic.LoadUint64(at) != e {
				atomic.StoreUint64(at, e)
			}
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
