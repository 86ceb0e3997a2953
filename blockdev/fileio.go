package blockdev

import (
	"errors"
	"sync/atomic"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// bounceSize is how much of a misaligned request is copied and transferred at once.
const bounceSize = 256 << 10

// now answers a request that the page cache can answer without waiting. It returns false
// where a worker must go on from r.done.
func (v *file) now(r *Request) bool {
	if v.direct {
		return false
	}
	var no *atomic.Bool
	switch {
	case r.Op == OpRead:
		no = &v.noNowRead
	case r.Op == OpWrite && !r.FUA:
		no = &v.noNowWrite
	default:
		return false
	}
	if no.Load() {
		return false
	}
	var iov nowIovecs
	for r.done < r.Length {
		k := fillIovecs(iov[:], r.Bufs, r.done)
		n, err := vectored(r.Op, v.fd, iov[:k], r.Offset+r.done, unix.RWF_NOWAIT)
		if errors.Is(err, unix.EOPNOTSUPP) {
			no.Store(true)
		}
		if err != nil {
			return false // a worker meets the error again, if it is one
		}
		r.done += n
	}
	return true
}

// transfer reads or writes from r.done on, and returns when all is done.
func (v *file) transfer(w *scratch, r *Request) error {
	flags, sync := 0, false
	if r.Op == OpWrite && r.FUA {
		if sync = v.noDsync.Load(); !sync {
			flags = unix.RWF_DSYNC
		}
	}
	bounce := v.direct && !aligned(r.Bufs, v.align.mem, v.align.unit)
	for r.done < r.Length {
		var n int64
		var err error
		if bounce {
			n, err = v.bounced(w, r, flags)
		} else {
			k := fillIovecs(w.iov[:], r.Bufs, r.done)
			n, err = vectored(r.Op, v.fd, w.iov[:k], r.Offset+r.done, flags)
		}
		if flags != 0 && errors.Is(err, unix.EOPNOTSUPP) {
			v.noDsync.Store(true)
			flags, sync = 0, true
			continue
		}
		if err != nil {
			return err
		}
		r.done += n
	}
	if sync {
		return v.sync()
	}
	return nil
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
	n, err := vectored(r.Op, v.fd, w.iov[:1], r.Offset+r.done, flags)
	if err == nil && r.Op == OpRead {
		r.CopyIn(b[:n], r.done)
	}
	return n, err
}

func (v *file) sync() error {
	return retry(func() error { return unix.Fdatasync(v.fd) })
}
