package aio

import (
	"bytes"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

const (
	testRequests = 8
	testSize     = 4096
)

// rig is a context with a file, and memory for a request of each of its blocks.
type rig struct {
	t      *testing.T
	c      *Context
	fd     uint32
	all    []Request // on the heap, since they are handed to the kernel by a loop
	events []Event
}

func newRig(t *testing.T) *rig {
	t.Helper()
	f, err := directio.OpenFile(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	c, err := Open(32, int(f.Fd()))
	if err != nil {
		t.Skip(err)
	}
	return &rig{t: t, c: c, fd: uint32(f.Fd()), all: make([]Request, testRequests), events: make([]Event, testRequests)}
}

// do reads or writes every block of b, many at a time.
func (r *rig) do(op Op, b []byte) {
	r.t.Helper()
	for i := range r.all {
		r.all[i] = Request{Data: uint64(i + 1), Op: op, FD: r.fd, Offset: int64(i * testSize),
			Addr: uint64(uintptr(unsafe.Pointer(&b[i*testSize]))), Len: testSize}
		if op == OpWrite {
			r.all[i].SetFlags(unix.RWF_DSYNC)
		}
		r.submit(&r.all[i])
	}
	var seen [testRequests + 1]bool
	for got := 0; got < testRequests; {
		k, err := r.c.Wait(r.events)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range r.events[:k] {
			if e.Res != testSize || seen[e.Data] {
				r.t.Fatalf("request %d ends with %d, or twice", e.Data, e.Res)
			}
			seen[e.Data] = true
		}
		got += k
	}
}

// close ends the context. Who waits is told so.
func (r *rig) close() {
	r.t.Helper()
	ended := make(chan error)
	go func() {
		_, err := r.c.Wait(r.events)
		ended <- err
	}()
	r.c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		r.t.Errorf("who waits is told %v", err)
	}
}

func (r *rig) submit(q *Request) {
	r.t.Helper()
	if err := r.c.Submit(q); err != nil {
		r.t.Fatal(err)
	}
}

// TestReadWrite writes and reads back, with one buffer and with several, many at a time.
func TestReadWrite(t *testing.T) {
	r := newRig(t)
	defer r.close()
	mem, back := directio.AlignedBlock(testRequests*testSize), directio.AlignedBlock(testRequests*testSize)
	for i := range mem {
		mem[i] = byte(i / 512)
	}
	r.do(OpWrite, mem)
	r.do(OpRead, back)
	if !bytes.Equal(mem, back) {
		t.Error("what is read isn't what was written")
	}

	clear(back)
	iov := make([]unix.Iovec, 2)
	for i, at := range []int{testSize, 0} {
		iov[i].Base = &back[at]
		iov[i].SetLen(testSize)
	}
	r.all[0] = Request{Op: OpReadv, FD: r.fd, Addr: uint64(uintptr(unsafe.Pointer(&iov[0]))), Len: 2}
	r.submit(&r.all[0])
	if k, err := r.c.Wait(r.events); k != 1 || err != nil || r.events[0].Res != 2*testSize {
		t.Fatalf("%d events, %v, the first %+v", k, err, r.events[0])
	}
	if !bytes.Equal(back[:testSize], mem[testSize:2*testSize]) || !bytes.Equal(back[testSize:2*testSize], mem[:testSize]) {
		t.Error("the vector's buffers are filled in another order")
	}
}

// TestTake: what has completed is there to be taken without waiting, once.
func TestTake(t *testing.T) {
	r := newRig(t)
	defer r.close()
	back := directio.AlignedBlock(testRequests * testSize)
	r.do(OpWrite, back)
	if r.c.Ready() || r.c.Take(r.events) != 0 {
		t.Error("there is an event though nothing is under way")
	}
	r.all[0] = Request{Data: 7, Op: OpRead, FD: r.fd, Addr: uint64(uintptr(unsafe.Pointer(&back[0]))), Len: testSize}
	r.submit(&r.all[0])
	for !r.c.Ready() {
		runtime.Gosched()
	}
	if k := r.c.Take(r.events); k != 1 || r.events[0].Data != 7 || r.events[0].Res != testSize || r.c.Ready() || r.c.Take(r.events) != 0 {
		t.Errorf("%d events, the first %+v", k, r.events[0])
	}
}
