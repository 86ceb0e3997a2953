package persist

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// errFault is that a page of the mapping couldn't be accessed.
var errFault = errors.New("the memory faults")

// The reasons.
var (
	errNoPage = fmt.Errorf("%w: the medium failed, or the file was cut", errFault)
	// errFull is the commonest on a sparse file.
	errFull = fmt.Errorf("%w: %w", errFault, unix.ENOSPC)
	// errQuota is the same for a file whose owner, or project, has a quota.
	errQuota = fmt.Errorf("%w: %w", errFault, unix.EDQUOT)
	// errFrozen is a write to a page that was clean when the file system became read-only, as it does when it finds an
	// error in itself.
	errFrozen = fmt.Errorf("%w: %w", errFault, unix.EROFS)
)

// Touching memory of a mapping may raise SIGBUS. The functions here touch it with faults turned into panics, and those
// into errors.

// fill copies the data of r, from byte skip on, into b, which lies in the mapping.
func (m *mapping) fill(r *blockdev.Request, b []byte, skip int64) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	r.CopyOut(b, skip)
	return nil
}

// store is fill, but the data is durable when it returns.
func (m *mapping) store(r *blockdev.Request, b []byte, skip int64, lines *lineFlusher) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	for _, from := range r.Bufs {
		if skip >= int64(len(from)) {
			skip -= int64(len(from))
			continue
		}
		n := min(len(b), len(from)-int(skip))
		lines.store(b[:n], from[skip:][:n])
		if b = b[n:]; len(b) == 0 {
			break
		}
		skip = 0
	}
	lines.fence()
	return nil
}

// give copies b, which lies in the mapping, into the buffers of r from byte skip on.
func (m *mapping) give(r *blockdev.Request, b []byte, skip int64) (err error) {
	defer m.caughtReading(&err, debug.SetPanicOnFault(true))
	r.CopyIn(b, skip)
	return nil
}

// put copies bytes to b, which lies in the mapping.
func (m *mapping) put(b, from []byte) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	copy(b, from)
	return nil
}

// get copies to b from memory that lies in the mapping.
func (m *mapping) get(b, from []byte) (err error) {
	defer m.caughtReading(&err, debug.SetPanicOnFault(true))
	copy(b, from)
	return nil
}

// persist makes what was stored to b, which lies in the mapping, durable: flushing a line of a page counts as reading
// it.
func (m *mapping) persist(b []byte, lines *lineFlusher) (err error) {
	defer m.caughtReading(&err, debug.SetPanicOnFault(true))
	lines.persist(b)
	return nil
}

// zero clears a range.
func (m *mapping) zero(off, n int64) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	clear(m.mem[off : off+n])
	return nil
}

// touch reads from each page of a range.
func (m *mapping) touch(off, n int64) (err error) {
	defer m.caughtReading(&err, debug.SetPanicOnFault(true))
	touch(m.mem[off : off+n])
	return nil
}

// touch reads from each page of b.
func touch(b []byte) {
	var x byte
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for i := 0; i < len(b); i += pageSize - int((at+uintptr(i))&(pageSize-1)) {
		x |= b[i]
	}
	runtime.KeepAlive(x) // or the loads would be optimized away
}

// pageSize is the smallest page size of Linux; a larger page is touched more than once.
const pageSize = 4096

// caught is deferred with the goroutine's former setting. It turns a fault inside the mapping into an error, and lets
// all other panics continue.
func (m *mapping) caught(err *error, former bool) {
	if off, faulted := m.faulted(recover(), former); faulted {
		*err = m.refusal(off)
	}
}

// caughtReading is caught for code that only reads: that needs nothing that the file system may refuse because it is
// full or read-only, except a page on tmpfs.
func (m *mapping) caughtReading(err *error, former bool) {
	off, faulted := m.faulted(recover(), former)
	switch {
	case !faulted:
	case m.ram:
		*err = m.refusal(off)
	default:
		*err = m.failure(off)
	}
}

// faulted reports whether x, which was recovered, is a fault inside the mapping, and at which byte of the file. It lets
// all other panics continue.
func (m *mapping) faulted(x any, former bool) (off int64, faulted bool) {
	debug.SetPanicOnFault(former)
	if x == nil {
		return 0, false
	}
	if fault, ok := x.(interface{ Addr() uintptr }); ok {
		off, faulted = m.where(fault.Addr())
	}
	if !faulted {
		panic(x)
	}
	return off, true
}

// nearlyFull is how many bytes a file system may have left when it refuses a page: XFS needs more than the page takes.
const nearlyFull = 4 << 20

// refusal returns why the file system provided no page to write to at byte off of the file.
func (m *mapping) refusal(off int64) error {
	var fs unix.Statfs_t
	switch {
	case m.file == nil || unix.Fstatfs(int(m.file.Fd()), &fs) != nil:
	case fs.Flags&unix.ST_RDONLY != 0:
		return errFrozen
	case fs.Blocks > 0 && (fs.Bavail == 0 || fs.Bavail < nearlyFull/uint64(fs.Bsize) && m.hole(off)):
		return errFull
	case m.hole(off) && errors.Is(m.allocate(unix.FALLOC_FL_KEEP_SIZE, off&^(pageSize-1), pageSize), unix.EDQUOT):
		return errQuota // a fault doesn't say so, but allocating the page explicitly does
	}
	return m.failure(off)
}

// failure returns why there is no page at byte off of the file, if the file system didn't refuse one. A device that has
// vanished, or can't be reached, reports that to a read that doesn't use the mapping.
func (m *mapping) failure(off int64) error {
	if m.file == nil {
		return errNoPage
	}
	var b [1]byte
	_, err := unix.Pread(int(m.file.Fd()), b[:], off)
	kind := blockdev.KindOf(err)
	if err != nil && (errors.Is(kind, blockdev.ErrGone) || errors.Is(kind, blockdev.ErrUnreachable)) {
		return fmt.Errorf("%w: %w", errNoPage, err)
	}
	return errNoPage
}

// hole reports whether byte off of the file lies in a hole.
func (m *mapping) hole(off int64) bool {
	at, err := unix.Seek(int(m.file.Fd()), off, unix.SEEK_HOLE)
	end, e := m.fileSize()
	return err == nil && e == nil && at == off && off < end
}
