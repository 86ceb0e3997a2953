package persist

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// volume is a mapping whose blocks are written in place.
type volume struct {
	info   blockdev.Info
	m      *mapping
	lines  *lineFlusher // makes writes durable at once; nil if msync has to
	region [1]*blockdev.Region
	guard  *blockdev.Guard
	life   *blockdev.Lifetime

	pool     *blockdev.Pool[struct{}]
	flushes  *blockdev.FlushGroup
	sync     func([]byte) error    // makes memory of the mapping durable
	syncFile func() error          // makes the file system's record of holes durable
	syncing  sync.Mutex            // one sync at a time, so that all learn of a failed one
	failed   atomic.Pointer[error] // why nothing can be made durable any more
}

const (
	// background is the length from which a range is zeroed on the pool.
	background = 1 << 20
	poolSize   = 8
)

// stage says what a request is on the pool for. It is kept in Request.Private.
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

// run does the part of a request that may block.
func (v *volume) run(r *blockdev.Request) {
	switch {
	case r.Op == blockdev.OpFlush:
		v.flushes.Run(r)
	case r.Op == blockdev.OpDiscard:
		v.discard(r)
	case r.Private == stageSync:
		v.finish(r, v.durably(func() error { return v.syncRequest(r) }))
	default:
		v.write(r)
	}
}

// write applies a write or write zeroes, now or once the views in its range are released.
func (v *volume) write(r *blockdev.Request) {
	if v.guard.Write(r) {
		v.applied(r)
	}
}

// apply does one piece of a request, which has the piece's stripe to itself. Lines are flushed, and the flush is
// fenced, before the stripe is released: the next piece may run on another processor, whose fence would not cover this
// one's stores.
func (v *volume) apply(r *blockdev.Request, off, n int64) {
	if r.Err != nil {
		return // an earlier piece failed
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
			return // the file system doesn't write through this processor's cache lines
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

// unmaps reports whether the range of a write zeroes is deallocated rather than cleared. For small ranges clearing is
// cheaper, and so is the next write to them.
func (v *volume) unmaps(r *blockdev.Request) bool {
	return r.MayUnmap && r.Length >= background && v.info.Discard
}

// applied ends a write, or has it made durable first: with FUA if lines aren't flushed, and if the file system's own
// metadata changed, which flushed lines don't cover.
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

// durably calls a sync. If one fails, the system reports that once and marks the pages as clean, whichever write they
// belong to; so no later sync can vouch for earlier writes.
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

// syncRequest makes r's range durable.
func (v *volume) syncRequest(r *blockdev.Request) error {
	if v.lines != nil {
		return v.syncFile()
	}
	return v.sync(v.m.mem[r.Offset : r.Offset+r.Length])
}

func (v *volume) syncAll() error { return v.sync(v.m.mem) }

// discard punches a hole, also under views: they see zeroes, one page at a time. If completed writes are durable, so
// that nobody flushes, the hole is made durable, too.
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

// finish completes a request with a system error, or nil.
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

// Prefetch fetches the beginning of the range.
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

// Release lets writers continue that waited for the view, and allows the volume to be closed.
func (v *volume) Release(t blockdev.ViewToken) {
	v.guard.Release(t)
	v.life.Leave()
}

// Close makes everything durable, as for every kind of volume.
func (v *volume) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	v.pool.Close()
	var err error
	aio.Apart(func() {
		if !v.info.ReadOnly {
			err = v.durably(func() error { return errors.Join(v.syncAll(), v.m.syncFile()) })
		}
		err = errors.Join(err, v.m.close())
	})
	if err != nil {
		return v.info.Failed("close", v.m.below.KindOf(err), err)
	}
	return nil
}
