package aio

import (
	"cmp"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// buffers is a ring's table of registered buffers, which are pinned once rather than for each request.
type buffers struct {
	list []buffer // by address
	free []int    // free places of the table; nil if the kernel, before 5.19, has no table
	iov  unix.Iovec
}

// buffer is pinned memory.
type buffer struct {
	mem   []byte
	place int
}

const (
	bufferPlaces = 1024
	maxBuffer    = 1 << 30 // the kernel's limit
)

// makeBuffers makes a table with all places empty.
func (r *Ring) makeBuffers() {
	arg := rsrcRegister{nr: bufferPlaces, flags: rsrcSparse}
	if r.register(registerBuffers2, unsafe.Pointer(&arg), int(unsafe.Sizeof(arg))) != nil {
		return
	}
	for i := range bufferPlaces {
		r.buffers.free = append(r.buffers.free, bufferPlaces-1-i)
	}
}

// Register pins mem for the requests that lie in it, asynchronously, if the system allows that. unregister unpins it,
// and waits for that. It may be called after Close.
func (r *Ring) Register(mem []byte) (unregister func()) {
	if len(mem) == 0 || len(mem) > maxBuffer {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.pin(mem)
	}()
	return func() {
		<-done
		r.unpin(mem)
	}
}

func (r *Ring) pin(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.buffers
	if r.closed || len(b.free) == 0 {
		return
	}
	place := b.free[len(b.free)-1]
	if r.setBuffer(place, mem) != nil {
		return // more than may be pinned
	}
	b.free = b.free[:len(b.free)-1]
	i, _ := slices.BinarySearchFunc(b.list, mem, byAddress)
	b.list = slices.Insert(b.list, i, buffer{mem, place})
}

func (r *Ring) unpin(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.buffers
	i, ok := slices.BinarySearchFunc(b.list, mem, byAddress)
	if r.closed || !ok {
		return
	}
	place := b.list[i].place
	b.list = slices.Delete(b.list, i, i+1)
	_ = r.setBuffer(place, nil) // if there is no memory for that, the next buffer replaces the one in this place
	b.free = append(b.free, place)
}

// setBuffer fills a place of the table, or empties it with nil.
func (r *Ring) setBuffer(place int, mem []byte) error {
	iov := &r.buffers.iov // it must not move
	*iov = unix.Iovec{}
	if len(mem) > 0 {
		iov.Base = &mem[0]
		iov.SetLen(len(mem))
	}
	arg := rsrcUpdate{offset: uint32(place), data: uint64(uintptr(unsafe.Pointer(iov))), nr: 1}
	return r.register(registerBuffersUpdate, unsafe.Pointer(&arg), int(unsafe.Sizeof(arg)))
}

func byAddress(b buffer, mem []byte) int { return cmp.Compare(address(b.mem), address(mem)) }

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// place returns the place of the buffer that holds n bytes at an address.
func (b *buffers) place(at, n uint64) (uint16, bool) {
	i, found := slices.BinarySearchFunc(b.list, at, func(b buffer, at uint64) int { return cmp.Compare(address(b.mem), at) })
	if !found {
		i--
	}
	if i < 0 {
		return 0, false
	}
	h := &b.list[i]
	return uint16(h.place), at+n <= address(h.mem)+uint64(len(h.mem))
}
