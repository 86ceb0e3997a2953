package persist

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// recover prepares an opened volume for use: it adopts the working maps of a program that was killed, finds out which
// blocks are free, and adds what the file has grown by.
func (v *atomicVolume) recover() error {
	if err := v.chooseTables(); err != nil {
		return err
	}
	if err := v.scan(); err != nil {
		return err
	}
	if v.info.ReadOnly {
		return nil
	}
	if _, err := v.grow(); err != nil && !errors.Is(err, errGrownOften) { // which Refresh reports
		return err
	}
	if v.kind == onSync {
		now, err := currentSession(v.m.file)
		if err == nil {
			err = v.setSession(now)
		}
		if err != nil {
			return err
		}
	}
	if v.super.generation > 1 && !v.otherIsBehind() {
		return nil
	}
	return v.writeSuper(v.super) // a new volume has one copy
}

// otherIsBehind reports whether the older copy of the superblock names fewer extents, as when growth was cut short:
// opening with it would make, and clear, the last extent again.
func (v *atomicVolume) otherIsBehind() bool {
	b := make([]byte, superSize)
	if v.m.get(b, v.m.mem[(v.super.generation+1)%superCopies*superSize:]) != nil {
		return false
	}
	other, err := parseSuper(b)
	return err == nil && len(other.extents) < len(v.super.extents)
}

// chooseTables decides whether the working maps are more recent than the durable ones, and makes the tables that
// requests use the right ones.
func (v *atomicVolume) chooseTables() error {
	open, err := v.super.session.isOpen(v.m.file)
	switch {
	case err != nil:
		return err
	case v.info.ReadOnly:
		for _, x := range *v.extents.Load() {
			if x.table = x.durable; open {
				x.table = x.work
			}
		}
		return nil
	case open:
		return v.replay()
	case v.kind == onSync:
		if v.super.session == unsure {
			if err := v.rewrite(); err != nil {
				return err
			}
		}
		return v.copyTables(func(x *extent) (to, from []uint64) { return x.work, x.durable })
	}
	return nil
}

// rewrite makes the kernel write all of the durable maps, even if it regards their pages as clean.
func (v *atomicVolume) rewrite() (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	for _, x := range xs {
		for i := 0; i < len(x.durable); i += entriesPage {
			atomic.AddUint64(&x.durable[i], 0)
		}
	}
	return v.syncTables(xs)
}

// replay copies the working maps to the durable ones: what a checkpoint does, but without knowing the changes.
func (v *atomicVolume) replay() error {
	if err := v.syncAll(); err != nil {
		return err
	}
	if err := v.copyTables(func(x *extent) (to, from []uint64) { return x.durable, x.work }); err != nil {
		return err
	}
	if err := v.syncAll(); err != nil {
		return err
	}
	return v.setSession(session{})
}

// syncAll makes the whole mapping durable. If that fails another attempt would succeed without having written anything:
// what working maps point to may be lost.
func (v *atomicVolume) syncAll() error {
	err := v.sync(v.m.mem)
	if err != nil {
		_ = v.setSession(unsure) // the medium may accept nothing more
	}
	return err
}

// copyTables copies the entries that differ.
func (v *atomicVolume) copyTables(which func(*extent) (to, from []uint64)) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for _, x := range *v.extents.Load() {
		to, from := which(x)
		for i, e := range from {
			if to[i] != e {
				atomic.StoreUint64(&to[i], e)
			}
		}
	}
	return nil
}

// scan finds the blocks that no entry names.
func (v *atomicVolume) scan() error {
	t := v.tally()
	if t.err != nil {
		return t.err
	}
	v.free = t.free
	if len(t.damage) > 0 {
		d := t.damage[0]
		return blockdev.OpenError(v.info.Path, blockdev.ErrMedium, fmt.Errorf(
			"the map is damaged, first at logical block %d (%s): see nvmetgt pmem check", d.Block, d.Reason))
	}
	return nil
}

// tallied is a summary of the maps.
type tallied struct {
	used, lost, free int
	damage           []Damage
	shared           map[uint64]bool // the blocks that several logical blocks have, or had
	err              error           // the maps can't be read
}

// tally reads all entries, and removes the blocks that they name from each extent's set of free ones. It is called once.
func (v *atomicVolume) tally() (t tallied) {
	defer v.m.caughtReading(&t.err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	for _, x := range xs {
		t.free += int(x.rec.dataBlocks)
	}
	for _, x := range xs {
		for i, e := range x.table {
			if e != 0 {
				t.count(v, x.rec.first+uint64(i), native(e))
			}
		}
	}
	t.countShared(v)
	return t
}

// count adds one entry.
func (t *tallied) count(v *atomicVolume, lba, e uint64) {
	b, err := v.place(lba, e)
	switch {
	case errors.Is(err, errLost):
		t.lost++
	case v.isDisputed(lba, e):
		t.damage = append(t.damage, Damage{lba, "another logical block had the same block when a repair was cut short"})
		t.share(e & entryMask)
	case err != nil:
		t.damage = append(t.damage, Damage{lba, "the entry's check is wrong"})
	case !b.x.free.remove(b.first):
		t.share(e & entryMask)
	default:
		t.used++
		t.free--
	}
}

func (t *tallied) share(p uint64) {
	if t.shared == nil {
		t.shared = map[uint64]bool{}
	}
	t.shared[p] = true
}

// countShared adds to the damage all entries that name shared blocks, the first ones, too: a repair gives up each, as it
// isn't known whose the block is.
func (t *tallied) countShared(v *atomicVolume) {
	if len(t.shared) == 0 {
		return
	}
	used := map[uint64]bool{}
	v.eachOf(t.shared, func(x *extent, i int, lba, p uint64) {
		if _, err := v.place(lba, native(x.table[i])); err == nil {
			t.damage = append(t.damage, Damage{lba, "another logical block has the same block"})
			used[p] = true
		}
	})
	t.used -= len(used)
	slices.SortFunc(t.damage, func(a, b Damage) int { return cmp.Compare(a.Block, b.Block) })
}

// harden makes a piece of the mapping durable, now.
func (v *atomicVolume) harden(b []byte) error {
	switch v.kind {
	case onLines:
		return v.m.persist(b, v.lines)
	case onSync:
		return v.sync(b)
	}
	return nil
}
