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

// TestReadWrite writes and reads back, with one buffer and with several, many at a time.
func TestReadWrite(t *testing.T) {
	f, err := directio.OpenFile(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	c, err := Open(32, int(f.Fd()))
	if err != nil {
		t.Skip(err)
	}
	const n, size = 8, 4096
	mem, back := directio.AlignedBlock(n*size), directio.AlignedBlock(n*size)
	for i := range mem {
		mem[i] = byte(i / 512)
	}
	all := make([]Request, n) // on the heap, since they are handed to the kernel by the loop below
	events := make([]Event, n)
	do := func(op Op, b []byte) {
		t.Helper()
		for i := range all {
			all[i] = Request{Data: uint64(i + 1), Op: op, FD: uint32(f.Fd()), Offset: int64(i * size),
				Addr: uint64(uintptr(unsafe.Pointer(&b[i*size]))), Len: size}
			if op == OpWrite {
				all[i].SetFlags(unix.RWF_DSYNC)
			}
			if err := c.Submit(&all[i]); err != nil {
				t.Fatal(err)
			}
		}
		var seen [n + 1]bool
		for got := 0; got < n; {
			k, err := c.Wait(events)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events[:k] {
				if e.Res != size || seen[e.Data] {
					t.Fatalf("request %d ends with %d, or twice", e.Data, e.Res)
				}
				seen[e.Data] = true
			}
			got += k
		}
	}
	do(OpWrite, mem)
	do(OpRead, back)
	if !bytes.Equal(mem, back) {
		t.Error("what is read isn't what was written")
	}

	clear(back)
	iov := make([]unix.Iovec, 2)
	for i, at := range []int{size, 0} {
		iov[i].Base = &back[at]
		iov[i].SetLen(size)
	}
	all[0] = Request{Op: OpReadv, FD: uint32(f.Fd()), Addr: uint64(uintptr(unsafe.Pointer(&iov[0]))), Len: 2}
	if err := c.Submit(&all[0]); err != nil {
		t.Fatal(err)
	}
	if k, err := c.Wait(events); k != 1 || err != nil || events[0].Res != 2*size {
		t.Fatalf("%d events, %v, the first %+v", k, err, events[0])
	}
	if !bytes.Equal(back[:size], mem[size:2*size]) || !bytes.Equal(back[size:2*size], mem[:size]) {
		t.Error("the vector's buffers are filled in another order")
	}

	if c.Ready() || c.Take(events) != 0 {
		t.Error("there is an event though nothing is under way")
	}
	all[0] = Request{Data: 7, Op: OpRead, FD: uint32(f.Fd()), Addr: uint64(uintptr(unsafe.Pointer(&back[0]))), Len: size}
	if err := c.Submit(&all[0]); err != nil {
		t.Fatal(err)
	}
	for !c.Ready() {
		runtime.Gosched()
	}
	if k := c.Take(events); k != 1 || events[0].Data != 7 || events[0].Res != size || c.Ready() || c.Take(events) != 0 {
		t.Errorf("%d events, the first %+v", k, events[0])
	}

	ended := make(chan error)
	go func() {
		_, err := c.Wait(events)
		ended <- err
	}()
	c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("who waits is told %v", err)
	}
}
