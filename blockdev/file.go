package blockdev

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// file is a volume in a regular file or block device.
type file struct {
	info   Info
	size   atomic.Int64
	locked *os.File // of the storage, for its size
	store  storage
	direct bool
	align  alignment // of direct I/O
	device bool      // a block device
	below  Below
	aio    *queueAIO // asynchronous I/O; nil if not used
	ring   *aio.Ring // of aio, if that is io_uring; else nil
	pool   *Pool[scratch]
	writer *writer    // of a regular file through the page cache; else nil
	ranges *rangeLock // if blocks aren't whole without it; else nil
	lanes  *lanes

	// What the file system turned out not to support; not tried again.
	noNow, noDsync, noPunch, noZeroRange atomic.Bool

	commits  commits
	sentry   sentry
	resizeMu sync.Mutex
	watchers SizeWatchers
}

// Workers block in the kernel, one thread each. A device without io_uring doesn't get faster with more requests at once
// than this.
const poolSize = 64

// scratch is what a worker needs for a request.
type scratch struct {
	iov    iovecs
	bounce []byte
}

// OpenFile opens, or creates, the file or block device at path.
func OpenFile(path string, o Options) (v Volume, err error) {
	aio.Apart(func() { v, err = openFile(path, o) })
	return v, err
}

func openFile(path string, o Options) (Volume, error) {
	f, size, undo, err := OpenLocked(path, &o)
	if err != nil {
		return nil, err
	}
	v := &file{locked: f, lanes: newLanes()}
	v.pool = NewPool(poolSize, v.run)
	v.commits.init(func() error { return v.store.sync() }, v.finish)
	if err := v.describe(path, size, &o); err != nil {
		undo()
		return nil, errors.Join(err, v.closeFiles())
	}
	return v, nil
}

// describe fills in info, and chooses direct I/O or the page cache.
func (v *file) describe(path string, size int64, o *Options) error {
	st, err := v.locked.Stat()
	if err != nil {
		return OpenError(path, KindOf(err), err)
	}
	v.below = BelowFile(v.locked)
	block := DefaultBlockSize
	if v.device = st.Mode()&os.ModeDevice != 0; v.device {
		if block, err = unix.IoctlGetInt(int(v.locked.Fd()), unix.BLKSSZGET); err != nil {
			return OpenError(path, KindOf(err), err)
		}
	}
	block = o.BlockSizeOr(block)
	if err := CheckSize(size, block); err != nil {
		return OpenError(path, ErrInvalid, err)
	}
	if err := tryVectored(int(v.locked.Fd()), o.ReadOnly); err != nil {
		remedy := "the system refuses this call, most likely by a seccomp profile: permit it"
		if hugePage(v.locked) > 0 {
			remedy = "a file in huge pages can only be mapped: name it pmem:" + path + ",mode=inplace"
		}
		return OpenError(path, ErrUnsupported, fmt.Errorf("%w; %s", err, remedy))
	}
	v.size.Store(size)
	v.info = Info{
		Kind: "file", Path: path, Size: size,
		BlockSize: block, PhysBlock: physBlock(v.locked, block), Align: 1,
		ReadOnly: o.ReadOnly, VolatileCache: !o.ReadOnly,
	}
	if err := v.choosePath(o); err != nil {
		return err
	}
	if !o.ReadOnly {
		v.info.Discard = v.probeDiscard()
		v.info.ZeroAfterDiscard = v.info.Discard && !v.device
	}
	return nil
}

// physBlock returns the file system's allocation unit, or block if that unit is of no use.
func physBlock(f *os.File, block int) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return block
	}
	n := int(st.Blksize)
	if n < block || n > MaxBlockSize || bits.OnesCount(uint(n)) != 1 {
		return block
	}
	return n
}

func (v *file) Info() Info {
	i := v.info
	i.Size = v.size.Load()
	return i
}

