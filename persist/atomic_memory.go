package persist

import (
	"runtime/debug"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// What transports use: views of blocks for reads, loans of free blocks for writes.

// Regions returns the file's mapping, one more mapping for each time that it grew, and the zeroes.
func (v *atomicVolume) Regions() []*blockdev.Region {
	rs := []*blockdev.Region{v.zeroes}
	for _, x := range *v.extents.Load() {
		if x.region != rs[len(rs)-1] {
			rs = append(rs, x.region)
		}
	}
	return rs
}

// View never meets a writer, since those write elsewhere. It returns ErrBusy if the blocks lie in too many pieces.
func (v *atomicVolume) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(blockdev.OpRead, offset)
	}
	if err := blockdev.CheckRange(&v.info, v.size.Load(), blockdev.OpRead, offset, length); err != nil {
		v.life.Leave()
		return segs, 0, err
	}
	var p pieces
	out, ok, err := v.show(segs, uint64(offset>>v.shift), uint64(length>>v.shift), &p)
	if ok && err == nil {
		return out, blockdev.ViewToken(v.slots.token(&p)), nil
	}
	v.unview(&p)
	if err != nil {
		return segs, 0, v.info.Fail(blockdev.OpRead, offset, v.m.below.KindOf(err), err)
	}
	return segs, 0, blockdev.ErrView
}

// Prefetch fetches the beginning of the first block, according to the current map. A write goes elsewhere, but changes
// the map.
func (v *atomicVolume) Prefetch(op blockdev.Op, offset, length int64) {
	if !v.life.Enter() {
		return
	}
	defer v.life.Leave()
	if blockdev.CheckRange(&v.info, v.size.Load(), op, offset, length) != nil || length == 0 {
		return
	}
	var fault error // View will find it, too
	defer v.m.caught(&fault, debug.SetPanicOnFault(true))
	xs, lba := *v.extents.Load(), uint64(offset>>v.shift)
	x, i, _ := lookup(xs, lba, 1)
	if op == blockdev.OpWrite {
		prefetch.Start(bytesOf(x.table[i : i+1]))
		return
	}
	if b, err := v.place(lba, native(atomic.LoadUint64(&x.table[i]))); err == nil && b.x != nil {
		prefetch.Start(b.bytes(v.shift))
	}
}

// Release allows blocks to be reused that were replaced meanwhile.
func (v *atomicVolume) Release(t blockdev.ViewToken) {
	p := v.slots.pieces(uint64(t), *v.extents.Load())
	v.unview(&p)
}

// unview ends a view of some pieces.
func (v *atomicVolume) unview(p *pieces) {
	freed := false
	for _, b := range p.all() {
		freed = v.release(b) || freed
	}
	v.slots.drop(p)
	if freed {
		v.serve()
	}
	v.life.Leave()
}

// show pins blocks and appends their memory to segs; ok is false if they lie in too many pieces, or have too many
// views. In any case p holds what is pinned.
func (v *atomicVolume) show(segs []blockdev.Segment, lba, n uint64, p *pieces) (out []blockdev.Segment, ok bool, err error) {
	defer v.m.caughtReading(&err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	for n > 0 {
		x, i, count := lookup(xs, lba, n)
		b, ok, err := v.pinRun(lba, x.table[i:i+count])
		if !ok || err != nil {
			return segs, false, err
		}
		if !v.slots.add(p, b) {
			v.unpin(b)
			return segs, false, nil
		}
		lba, n = lba+uint64(b.n), n-uint64(b.n)
	}
	out, ok = v.segments(segs, p)
	for _, s := range out[len(segs):] {
		touch(s.Bytes)
	}
	return out, ok, nil
}

// segments appends the memory of pieces.
func (v *atomicVolume) segments(segs []blockdev.Segment, p *pieces) ([]blockdev.Segment, bool) {
	most := len(segs) + blockdev.MaxSegments
	segs = slices.Grow(segs, len(p.all())) // once, and not by doubling
	for _, b := range p.all() {
		if b.x != nil {
			segs = append(segs, blockdev.Segment{Region: b.x.region, Bytes: b.bytes(v.shift)})
			continue
		}
		for left := b.n << v.shift; left > 0 && len(segs) <= most; left -= zeroesSize {
			n := min(left, zeroesSize)
			segs = append(segs, blockdev.Segment{Region: v.zeroes, Bytes: v.zeroes.Mem[:n:n]})
		}
	}
	return segs, len(segs) <= most
}

// Lend lends free blocks. It returns ErrBusy if there are too few, or if they lie in too many pieces.
func (v *atomicVolume) Lend(segs []blockdev.Segment, length int64) ([]blockdev.Segment, blockdev.LoanToken, error) {
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(blockdev.OpWrite, -1)
	}
	if v.info.ReadOnly || length <= 0 || length&int64(v.info.BlockSize-1) != 0 || length > v.size.Load() {
		v.life.Leave()
		return segs, 0, v.info.Fail(blockdev.OpWrite, -1, blockdev.ErrInvalid, blockdev.ErrLoan)
	}
	var p pieces
	if v.failed.Load() != nil || !v.takeAll(int(length>>v.shift), &p) {
		v.slots.drop(&p)
		v.life.Leave()
		return segs, 0, blockdev.ErrView
	}
	out, _ := v.segments(segs, &p)
	if err := v.ready(out[len(segs):]); err != nil {
		v.Return(blockdev.LoanToken(v.slots.token(&p)))
		return segs, 0, v.info.Fail(blockdev.OpWrite, -1, v.m.below.KindOf(err), err)
	}
	return out, blockdev.LoanToken(v.slots.token(&p)), nil
}

// ready writes to each page that is lent: a transport that fills it could not be told that the file system is full.
func (v *atomicVolume) ready(segs []blockdev.Segment) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for _, s := range segs {
		at := int(uintptr(unsafe.Pointer(unsafe.SliceData(s.Bytes))) & (pageSize - 1))
		for i := 0; i < len(s.Bytes); i += pageSize - (at+i)&(pageSize-1) {
			s.Bytes[i] = 0
		}
	}
	return nil
}

// Return frees the blocks.
func (v *atomicVolume) Return(t blockdev.LoanToken) {
	if t == 0 {
		return
	}
	p := v.slots.pieces(uint64(t), *v.extents.Load())
	v.giveAll(p.all())
	v.slots.drop(&p)
	v.serve()
	v.life.Leave()
}

// commit makes the content of a loan the content of a request's blocks.
func (v *atomicVolume) commit(r *blockdev.Request) {
	p := v.slots.pieces(uint64(r.TakeLoan()), *v.extents.Load())
	all := p.all()
	n := 0
	for _, b := range all {
		n += b.n
	}
	var err error
	if int64(n)<<v.shift != r.Length {
		v.giveAll(all)
		err = v.info.Fail(r.Op, r.Offset, blockdev.ErrInvalid, blockdev.ErrLoan)
	} else {
		err = v.commitAll(uint64(r.Offset>>v.shift), all)
	}
	v.slots.drop(&p)
	v.serve()
	v.life.Leave() // the loan's
	v.written(r, err)
}

// commitAll makes all data durable before the first entry names it.
func (v *atomicVolume) commitAll(lba uint64, all []blocks) error {
	for _, b := range all {
		if err := v.persist(b.bytes(v.shift)); err != nil {
			v.giveAll(all)
			return err
		}
	}
	for i, b := range all {
		if err := v.publish(lba, b); err != nil {
			v.giveAll(all[i+1:])
			return err
		}
		lba += uint64(b.n)
	}
	return nil
}
