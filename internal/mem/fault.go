package mem

import (
	"errors"
	"runtime/debug"
	"slices"
	"unsafe"
)

// Memory of a volume may be the mapping of a file. Where somebody cuts the file, or its medium
// fails, after a transport was given the memory and before it has sent or filled it, touching
// it raises SIGBUS: no more than a connection shall die of that.

// ErrFault is why memory could not be read or written.
var ErrFault = errors.New("memory faults: the file that is mapped there was cut, or its medium failed")

// Caught is deferred by who touches memory that may fault, with what debug.SetPanicOnFault(true)
// gave. A fault in one of pieces makes *ok false; all other panics go on.
func Caught(ok *bool, former bool, pieces ...[]byte) {
	x := recover()
	debug.SetPanicOnFault(former)
	if x == nil {
		return
	}
	fault, is := x.(interface{ Addr() uintptr })
	if !is || !slices.ContainsFunc(pieces, func(b []byte) bool {
		return fault.Addr()-uintptr(unsafe.Pointer(unsafe.SliceData(b))) < uintptr(len(b))
	}) {
		panic(x)
	}
	*ok = false
}

// Copy is copy; ok is false where dst or src faults.
func Copy(dst, src []byte) (n int, ok bool) {
	ok = true
	defer Caught(&ok, debug.SetPanicOnFault(true), dst, src)
	return copy(dst, src), ok
}
