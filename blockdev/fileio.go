package blockdev

import (
	"errors"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// bounceSize is how much of a misaligned request is copied and transferred at once.
const bounceSize = 256 << 10

// now answers a read that the page cache can answer without waiting. It returns false where a
// worker must go on from r.done, which may be the end. Writes aren't tried: one to a regular file
// waits where the file system is frozen, RWF_NOWAIT or not, and block devices know none that doesn't.
func (v *file) now(r *Request) bool {
	if v.kernel == nil || r.Op != OpRead || v.noNow.Load() {
		return false
	}
	var iov nowIovecs
	for r.done < r.Length {
		k := v.fillIovecs(iov[:], r)
		if k == 0 {
			return false
		}
		n, err := vectored(OpRead, r.lane.fd, iov[:k], r.Offset+r.done, unix.RWF_NOWAIT)
		if errors.Is(err, unix.EOPNOTSUPP) {
			v.noNow.Store(true)
		}
		if err != nil {
			return false // a worker meets the error again, if it is one
		}
		r.done += n
	}
	return true
}

// writeFlags are the flags of a transfer: those that make a write with FUA durable by itself,
// where the system can do that for direct I/O. Through the page cache, where an error of the
// write-back is told to whoever asks first, such a write joins the flushes.
func (v *file) writeFlags(r *Request) int {
	if r.Op == OpWrite && r.FUA && v.direct && !v.noDsync.Load() {
		return unix.RWF_DSYNC
	}
	return 0
}

// transfer reads or writes from r.done on, and returns when all is done. durable says that
// nothing is left to do for FUA.
func (v *file) transfer(w *scratch, r *Request) (durable bool, err error) {
	if r.done == 0 {
		v.commits.begin(r) // nothing of it could be lost until now
	}
	flags := v.writeFlags(r)
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

// failed is told of a transfer with flags that failed.
func (v *file) failed(flags int, err error) {
	if flags&unix.RWF_DSYNC != 0 {
		v.commits.fail(err)
	}
}

// transferSome transfers a piece of what is left of r.
func (v *file) transferSome(w *scratch, r *Request, flags int, bounce bool) (int64, error) {
	if !bounce {
		if k := v.fillIovecs(w.iov[:], r); k > 0 {
			return v.store.transfer(r.Op, w.iov[:k], r.Offset+r.done, flags)
		}
	}
	return v.bounced(w, r, flags)
}

// misaligned tells whether r's buffers must be copied for direct I/O.
func (v *file) misaligned(r *Request) bool {
	return v.direct && !aligned(r.Bufs, v.align.mem, v.align.unit)
}

// bounced transfers the next piece by way of the worker's aligned buffer.
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
