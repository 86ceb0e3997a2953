package persist

import (
	"errors"
	"runtime/debug"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// read copies blocks out, each as it is at one moment.
func (v *atomicVolume) read(r *blockdev.Request) (err error) {
	xs := *v.extents.Load()
	size := int64(v.info.BlockSize)
	for done := int64(0); done < r.Length; done += size {
		lba := uint64((r.Offset + done) >> v.shift)
		b, err := v.pinned(xs, lba)
		if err == nil {
			from := v.zeroes.Mem[:size]
			if b.x != nil {
				from = b.bytes(v.shift)
			}
			err = v.m.give(r, from, done)
			if v.release(b) {
				v.serve()
			}
		}
		if err != nil {
			return v.info.Fail(r.Op, r.Offset+done, mediumKind(err), err)
		}
	}
	return nil
}

// mediumKind is the kind of an error that the map or the memory gave.
func mediumKind(err error) error {
	if errors.Is(err, errEntry) || errors.Is(err, errLost) {
		return blockdev.ErrMedium
	}
	return blockdev.KindOf(err)
}

// pinned finds where logical block lba is, and pins it.
func (v *atomicVolume) pinned(xs []*extent, lba uint64) (b blocks, err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	x, i, _ := lookup(xs, lba, 1)
	return v.pinAt(xs, lba, &x.table[i])
}

// pinAt pins the block that an entry names. A writer may replace it meanwhile: only an entry
// that says the same when the pin is there counts.
func (v *atomicVolume) pinAt(xs []*extent, lba uint64, at *uint64) (blocks, error) {
	for {
		e := atomic.LoadUint64(at)
		b, err := v.place(xs, lba, native(e))
		if err != nil || b.x == nil {
			return b, err
		}
		b.x.pin(b.first)
		if atomic.LoadUint64(at) == e {
			return b, nil
		}
		v.release(b)
	}
}

// write copies a request's data to free blocks and makes them its blocks' content.
func (v *atomicVolume) write(r *blockdev.Request) {
	v.proceed(r, 0, false)
	v.serve()
}

// proceed does so from byte done on, until there are no free blocks: then the request waits.
func (v *atomicVolume) proceed(r *blockdev.Request, done int64, served bool) {
	for done < r.Length {
		b, ok := v.takeOrWait(int((r.Length-done)>>v.shift), r, done, served)
		if !ok {
			return
		}
		mem := b.bytes(v.shift)
		err := v.m.fill(r, mem, done)
		if err != nil {
			v.give(b)
		} else {
			v.persist(mem)
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

// persist makes stores to the mapping durable, where that is done at once.
func (v *atomicVolume) persist(b []byte) {
	if v.kind == onLines {
		v.lines.persist(b)
	}
}

// publish makes b, whose data is in place and durable, the content of the logical blocks from
// lba on; without an extent, zeroes. Each changes by one 8-byte store, and what it replaced
// can be used again when that is durable.
func (v *atomicVolume) publish(lba uint64, b blocks) error {
	for b.n > 0 {
		x, i, n := lookup(*v.extents.Load(), lba, uint64(b.n))
		part := blocks{b.x, b.first, n}
		var err error
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

// publishStep is how many entries are made durable together.
const publishStep = 64

// publishDurable changes entries of the durable map: those of x from i on.
func (v *atomicVolume) publishDurable(x *extent, i int, lba uint64, b blocks) error {
	var old [publishStep]blocks
	for at := 0; at < b.n; at += publishStep {
		n := min(b.n-at, publishStep)
		if err := v.exchange(x.table[i+at:i+at+n], lba+uint64(at), b, at, old[:n]); err != nil {
			return err
		}
		for _, o := range old[:n] {
			if o.x != nil {
				v.retire(o)
			}
		}
	}
	return nil
}

// exchange stores entries for b, from its block at on, makes them durable and tells what the
// ones before named.
func (v *atomicVolume) exchange(table []uint64, lba uint64, b blocks, at int, old []blocks) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	changed := false
	for j := range table {
		old[j] = blocks{}
		if b.x == nil && atomic.LoadUint64(&table[j]) == 0 {
			continue
		}
		e := native(atomic.SwapUint64(&table[j], v.entry(lba+uint64(j), b.number(at+j))))
		old[j], _ = v.place(xs, lba+uint64(j), e) // a damaged one named nothing that is in use
		changed = true
	}
	if changed && v.kind == onLines {
		v.lines.persist(bytesOf(table))
	}
	return nil
}

// unmap has a range read as zeroes.
func (v *atomicVolume) unmap(r *blockdev.Request) {
	const piece = 1 << 20 // keeps the change within an int, and others from waiting for long
	lba, left := uint64(r.Offset>>v.shift), r.Length>>v.shift
	var err error
	for left > 0 && err == nil {
		n := min(left, piece)
		err = v.publish(lba, blocks{n: int(n)})
		lba, left = lba+uint64(n), left-n
		v.mu.Lock()
		begin := v.scarce()
		v.mu.Unlock()
		if begin {
			v.beginReclaim()
		}
	}
	v.serve()
	v.written(r, err)
}
