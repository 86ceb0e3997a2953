package blockdev

import (
	"errors"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// bounceSize is how much of a misaligned request is copied and transferred at a time.
const bounceSize = 256 << 10

// now answers a read that the page cache can answer without blocking. It returns false if a worker must continue from
// r.done: with a whole block, or from the start if there was a write meanwhile. Writes aren't tried: a write to a
// regular file blocks while the file system is frozen, even with RWF_NOWAIT, and block devices have no write that
// doesn't block.
func (v *file) now(r *Request) bool {
	if v.direct || r.Op != OpRead || v.noNow.Load() {
		return false
	}
	ended := v.ranges.ended(r)
	v.fromCache(r)
	if v.ranges.begun(r) != ended {
		r.done = 0
	}
	r.done &^= int64(v.info.BlockSize - 1)
	return r.done == r.Length
}

// fromCache reads from r.done on what the page cache has.
func (v *file) fromCache(r *Request) {
	var iov nowIovecs
	for r.done < r.Length {
		k := v.fillIovecs(iov[:], r)
		if k == 0 {
			return
		}
		n, err := vectored(OpRead, r.lane.fd, iov[:k], r.Offset+r.done, unix.RWF_NOWAIT)
		if errors.Is(err, unix.EOPNOTSUPP) {
			v.noNow.Store(true)
		}
		if err != nil {
			return // a worker meets the error again, if it is one
		}
		r.done += n
	}
}

// writeFlags returns the flags of a transfer: those that make a write with FUA durable by itself, if the system can do
// that for direct I/O. Through the page cache, where a write-back error is reported to whoever asks first, such a write
// joins the flushes.
func (v *file) writeFlags(r *Request) int {
	if r.Op == OpWrite && r.FUA && v.direct && !v.noDsync.Load() {
		return unix.RWF_DSYNC
	}
	return 0
}

// transfer reads or writes from r.done on, and returns when all is done. durable says that nothing is left to do for
// FUA.
func (v *file) transfer(w *scratch, r *Request) (durable bool, err error) {
	if r.done == 0 {
		v.commits.begin(r) // none of it could be lost before
	}
	flags := v.writeFlags(r)
	defer v.commits.dsyncs.end(flags, v.commits.dsyncs.begin(flags))
	durable = r.Op == OpRead || !r.FUA || flags != 0 && r.done == 0
	bounce := v.misaligned(r)
	for r.done < r.Length {
		n, err := v.transferSome(w, r, flags, bounce)
		if flags != 0 && errors.Is(err, unix.EOPNOTSUPP) {
			v.noDsync.Store(true)
			flags, durable = 0, false
			continue
		}
		if err != nil {
			v.failed(flags, err)
			return false, err
		}
		r.done += n
	}
	return durable, nil
}

// failed is called when a transfer with these flags failed.
func (v *file) failed(flags int, err error) {
	if flags&unix.RWF_DSYNC != 0 {
		v.commits.fail(err)
	}
}

// transferSome transfers a piece of the rest of r.
func (v *file) transferSome(w *scratch, r *Request, flags int, bounce bool) (int64, error) {
	if !bounce {
		if k := v.fillIovecs(w.iov[:], r); k > 0 {
			return v.store.transfer(r.Op, w.iov[:k], r.Offset+r.done, flags)
		}
	}
	return v.bounced(w, r, flags)
}

// misaligned reports whether r's buffers must be copied for direct I/O.
func (v *file) misaligned(r *Request) bool {
	return v.direct && !aligned(r.Bufs, v.align.mem, v.align.unit)
}

// bounced transfers the next piece through the worker's aligned buffer.
func (v *file) bounced(w *scratch, r *Request, flags int) (int64, error) {
	if w.bounce == nil {
		w.bounce = directio.AlignedBlock(bounceSize)
	}
	b := w.bounce[:min(bounceSize, r.Length-r.done)]
	if r.Op == OpWrite {
		r.CopyOut(b, r.done)
	}
	w.iov[0].Base = &b[0]
	w.iov[0].SetLen(len(b))
	n, err := v.store.transfer(r.Op, w.iov[:1], r.Offset+r.done, flags)
	if err == nil && r.Op == OpRead {
		r.CopyIn(b[:n], r.done)
	}
	return n, err
}
