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

// errFault is a page of the mapping that couldn't be had.
var errFault = errors.New("the memory faults: the medium failed, or the file was cut")

// errFull is the commonest reason on a sparse file.
var errFull = fmt.Errorf("the memory faults: %w", unix.ENOSPC)

// Touching memory of a mapping may raise SIGBUS. The functions here touch it with faults
// made into panics, and those into errors.

// fill puts the data of r, from byte skip on, into the mapping at off.
func (m *mapping) fill(r *blockdev.Request, off, n int64) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	r.CopyOut(m.mem[off:off+n], off-r.Offset)
	return nil
}

// give puts the mapping's bytes at off into the buffers of r.
func (m *mapping) give(r *blockdev.Request, off, n int64) (err error) {
	defer m.caught(&err, debug.SetPanicOnFault(true))
	r.CopyIn(m.mem[off:off+n], off-r.Offset)
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
	defer m.caught(&err, debug.SetPanicOnFault(true))
	var x byte
	for end := off + n; off < end; off = (off + pageSize) &^ (pageSize - 1) {
		x |= m.mem[off]
	}
	runtime.KeepAlive(x) // or the loads would be for nothing
	return nil
}

// pageSize is the smallest that Linux has; a larger one is touched more than once.
const pageSize = 4096

// caught is deferred with the goroutine's former setting. It makes a fault inside the
// mapping an error, and lets all other panics go on.
func (m *mapping) caught(err *error, former bool) {
	x := recover()
	debug.SetPanicOnFault(former)
	if x == nil {
		return
	}
	fault, ok := x.(interface{ Addr() uintptr })
	from := uintptr(unsafe.Pointer(unsafe.SliceData(m.mem)))
	if !ok || fault.Addr() < from || fault.Addr() >= from+uintptr(len(m.mem)) {
		panic(x)
	}
	*err = errFault
	var fs unix.Statfs_t
	if unix.Fstatfs(int(m.file.Fd()), &fs) == nil && fs.Bavail == 0 && fs.Blocks > 0 {
		*err = errFull
	}
}
