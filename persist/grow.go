package persist

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// OnResize makes Refresh call f with each new size.
func (v *atomicVolume) OnResize(f func(newSize int64)) (stop func()) { return v.watchers.Add(f) }

// Refresh adds what the file has grown by since it was opened. It returns an error if the file couldn't be opened
// again.
func (v *atomicVolume) Refresh() (err error) {
	if !v.life.Enter() {
		return v.info.Closed("refresh")
	}
	defer v.life.Leave()
	aio.Apart(func() { err = v.refresh() })
	return err
}

func (v *atomicVolume) refresh() error {
	v.growing.Lock()
	defer v.growing.Unlock()
	grown, err := v.grow()
	switch {
	case errors.Is(err, errGrownOften):
		err = v.info.Failed("grow", blockdev.ErrCapacity, err)
	case err != nil:
		err = v.info.Failed("grow", v.m.below.KindOf(err), err)
	}
	if grown {
		v.watchers.Tell(v.size.Load())
	}
	if v.m.file == nil {
		return err
	}
	if err == nil {
		err = v.checkEnd()
	}
	return blockdev.CheckName(v.m.file, &v.info, err)
}

// checkEnd returns an error if the file was cut: what is left can be used until the volume is closed.
func (v *atomicVolume) checkEnd() error {
	size, err := v.m.fileSize()
	if err != nil {
		return v.info.Failed("refresh", v.m.below.KindOf(err), err)
	}
	if err := v.super.check(uint64(size)); err != nil {
		return v.info.Failed("refresh", blockdev.ErrInvalid, err)
	}
	return nil
}

// errGrownOften is that the superblock has no room for another extent.
var errGrownOften = fmt.Errorf("it has grown %d times, as often as it can: copy it to a new volume", maxExtents-1)

// grow makes an extent of what the file has behind the last one, if that is worth it.
func (v *atomicVolume) grow() (bool, error) {
	if v.m.file == nil || v.info.ReadOnly {
		return false, nil
	}
	size, err := v.m.fileSize()
	if err != nil {
		return false, err
	}
	end := v.super.end()
	if uint64(size) < end+minGrowth {
		return false, nil
	}
	rec, ok := fit(v.super.blocks(), end, uint64(size), v.info.BlockSize, v.m.cached())
	if !ok {
		return false, nil
	}
	if len(v.super.extents) == maxExtents {
		return false, errGrownOften
	}
	if failed := v.failed.Load(); failed != nil {
		return false, *failed
	}
	region, base, err := v.cover(rec, uint64(size))
	if err != nil {
		return false, err
	}
	made, err := v.makeExtents(region, base, []extentRecord{rec}) // what the superblock names is used
	if err != nil {
		return false, errors.Join(err, v.m.drop(region.Mem))
	}
	if err := v.record(rec, region, base); err != nil {
		return false, errors.Join(err, made[0].close(), v.m.drop(region.Mem))
	}
	v.takeExtents(made)
	return true, nil
}

// record clears the maps of a new extent, and then makes the superblock name it.
func (v *atomicVolume) record(rec extentRecord, region *blockdev.Region, base uint64) error {
	if err := v.m.clear(region.Mem[rec.tableOff-base:rec.dataOff-base], int64(rec.tableOff)); err != nil {
		return err
	}
	old := v.super.extents
	err := v.name(rec, region.Mem[rec.tableOff-base:rec.dataOff-base])
	if err == nil {
		return nil
	}
	v.super.extents = old
	if v.kind == onSync {
		v.lose(err) // it may be about earlier writes
	}
	return err
}

// name makes the maps of a new extent durable, and then writes superblocks that name it.
func (v *atomicVolume) name(rec extentRecord, maps []byte) error {
	if err := v.m.syncFile(); err != nil {
		return err
	}
	if err := v.harden(maps); err != nil {
		return err
	}
	next := v.super
	next.extents = append(slices.Clip(next.extents), rec)
	for range superCopies { // opening with an older copy would make, and clear, the extent again
		if err := v.writeSuper(next); err != nil {
			return err
		}
	}
	return nil
}

// cover finds, or makes, the region that an extent lies in, which begins at byte base.
func (v *atomicVolume) cover(rec extentRecord, size uint64) (region *blockdev.Region, base uint64, err error) {
	if size <= uint64(len(v.m.mem)) {
		return (*v.extents.Load())[0].region, 0, nil
	}
	base = rec.tableOff &^ (uint64(unix.Getpagesize()) - 1)
	mem, err := v.m.extend(int64(base), int64(size-base))
	if err != nil {
		return nil, 0, err
	}
	return &blockdev.Region{Mem: mem, Lent: true, File: true}, base, nil
}

// takeExtents adds new extents to the volume.
func (v *atomicVolume) takeExtents(made []*extent) {
	v.mu.Lock()
	v.addExtents(made)
	for _, x := range made {
		v.free += int(x.rec.dataBlocks)
	}
	v.mu.Unlock()
	v.serve()
}
