package mem

import (
	"errors"
	"runtime/debug"
	"slices"
	"unsafe"
)

// Memory of a volume may be the mapping of a file. If the file is truncated, or its medium
// fails, after a transport was given the memory and before it has sent or filled it, accessing
// it raises SIGBUS: that should end no more than a connection.

// ErrFault says that memory could not be read or written.
var ErrFault = errors.New("memory faults: the file that is mapped there was cut, or its medium failed")

// Caught is deferred around accesses to memory that may fault, with the result of
// debug.SetPanicOnFault(true) as former. A fault within one of pieces sets *ok to false; all
// other panics continue.
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

// Copy is copy, except that ok is false if dst or src faults.
func Copy(dst, src []byte) (n int, ok bool) {
	ok = true
	defer Caught(&ok, debug.SetPanicOnFault(true), dst, src)
	return copy(dst, src), ok
}
