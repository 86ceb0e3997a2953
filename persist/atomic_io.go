package persist

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// read copies blocks out, each as it is at one moment.
func (v *atomicVolume) read(r *blockdev.Request) error {
	xs := *v.extents.Load()
	for done := int64(0); done < r.Length; {
		n, err := v.readSome(r, xs, uint64((r.Offset+done)>>v.shift), uint64((r.Length-done)>>v.shift), done)
		if err != nil {
			return v.info.Fail(r.Op, r.Offset+done, v.m.below.KindOf(err), err)
		}
		done += n
	}
	return nil
}

// readSome copies out some of n logical blocks from lba on, to r from its byte done on.
func (v *atomicVolume) readSome(r *blockdev.Request, xs []*extent, lba, n uint64, done int64) (int64, error) {
	b, ok, err := v.pinned(xs, lba, n)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return v.readHeld(r, xs, lba, done)
	}
	length, err := v.copyOut(r, b, done)
	v.unpin(b)
	return length, err
}

// readHeld copies out one block that has the maximum number of views. Those may not end before the caller continues, so
// it must not wait for that. No block becomes free while it holds mu, so nobody writes to the block that the map names.
func (v *atomicVolume) readHeld(r *blockdev.Request, xs []*extent, lba uint64, done int64) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b, err := v.named(xs, lba)
	if err != nil {
		return 0, err
	}
	return v.copyOut(r, b, done)
}

// named returns the block that the map names for a logical block.
func (v *atomicVolume) named(xs []*extent, lba uint64) (b blocks, err error) {
	defer v.m.caughtReading(&err, debug.SetPanicOnFault(true))
	x, i, _ := lookup(xs, lba, 1)
	return v.place(lba, native(atomic.LoadUint64(&x.table[i])))
}

// copyOut copies b to the buffers of r from byte done on; zeroes perhaps only in part.
func (v *atomicVolume) copyOut(r *blockdev.Request, b blocks, done int64) (int64, error) {
	from := v.zeroes.Mem[:min(b.n<<v.shift, zeroesSize)]
	if b.x != nil {
		from = b.bytes(v.shift)
	}
	return int64(len(from)), v.m.give(r, from, done)
}

// pinned finds where up to n logical blocks from lba on are, and pins some of them. ok is false if one of them has too
// many views.
func (v *atomicVolume) pinned(xs []*extent, lba, n uint64) (b blocks, ok bool, err error) {
	defer v.m.caughtReading(&err, debug.SetPanicOnFault(true))
	x, i, count := lookup(xs, lba, n)
	return v.pinRun(lba, x.table[i:i+count])
}

// pinRun pins the blocks named by the first entries of a piece of the map, as many as are adjacent, and only a few at
// most. ok is false if one of them has too many views.
//
// A writer may replace an entry meanwhile: only an entry that is unchanged once the pin is in place counts.
func (v *atomicVolume) pinRun(lba uint64, table []uint64) (b blocks, ok bool, err error) {
	for {
		first := atomic.LoadUint64(&table[0])
		b, err = v.place(lba, native(first))
		if err != nil {
			return b, false, err
		}
		if b.x == nil {
			for b.n < len(table) && atomic.LoadUint64(&table[b.n]) == 0 {
				b.n++
			}
			return b, true, nil
		}
		most := together(b.first, min(len(table), int(b.x.rec.dataBlocks)-b.first))
		for b.n < most && atomic.LoadUint64(&table[b.n]) == v.entry(lba+uint64(b.n), b.number(b.n)) {
			b.n++
		}
		if !b.x.pins.pin(b.first, b.n) {
			return blocks{}, false, nil
		}
		if v.stillThere(lba, table, b, first) {
			return b, true, nil
		}
		v.unpin(b)
	}
}

// unpin undoes the pins on blocks, and lets writes continue that waited for one of them.
func (v *atomicVolume) unpin(b blocks) {
	if v.release(b) {
		v.serve()
	}
}

// stillThere reports whether entries name b, the first of them being unchanged.
func (v *atomicVolume) stillThere(lba uint64, table []uint64, b blocks, first uint64) bool {
	if atomic.LoadUint64(&table[0]) != first {
		return false
	}
	for i := 1; i < b.n; i++ {
		if atomic.LoadUint64(&table[i]) != v.entry(lba+uint64(i), b.number(i)) {
			return false
		}
	}
	return true
}

// write copies a request's data to free blocks and makes them its blocks' content.
func (v *atomicVolume) write(r *blockdev.Request) {
	v.proceed(r, 0, false)
	v.serve()
}

// proceed does that from byte done on, until there are no free blocks: then the request waits.
func (v *atomicVolume) proceed(r *blockdev.Request, done int64, served bool) {
	for done < r.Length {
		b, ok := v.takeOrWait(int((r.Length-done)>>v.shift), r, done, served)
		if !ok {
			return
		}
		mem := b.bytes(v.shift)
		err := v.fill(r, mem, done)
		if err != nil {
			v.give(b)
		} else {
			err = v.publish(uint64((r.Offset+done)>>v.shift), b)
		}
		if err != nil {
			v.written(r, err)
			return
		}
		done += int64(len(mem))
		served = true // it has its turn until it must wait again
	}
	v.written(r, nil)
}

