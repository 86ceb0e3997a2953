package blockdev

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// zeroBlock is what is written if the file system can't zero a range itself.
var zeroBlock = sync.OnceValue(func() []byte { return directio.AlignedBlock(bounceSize) })

// fallocate modes.
const (
	punchHole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	zeroRange = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
)

// probeDiscard tries to punch a hole beyond the end of a file, where it does no harm. For a block device it asks the
// queue's limit: a device has no place to try.
func (v *file) probeDiscard() bool {
	if v.device {
		return deviceDiscards(v.locked)
	}
	size := v.size.Load()
	err := v.store.allocate(punchHole, size, int64(v.info.BlockSize))
	if err != nil {
		v.noPunch.Store(true)
	}
	return err == nil
}

// discard frees the space of a range. If that isn't possible it does nothing, as the operation allows.
func (v *file) discard(r *Request) error {
	if !v.info.Discard {
		return nil
	}
	if v.device {
		err := v.store.discard(r.Offset, r.Length)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // see allocate
			return nil
		}
		return err
	}
	_, err := v.allocate(punchHole, r, &v.noPunch)
	return err
}

// writeZeroes zeroes a range: by freeing its space if that is allowed, else by the file system's own means, else by
// writing.
func (v *file) writeZeroes(w *scratch, r *Request) error {
	done := false
	var err error
	if r.MayUnmap {
		done, err = refusable(v.allocate(punchHole, r, &v.noPunch))
	}
	if !done && err == nil {
		done, err = refusable(v.allocate(zeroRange, r, &v.noZeroRange))
	}
	if !done && err == nil {
		err = v.writeZeroBlocks(w, r)
	}
	return err
}

// refusable takes an allocation that the system refuses, as a seccomp profile has it, or for as long as a file is
// immutable, for one that isn't supported: writing may still work, and says itself if it doesn't.
func refusable(done bool, err error) (bool, error) {
	if errors.Is(err, unix.EPERM) {
		return false, nil
	}
	return done, err
}

// allocate calls fallocate for r's range. It returns false if the file system doesn't support the mode, or the system
// has no such call, and records that in no. A block device supports it for whole sectors, which may be larger than
// blocks: it returns false for other ranges.
func (v *file) allocate(mode uint32, r *Request, no *atomic.Bool) (bool, error) {
	if no.Load() {
		return false, nil
	}
	err := v.store.allocate(mode, r.Offset, r.Length)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		no.Store(true)
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return err == nil, err
}

func (v *file) writeZeroBlocks(w *scratch, r *Request) error {
	zero := zeroBlock()
	for r.done < r.Length {
		b := zero[:min(int64(len(zero)), r.Length-r.done)]
		w.iov[0].Base = &b[0]
		w.iov[0].SetLen(len(b))
		n, err := v.store.transfer(OpWrite, w.iov[:1], r.Offset+r.done, 0)
		if err != nil {
			return err
		}
		r.done += n
	}
	return nil
}
