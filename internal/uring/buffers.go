package uring

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MakeBuffers makes a table of n places for registered buffers, all empty. Linux 5.19 is the
// first to have it.
func (r *Ring) MakeBuffers(n int) error {
	arg := rsrcRegister{nr: uint32(n), flags: rsrcSparse}
	if err := r.register(registerBuffers2, unsafe.Pointer(&arg), int(unsafe.Sizeof(arg))); err != nil {
		return fmt.Errorf("io_uring: making a table of buffers: %w", err)
	}
	return nil
}

// SetBuffer registers mem, of at most 1 GiB, as buffer i of the table: it is pinned, and a
// part of it may be the buffer of OpReadFixed and OpWriteFixed. nil empties the place.
func (r *Ring) SetBuffer(i int, mem []byte) error {
	r.iov = unix.Iovec{}
	if len(mem) > 0 {
		r.iov.Base = &mem[0]
		r.iov.SetLen(len(mem))
	}
	arg := rsrcUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(&r.iov))), nr: 1}
	if err := r.register(registerBuffersUpdate, unsafe.Pointer(&arg), int(unsafe.Sizeof(arg))); err != nil {
		return fmt.Errorf("io_uring: registering a buffer of %d bytes: %w", len(mem), err)
	}
	return nil
}
