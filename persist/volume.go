package persist

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// volume is a mapping whose blocks are written in place.
type volume struct {
	info   blockdev.Info
	m      *mapping
	lines  *lineFlusher // makes writes durable at once; nil where msync must
	region [1]*blockdev.Region
	guard  *blockdev.Guard
	life   *blockdev.Lifetime

	pool     *blockdev.Pool[struct{}]
	flushes  blockdev.FlushGroup
	sync     func([]byte) error    // makes memory of the mapping durable
	syncFile func() error          // makes durable what the file system has recorded of holes
	syncing  sync.Mutex            // one sync at a time, so that all know of one that failed
	failed   atomic.Pointer[error] // why nothing is made durable any more
}

const (
	// background is the length from which a range is zeroed on the pool.
	background = 1 << 20
	poolSize   = 8
)

// stage is what a request on the pool is there for. It lies in Request.Private.
type stage uint8

const (
	stageApply stage = iota
	stageSync
)

func (v *volume) Info() blockdev.Info { return v.info }

func (v *volume) Submit(r *blockdev.Request) {
	if !v.life.Enter() {
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	if err := blockdev.Check(&v.info, v.info.Size, r); err != nil {
		v.end(r, err)
		return
	}
	if failed := v.failed.Load(); failed != nil && r.Op != blockdev.OpRead {
		v.finish(r, *failed)
		return
	}
	r.Err, r.Private = nil, stageApply
	switch r.Op {
	case blockdev.OpRead:
		v.guard.Read(r)
		v.end(r, r.Err)
	case blockdev.OpFlush:
		if !v.info.VolatileCache {
			v.end(r, nil)
		} else if v.flushes.Lead(r) {
			v.pool.Submit(r)
		}
	case blockdev.OpDiscard:
		v.pool.Submit(r)
	case blockdev.OpWriteZeroes:
		if r.Length >= background {
			v.pool.Submit(r)
			return
		}
		fallthrough
	default:
		v.write(r)
	}
}

// run is what a request needs that may block.
func (v *volume) run(r *blockdev.Request) {
	switch {
	case r.Op == blockdev.OpFlush:
		v.flushes.Run(r, func() error { return v.durably(v.syncAll) }, v.finish)
	case r.Op == blockdev.OpDiscard:
		v.discard(r)
	case r.Private == stageSync:
		v.finish(r, v.durably(func() error { return v.syncRequest(r) }))
	default:
		v.write(r)
	}
}

// write applies a write or write zeroes, now or when the views in its range are released.
func (v *volume) write(r *blockdev.Request) {
	if v.guard.Write(r) {
		v.applied(r)
	}
}

// apply is one piece of a request, alone with it in its stripe. Lines are flushed, and the
// flush is fenced, before the stripe is left: the next piece may run on another processor,
// whose fence would not cover this one's.
func (v *volume) apply(r *blockdev.Request, off, n int64) {
	if r.Err != nil {
		return // a piece before this failed
	}
	var err error
	switch {
	case r.Op == blockdev.OpRead:
		if err = v.m.give(r, v.m.mem[off:off+n], off-r.Offset); err == nil {
			return
		}
	case r.Op == blockdev.OpWrite && v.lines != nil:
		if err = v.m.store(r, v.m.mem[off:off+n], off-r.Offset, v.lines); err == nil {
			return
		}
	case r.Op == blockdev.OpWrite:
		err = v.m.fill(r, v.m.mem[off:off+n], off-r.Offset)
	case v.unmaps(r):
		if err = v.m.punch(off, n); err == nil {
			return // the file system writes no lines of this processor
		}
	default:
		err = v.m.zero(off, n)
	}
	if err == nil && v.lines != nil {
		err = v.m.persist(v.m.mem[off:off+n], v.lines)
	}
	if err != nil {
		r.Err = v.info.Fail(r.Op, off, v.m.below.KindOf(err), err)
	}
}

// unmaps tells whether the range of a write zeroes is given back rather than cleared. For
// small ranges clearing is cheaper, and so is the write that follows.
func (v *volume) unmaps(r *blockdev.Request) bool {
	return r.MayUnmap && r.Length >= background && v.info.Discard
}

// applied ends a write, or has it made durable first: with FUA where lines aren't, and where
// the file system's own records changed, which flushed lines don't cover.
func (v *volume) applied(r *blockdev.Request) {
	needs := r.FUA && v.info.VolatileCache ||
		r.Op == blockdev.OpWriteZeroes && v.unmaps(r) && v.lines != nil
	if r.Err != nil || !needs || r.Length == 0 {
		v.end(r, r.Err)
		return
	}
	r.Private = stageSync
	v.pool.Submit(r)
}

// durably calls a sync. Where one fails, the system tells of it once and takes the pages for clean,
// whosever they were; so no later one can vouch for what was written before.
func (v *volume) durably(sync func() error) error {
	v.syncing.Lock()
	defer v.syncing.Unlock()
	if failed := v.failed.Load(); failed != nil {
		return *failed
	}
	err := sync()
	if err != nil {
		failed := err
		v.failed.Store(&failed)
	}
	return err
}

// syncRequest makes the range of r durable.
func (v *volume) syncRequest(r *blockdev.Request) error {
	if v.lines != nil {
		return v.syncFile()
	}
	return v.sync(v.m.mem[r.Offset : r.Offset+r.Length])
}

func (v *volume) syncAll() error { return v.sync(v.m.mem) }

// discard punches a hole, under views too: they see zeroes, a page at a time. Where nobody flushes, as a completed write
// is durable, the hole is so, too.
func (v *volume) discard(r *blockdev.Request) {
	var err error
	if v.info.Discard {
		err = v.guard.Exclude(r.Offset, r.Length, v.m.punch)
		if err == nil && v.lines != nil {
			err = v.durably(v.syncFile)
		}
	}
	v.finish(r, err)
}

// finish completes a request with an error of the system, or none.
func (v *volume) finish(r *blockdev.Request, err error) {
	if err != nil {
		err = v.info.Fail(r.Op, r.Offset, v.m.below.KindOf(err), err)
	}
	v.end(r, err)
}

func (v *volume) end(r *blockdev.Request, err error) {
	v.life.Leave()
	r.End(err)
}

func (v *volume) Regions() []*blockdev.Region { return v.region[:] }

// Prefetch fetches where the range begins.
func (v *volume) Prefetch(op blockdev.Op, offset, length int64) {
	if !v.life.Enter() {
		return
	}
	if blockdev.CheckRange(&v.info, v.info.Size, op, offset, length) == nil {
		prefetch.Start(v.m.mem[offset : offset+length])
	}
	v.life.Leave()
}

func (v *volume) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(blockdev.OpRead, offset)
	}
	if err := blockdev.CheckRange(&v.info, v.info.Size, blockdev.OpRead, offset, length); err != nil {
		v.life.Leave()
		return segs, 0, err
	}
	t, ok := v.guard.View(offset, length)
	if !ok {
		v.life.Leave()
		return segs, 0, blockdev.ErrView
	}
	if err := v.m.touch(offset, length); err != nil {
		v.Release(t)
		return segs, 0, v.info.Fail(blockdev.OpRead, offset, v.m.below.KindOf(err), err)
	}
	return append(segs, blockdev.Segment{
		Region: v.region[0],
		Bytes:  v.m.mem[offset : offset+length : offset+length],
	}), t, nil
}

// Release lets the writers go on that waited for the view, and the volume be closed.
func (v *volume) Release(t blockdev.ViewToken) {
	v.guard.Release(t)
	v.life.Leave()
}

// Close makes everything durable, as every kind does.
func (v *volume) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	v.pool.Close()
	var err error
	if !v.info.ReadOnly {
		err = v.durably(func() error { return errors.Join(v.syncAll(), v.m.syncFile()) })
	}
	if err = errors.Join(err, v.m.close()); err != nil {
		return v.info.Failed("close", err)
	}
	return nil
}
