package persist

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// atomicVolume writes out of place. A write's data goes to free blocks and is made durable; then one 8-byte map entry
// per block, made durable too, makes it the block's content. The old block becomes free when no view shows it any more.
//
// If lines can't be flushed (see guarantee), requests use a working map, and a checkpoint copies its changes to the
// durable map.
type atomicVolume struct {
	info  blockdev.Info
	shift uint
	salt  uint64
	kind  guarantee
	m     *mapping
	lines *lineFlusher       // onLines
	sync  func([]byte) error // onSync: makes memory of the mapping durable

	zeroes  *blockdev.Region // shown for blocks that were never written
	extents atomic.Pointer[[]*extent]
	size    atomic.Int64
	failed  atomic.Pointer[error] // why nothing can be written any more

	life    *blockdev.Lifetime
	pool    *blockdev.Pool[struct{}]
	flushes *blockdev.FlushGroup
	reclaim blockdev.Request // a checkpoint that no request asked for

	growing  sync.Mutex // only one at a time may change the superblock
	watchers blockdev.SizeWatchers

	mu         sync.Mutex
	super      superblock  // protected by growing once the volume is open
	free       int         // blocks that are not in use
	low        int         // with no more free blocks than this a checkpoint begins
	dirty      int         // entries of the working map that changed since the last checkpoint began
	aging      *time.Timer // fires when the first of them is old
	reclaiming bool
	waiting    waiters

	changes []change // the running checkpoint's
	slots   slots
}

// guarantee says what makes a store to the mapping durable.
type guarantee uint8

const (
	onLines guarantee = iota // flushing its cache lines
	onSync                   // msync
	onRAM                    // nothing: tmpfs, hugetlbfs
)

// longRange is the number of blocks from which a range is unmapped on the pool.
const longRange = 1 << 16

// newAtomic returns the volume of a mapping whose superblock has been read and checked. It doesn't look at the maps;
// see recover.
func newAtomic(m *mapping, s *superblock, path string, readOnly bool, lines *lineFlusher) (*atomicVolume, error) {
	v := &atomicVolume{
		info: blockdev.Info{
			Kind: "pmem", Path: path, BlockSize: s.blockSize, PhysBlock: s.blockSize, Align: 1,
			ReadOnly: readOnly, AtomicBlocks: 1, Discard: !readOnly, ZeroAfterDiscard: !readOnly, LoanUnit: s.blockSize,
		},
		shift: uint(bits.TrailingZeros(uint(s.blockSize))),
		salt:  s.salt(),
		m:     m,
		super: *s,
		sync:  syncBytes,
		life:  blockdev.NewLifetime(),
	}
	switch {
	case m.dax && lines != nil:
		v.kind, v.lines = onLines, lines
	case m.ram && !m.dax:
		v.kind = onRAM
	default:
		v.kind = onSync
	}
	v.info.Mode = v.describe()
	v.info.VolatileCache = v.kind == onSync && !readOnly
	v.aging = time.AfterFunc(settleAfter, v.aged)
	v.aging.Stop()
	zeroes, err := unix.Mmap(-1, 0, zeroesSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	v.zeroes = &blockdev.Region{Mem: zeroes}
	v.flushes = blockdev.NewFlushGroup(v.checkpoint, v.finish)
	v.pool = blockdev.NewPool(poolSize, func(_ *struct{}, r *blockdev.Request) { v.run(r) })
	v.reclaim.Op = blockdev.OpFlush
	v.reclaim.Complete = func(*blockdev.Request) { v.reclaimed() }
	region := &blockdev.Region{Mem: m.mem, Lent: !readOnly, File: true}
	made, err := v.makeExtents(region, 0, s.extents)
	if err != nil {
		return nil, errors.Join(err, v.unmapOwn())
	}
	v.addExtents(made)
	return v, nil
}

// zeroesSize is the size of the zeroes that views of blocks never written share.
const zeroesSize = 2 << 20

// makeExtents makes the extents of a region that begins at byte base of the file.
func (v *atomicVolume) makeExtents(region *blockdev.Region, base uint64, recs []extentRecord) (made []*extent, err error) {
	for _, rec := range recs {
		x, err := newExtent(rec, region, base, v.info.BlockSize, v.kind == onSync)
		if err != nil {
			for _, x := range made {
				err = errors.Join(err, x.close())
			}
			return nil, err
		}
		made = append(made, x)
	}
	return made, nil
}

// addExtents adds extents to the volume.
func (v *atomicVolume) addExtents(made []*extent) {
	var all []*extent
	if old := v.extents.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, made...)
	var blocks uint64
	for _, x := range made {
		blocks += x.rec.blocks
	}
	v.low = fewBlocks(all)
	v.extents.Store(&all)
	v.size.Add(int64(blocks << v.shift))
}

// fewBlocks returns the number of free blocks at which a checkpoint begins: half of the spare ones, so that writes have
// the other half while it runs. If there are more spare blocks than logical ones, writes need no checkpoint until the
// whole volume has changed, and only the excess can be used up.
func fewBlocks(xs []*extent) int {
	var blocks, spare int
	for _, x := range xs {
		blocks += int(x.rec.blocks)
		spare += int(x.rec.dataBlocks - x.rec.blocks)
	}
	if spare > blocks {
		spare -= blocks
	}
	return spare / 2
}