// fill copies a request's data, from byte skip on, into memory of the mapping, and makes it durable if that is done at
// once.
func (v *atomicVolume) fill(r *blockdev.Request, mem []byte, skip int64) error {
	if v.kind == onLines {
		return v.m.store(r, mem, skip, v.lines)
	}
	return v.m.fill(r, mem, skip)
}

// persist makes stores to the mapping durable, if that is done at once.
func (v *atomicVolume) persist(b []byte) error {
	if v.kind == onLines {
		return v.m.persist(b, v.lines)
	}
	return nil
}

// publish makes b, whose data is in place and durable, the content of the logical blocks from lba on; without an
// extent, zeroes. Each changes by one 8-byte store, and the block that it replaced can be reused when that store is
// durable. If there is no room for an entry, the rest of b is freed again.
func (v *atomicVolume) publish(lba uint64, b blocks) error {
	for b.n > 0 {
		x, i, n := lookup(*v.extents.Load(), lba, uint64(b.n))
		part := blocks{b.x, b.first, n}
		var err error
		if b.x != nil {
			if err = v.back(x, i, n); err != nil {
				v.give(b)
				return err
			}
		}
		if v.kind == onSync {
			err = v.publishWorking(x, i, lba, part)
		} else {
			err = v.publishDurable(x, i, lba, part)
		}
		if err != nil {
			v.fail(err)
			return err
		}
		lba, b.n = lba+uint64(n), b.n-n
		if b.x != nil {
			b.first += n
		}
	}
	return nil
}

// back makes the file system allocate space for the n entries of x from i on, which lie in a hole of the file if no
// entry near them was ever written: once a write has begun to change them, or is acknowledged, it would be too late to
// report that there is no space.
func (v *atomicVolume) back(x *extent, i, n int) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for k := i / entriesPage; k <= (i+n-1)/entriesPage; k++ {
		if x.backed[k].Load() {
			continue
		}
		at := k * entriesPage
		atomic.AddUint64(&x.table[at], 0)
		atomic.AddUint64(&x.durable[at], 0)
		x.backed[k].Store(true)
	}
	return nil
}

// publishStep is how many entries are made durable together.
const publishStep = 64

// publishDurable changes entries of the durable map, those of x from i on.
func (v *atomicVolume) publishDurable(x *extent, i int, lba uint64, b blocks) error {
	if b.n == 1 { // as most are: avoids clearing the memory for many
		var old [1]blocks
		return v.replace(x.table[i:i+1], lba, b, 0, old[:])
	}
	var old [publishStep]blocks
	for at := 0; at < b.n; at += publishStep {
		n := min(b.n-at, publishStep)
		if err := v.replace(x.table[i+at:i+at+n], lba+uint64(at), b, at, old[:n]); err != nil {
			return err
		}
	}
	return nil
}

// replace is exchange, and also retires the blocks that the old entries named.
func (v *atomicVolume) replace(table []uint64, lba uint64, b blocks, at int, old []blocks) error {
	if err := v.exchange(table, lba, b, at, old); err != nil {
		return err
	}
	v.retireAll(old)
	return nil
}

// retireAll is retire for several blocks, of which adjacent ones are retired together.
func (v *atomicVolume) retireAll(old []blocks) {
	var run blocks
	for _, o := range old {
		switch {
		case o.x == nil:
		case run.n > 0 && o.follows(run):
			run.n += o.n
		default:
			v.retire(run)
			run = o
		}
	}
	v.retire(run)
}

// exchange stores entries for b, from its block at on, makes them durable and puts into old what the previous ones
// named.
func (v *atomicVolume) exchange(table []uint64, lba uint64, b blocks, at int, old []blocks) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	for j := range table {
		old[j] = blocks{}
		if b.x == nil && atomic.LoadUint64(&table[j]) == 0 {
			continue
		}
		e := native(atomic.SwapUint64(&table[j], v.entry(lba+uint64(j), b.number(at+j))))
		old[j], _ = v.place(lba+uint64(j), e) // a damaged entry named nothing that is in use
	}
	if v.kind == onLines { // even if none changed: one that did just before may not be durable yet
		v.lines.persist(bytesOf(table))
	}
	return nil
}

// unmap makes a range read as zeroes.
func (v *atomicVolume) unmap(r *blockdev.Request) {
	const piece = 1 << 20 // keeps the change within an int, and the time that others wait short
	lba, left := uint64(r.Offset>>v.shift), r.Length>>v.shift
	var err error
	for left > 0 && err == nil {
		n := min(left, piece)
		err = v.publish(lba, blocks{n: int(n)})
		lba, left = lba+uint64(n), left-n
		v.mu.Lock()
		v.reclaimScarce()
		v.mu.Unlock()
	}
	v.serve()
	v.written(r, err)
}