func (v *file) Submit(r *Request) {
	if r.lane = v.lanes.enter(); r.lane == nil {
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	if err := Check(&v.info, v.size.Load(), r); err != nil {
		v.end(r, err)
		return
	}
	r.done = 0
	v.commits.begin(r)
	if r.changes() {
		v.sentry.watch()
	}
	switch {
	case r.Op == OpFlush:
		if v.info.ReadOnly {
			v.end(r, nil)
			return
		}
		if !v.commits.join(r) {
			return
		}
	case r.Length == 0, v.now(r):
		v.end(r, nil)
		return
	}
	v.queue(r)
}

// queue has r done by the kernel's queue, the writer or a worker.
func (v *file) queue(r *Request) {
	switch {
	case v.aio != nil && v.takes(r):
		v.aio.submit(r)
	case v.writer != nil && r.Op == OpWrite:
		v.writer.submit(r)
	default:
		v.pool.Submit(r)
	}
}

// lockRange locks r's range if that is needed. It returns false if r must wait: it is queued again when it has its
// range.
func (v *file) lockRange(r *Request) bool {
	return v.ranges == nil || r.Op == OpFlush || r.done == r.Length || v.ranges.lock(r)
}

// run is the part of Submit that may block.
func (v *file) run(w *scratch, r *Request) {
	if !v.lockRange(r) {
		return
	}
	if r.changes() && !v.stillWanted(r) {
		v.finish(r, ErrUnwanted)
		return
	}
	var err error
	durable := !r.FUA
	switch r.Op {
	case OpRead, OpWrite:
		durable, err = v.transfer(w, r)
	case OpFlush:
		v.commits.run(r)
		return
	case OpDiscard:
		durable, err = true, v.discard(r)
	case OpWriteZeroes:
		err = v.writeZeroes(w, r)
	}
	v.ranges.unlock(r)
	if err == nil && durable && r.writes() {
		if durable = v.commits.answers(r); durable {
			defer v.commits.answered()
		}
	}
	if err != nil || durable {
		err = v.explain(r, err)
		r.lane.Leave()
		v.pool.End(r, err)
	} else {
		v.commit(r)
	}
}

// stillWanted reports whether r, which changes the volume, is to be done, after a pause if that can't be known yet.
func (v *file) stillWanted(r *Request) bool {
	time.Sleep(v.sentry.pause()) //nolint:forbidigo // what is waited for may not come
	return !r.unwanted()
}

// commit makes r durable, whose data the system has accepted, or fails it if a sync has failed meanwhile.
func (v *file) commit(r *Request) {
	if v.commits.join(r) {
		v.commits.run(r)
	}
}

// finish completes a request with a system error, or nil.
func (v *file) finish(r *Request, err error) { v.finishIn(nil, r, err) }

// finishIn is finish for a request of a row.
func (v *file) finishIn(row *Row, r *Request, err error) {
	v.ranges.unlock(r)
	err = v.explain(r, err)
	r.lane.Leave()
	r.EndIn(row, err)
}

// explain turns a system error into an OpError.
func (v *file) explain(r *Request, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrUnwanted) {
		return v.info.Fail(r.Op, r.Offset, ErrUnwanted, nil)
	}
	if errors.Is(err, unix.EFBIG) {
		err = fmt.Errorf("%w: %s", err, TooLargeRemedy())
	}
	at := r.Offset + r.done
	if r.done == r.Length {
		at = r.Offset // all was accepted, and any of it may be lost
	}
	return v.info.Fail(r.Op, at, v.below.KindOf(err), err)
}

func (v *file) end(r *Request, err error) {
	r.lane.Leave()
	r.End(err)
}

func (v *file) OnResize(f func(newSize int64)) (stop func()) { return v.watchers.Add(f) }

// Refresh adopts a new size, rounded down to whole blocks; the rest stays unused. It returns an error if the file
// couldn't be opened again.
func (v *file) Refresh() (err error) {
	n := v.lanes.enter()
	if n == nil {
		return v.info.Closed("refresh")
	}
	defer n.Leave()
	aio.Apart(func() { err = v.refresh() }) // a device may zero a large range first, and a server may not answer
	return err
}

func (v *file) refresh() error {
	v.resizeMu.Lock()
	defer v.resizeMu.Unlock()
	size, err := deviceSize(v.locked)
	if err != nil {
		return v.info.Failed("refresh", v.below.KindOf(err), err)
	}
	whole := size - size%int64(v.info.BlockSize)
	if v.size.Swap(whole) != whole {
		v.watchers.Tell(whole)
	}
	if err = CheckSize(size, v.info.BlockSize); err != nil {
		err = v.info.Failed("refresh", ErrInvalid, err)
	}
	return CheckName(v.locked, &v.info, err)
}

func (v *file) Close() error {
	if !v.lanes.close() {
		return v.info.Closed("close")
	}
	if v.aio != nil {
		v.aio.close()
	}
	if v.writer != nil {
		v.writer.close()
	}
	v.pool.Close()
	var err error
	aio.Apart(func() {
		if !v.info.ReadOnly {
			err = v.commits.end(v.store.sync)
		}
		err = errors.Join(err, v.closeFiles())
	})
	if err != nil {
		return v.info.Failed("close", v.below.KindOf(err), err)
	}
	return nil
}

func (v *file) closeFiles() error {
	if v.store == nil {
		return v.locked.Close()
	}
	return errors.Join(v.lanes.closeFiles(), v.store.close())
}