// describe says how the volume is accessed and what that promises.
func (v *atomicVolume) describe() string {
	const whole = ", each block whole or not at all"
	switch v.kind {
	case onLines:
		return "DAX on " + v.m.fs + ", " + v.lines.name + ", out of place: a completed write is durable" + whole
	case onRAM:
		return "mapped file on " + v.m.fs + ", out of place: nothing survives the machine"
	}
	how := "mapped file"
	if v.m.dax {
		how = "DAX"
	}
	return how + " on " + v.m.fs + ", msync, out of place: durable after Flush or FUA" + whole
}

func (v *atomicVolume) Info() blockdev.Info {
	i := v.info
	i.Size = v.size.Load()
	return i
}

func (v *atomicVolume) Submit(r *blockdev.Request) {
	if !v.life.Enter() {
		v.Return(r.TakeLoan())
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	if err := v.check(r); err != nil {
		v.Return(r.TakeLoan())
		v.end(r, err)
		return
	}
	r.Err, r.Private = nil, stageApply
	switch r.Op {
	case blockdev.OpRead:
		v.end(r, v.read(r))
	case blockdev.OpFlush:
		v.flush(r)
	case blockdev.OpWrite:
		if r.Loan != 0 {
			v.commit(r)
		} else {
			v.write(r)
		}
	default:
		if r.Length>>v.shift >= longRange {
			v.pool.Submit(r)
		} else {
			v.unmap(r)
		}
	}
}

// check reports whether r can be tried.
func (v *atomicVolume) check(r *blockdev.Request) error {
	if err := blockdev.Check(&v.info, v.size.Load(), r); err != nil {
		return err
	}
	if failed := v.failed.Load(); failed != nil && r.Op != blockdev.OpRead {
		return v.opError(r, *failed)
	}
	return nil
}

// run does the part of a request that may block.
func (v *atomicVolume) run(r *blockdev.Request) {
	switch {
	case r.Op == blockdev.OpFlush, r.Private == stageSync:
		v.flushes.Run(r)
	default:
		v.unmap(r)
	}
}

func (v *atomicVolume) flush(r *blockdev.Request) {
	if !v.info.VolatileCache {
		v.end(r, nil)
	} else if v.flushes.Lead(r) {
		v.pool.Submit(r)
	}
}

// written ends a write or similar request, or has it made durable first.
func (v *atomicVolume) written(r *blockdev.Request, err error) {
	if err != nil || !r.FUA {
		v.finish(r, err)
		return
	}
	r.Private = stageSync
	v.flush(r)
}

// finish completes a request with a system error, or nil.
func (v *atomicVolume) finish(r *blockdev.Request, err error) {
	if err != nil {
		err = v.opError(r, err)
	}
	if r == &v.reclaim {
		r.End(err)
		return
	}
	v.end(r, err)
}

// opError adds to a system error where it happened.
func (v *atomicVolume) opError(r *blockdev.Request, err error) error {
	var op *blockdev.OpError
	if errors.As(err, &op) {
		return err
	}
	return v.info.Fail(r.Op, r.Offset, v.m.below.KindOf(err), err)
}

func (v *atomicVolume) end(r *blockdev.Request, err error) {
	v.life.Leave()
	r.End(err)
}

// fail makes the volume refuse all further writes: it can't be told what is durable and what isn't.
func (v *atomicVolume) fail(err error) {
	v.failed.CompareAndSwap(nil, &err)
	v.failWaiting()
}

// place decodes the entry of logical block lba: where the block is, or that it reads as zeroes. An error means that its
// place isn't known. The extent is looked for only now, with e at hand: e may name a block of one that was added after
// the caller began.
func (v *atomicVolume) place(lba, e uint64) (blocks, error) {
	if e == 0 {
		return blocks{n: 1}, nil
	}
	p := e & entryMask
	if e>>entryBits == entryCheck(v.salt, lba, p) {
		if x, i := extentOf(*v.extents.Load(), p); x != nil {
			return blocks{x, i, 1}, nil
		}
		if p == lostBlock {
			return blocks{}, errLost
		}
	}
	return blocks{}, errEntry
}

// Why a block can't be read.
var (
	errLost  = errors.New("where the block was is unknown since a repair; write it to use it again")
	errEntry = errors.New("the map's entry is damaged: nvmetgt pmem check --repair")
)

// entry returns the entry of logical block lba for block p, as it is stored in the file.
func (v *atomicVolume) entry(lba, p uint64) uint64 {
	if p == 0 {
		return 0
	}
	return native(p | entryCheck(v.salt, lba, p)<<entryBits)
}

// Close makes everything durable, as for every kind of volume.
func (v *atomicVolume) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	v.pool.Close()
	var err error
	aio.Apart(func() {
		if failed := v.failed.Load(); failed != nil {
			err = *failed
		} else if !v.info.ReadOnly {
			err = v.settle()
		}
		err = errors.Join(err, v.unmapOwn(), v.m.close())
	})
	if err != nil {
		return v.info.Failed("close", v.m.below.KindOf(err), err)
	}
	return nil
}

// settle ends cleanly: the durable map is complete, and no session has more recent entries.
func (v *atomicVolume) settle() error {
	if v.kind == onSync {
		if err := v.checkpoint(); err != nil {
			return err
		}
		return v.setSession(session{})
	}
	return v.m.syncFile()
}

// unmapOwn frees the memory that isn't part of the file.
func (v *atomicVolume) unmapOwn() error {
	v.aging.Stop()
	err := unix.Munmap(v.zeroes.Mem)
	if xs := v.extents.Load(); xs != nil {
		for _, x := range *xs {
			err = errors.Join(err, x.close())
		}
	}
	return err
}
