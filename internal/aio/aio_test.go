package aio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// queue is what a Context and a Ring have in common.
type queue interface {
	Submit(Request) error
	Wait([]Event) int
	Ready() bool
	Take([]Event) int
	Close()
}

// each runs a test with a context and with a ring, each for 32 requests to a file of its own.
func each(t *testing.T, test func(*testing.T, queue, *os.File)) {
	for name, open := range map[string]func(n, fd int) (queue, error){
		"io_submit": func(n, fd int) (queue, error) { return OpenContext(n, fd) },
		"io_uring":  func(n, fd int) (queue, error) { return OpenRing(n, fd) },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := directio.OpenFile(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT, 0o600)
			if err != nil {
				t.Skip(err)
			}
			defer f.Close()
			q, err := open(32, int(f.Fd()))
			if err != nil {
				lacking(t, err)
			}
			test(t, q, f)
		})
	}
}

// lacking skips a test if a system call's error says that the system lacks or forbids something.
func lacking(t *testing.T, err error) {
	t.Helper()
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, errno) {
			t.Skip(err)
		}
	}
	t.Fatal(err)
}

// shut closes a queue while a goroutine waits. After that nothing of it is left in the kernel.
func shut(t *testing.T, q queue) {
	t.Helper()
	ended := make(chan int)
	go func() { ended <- q.Wait(make([]Event, 4)) }()
	q.Close()
	if n := <-ended; n != 0 {
		t.Errorf("who waits gets %d events", n)
	}
	switch q := q.(type) {
	case *Context:
		if _, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, q.id, 0, 0); errno != unix.EINVAL {
			t.Errorf("the context is left: ending it says %v", errno)
		}
	case *Ring:
		if _, err := unix.FcntlInt(uintptr(q.fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("the ring is left: %v", err)
		}
		noRing(t)
	}
}

// transfer returns a request for a buffer.
func transfer(op Op, data uint64, b []byte, off int64) Request {
	return Request{Data: data, Op: op, Offset: off, Addr: address(b), Len: uint64(len(b))}
}

// do submits a request, and waits for its result.
func do(t *testing.T, q queue, r Request) int64 {
	t.Helper()
	if err := q.Submit(r); err != nil {
		t.Fatal(err)
	}
	res, ok := gather(t, q, 1)[r.Data]
	if !ok {
		t.Fatalf("another request than %d ends", r.Data)
	}
	return res
}

const blockSize = 4096

// TestReadWrite writes and reads back, many at a time.
func TestReadWrite(t *testing.T) {
	each(t, func(t *testing.T, q queue, _ *os.File) {
		const n = 8
		mem, back := directio.AlignedBlock(n*blockSize), directio.AlignedBlock(n*blockSize)
		for i := range mem {
			mem[i] = byte(i / 512)
		}
		all := func(op Op, b []byte) {
			for i := range n {
				r := transfer(op, uint64(i+1), b[i*blockSize:][:blockSize], int64(i*blockSize))
				if op == OpWrite {
					r.SetFlags(unix.RWF_DSYNC)
				}
				if err := q.Submit(r); err != nil {
					t.Fatal(err)
				}
			}
			for data, res := range gather(t, q, n) {
				if data < 1 || data > n || res != blockSize {
					t.Fatalf("request %d ends with %d", data, res)
				}
			}
		}
		all(OpWrite, mem)
		all(OpRead, back)
		if !bytes.Equal(mem, back) {
			t.Error("what is read isn't what was written")
		}
		if res := do(t, q, transfer(OpRead, 12, back[:blockSize], 1<<20)); res != 0 {
			t.Errorf("a read behind the end ends with %d", res)
		}
		shut(t, q)
	})
}

// TestFlags: the flags of a request reach the system, which refuses one that it doesn't know: without RWF_DSYNC what
// is reported as durable isn't.
func TestFlags(t *testing.T) {
	each(t, func(t *testing.T, q queue, _ *os.File) {
		r := transfer(OpWrite, 3, directio.AlignedBlock(blockSize), 0)
		r.SetFlags(1 << 30)
		err := q.Submit(r)
		if err == nil {
			if res := gather(t, q, 1)[3]; res < 0 {
				err = unix.Errno(-res)
			}
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("a flag that no system has: %v", err)
		}
		r.SetFlags(0)
		if res := do(t, q, r); res != blockSize {
			t.Errorf("the next write ends with %d", res)
		}
		shut(t, q)
	})
}

// TestVectors writes from two buffers, and reads into them in the opposite order.
func TestVectors(t *testing.T) {
	each(t, func(t *testing.T, q queue, _ *os.File) {
		b := directio.AlignedBlock(2 * blockSize)
		one, two := b[:blockSize], b[blockSize:]
		one[0], two[0] = 1, 2
		iov := []unix.Iovec{{Base: &one[0]}, {Base: &two[0]}}
		var pinned runtime.Pinner // otherwise it is on this goroutine's stack, which moves
		pinned.Pin(&iov[0])
		defer pinned.Unpin()
		for i := range iov {
			iov[i].SetLen(blockSize)
		}
		r := Request{Data: 1, Op: OpWritev, Addr: uint64(uintptr(unsafe.Pointer(&iov[0]))), Len: 2}
		if res := do(t, q, r); res != 2*blockSize {
			t.Fatalf("a write ends with %d", res)
		}
		iov[0].Base, iov[1].Base = iov[1].Base, iov[0].Base
		r.Op = OpReadv
		if res := do(t, q, r); res != 2*blockSize {
			t.Fatalf("a read ends with %d", res)
		}
		if one[0] != 2 || two[0] != 1 {
			t.Errorf("the buffers begin with %d and %d, want 2 and 1", one[0], two[0])
		}
		shut(t, q)
	})
}

// gather waits for n events.
func gather(t *testing.T, q queue, n int) map[uint64]int64 {
	t.Helper()
	events := make([]Event, n)
	got := map[uint64]int64{}
	for len(got) < n {
		k := q.Wait(events)
		if k == 0 {
			t.Fatal("the queue is closed")
		}
		for _, e := range events[:k] {
			if _, twice := got[e.Data]; twice {
				t.Fatalf("request %d ends twice", e.Data)
			}
			got[e.Data] = e.Res
		}
	}
	return got
}

// TestTake takes finished requests without waiting.
func TestTake(t *testing.T) {
	each(t, func(t *testing.T, q queue, f *os.File) {
		b := directio.AlignedBlock(blockSize)
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		events := make([]Event, 4)
		for range 1000 {
			if q.Ready() || q.Take(events) != 0 {
				t.Fatal("there is an event though nothing is under way")
			}
			if err := q.Submit(transfer(OpRead, 7, b, 0)); err != nil {
				t.Fatal(err)
			}
			for !q.Ready() {
				time.Sleep(10 * time.Microsecond)
			}
			if k := q.Take(events); k != 1 || events[0].Data != 7 || events[0].Res != int64(len(b)) || q.Ready() || q.Take(events) != 0 {
				t.Fatalf("%d events, the first %+v", k, events[0])
			}
		}
		shut(t, q)
	})
}

// crowd is several goroutines that submit to a queue while two take finished requests.
type crowd struct {
	q    queue
	done [8]chan Event // of each that submits
}

// give passes events to the goroutines whose requests they were.
func (c *crowd) give(events []Event) {
	for _, e := range events {
		c.done[e.Data] <- e
	}
}

// look takes without waiting until stop.
func (c *crowd) look(stop *atomic.Bool) {
	events := make([]Event, 4)
	for !stop.Load() {
		if c.q.Ready() {
			c.give(events[:c.q.Take(events)])
		} else {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// wait takes until the queue is closed.
func (c *crowd) wait() {
	events := make([]Event, 4)
	for n := c.q.Wait(events); n > 0; n = c.q.Wait(events) {
		c.give(events[:n])
	}
}

// read submits one request after another.
func (c *crowd) read(i, times int) error {
	mem := directio.AlignedBlock(blockSize)
	for range times {
		if err := c.q.Submit(transfer(OpRead, uint64(i), mem, 0)); err != nil {
			return err
		}
		if e := <-c.done[i]; e.Res != blockSize {
			return fmt.Errorf("request %d ends with %d", i, e.Res)
		}
	}
	return nil
}

// TestCrowd has several goroutines submit, and one wait while another takes, for more requests than a queue has places.
func TestCrowd(t *testing.T) {
	each(t, func(t *testing.T, q queue, f *os.File) {
		if _, err := f.Write(directio.AlignedBlock(blockSize)); err != nil {
			t.Fatal(err)
		}
		c := &crowd{q: q}
		var stop atomic.Bool
		looked, waited, read := make(chan struct{}), make(chan struct{}), make(chan error, len(c.done))
		for i := range c.done {
			c.done[i] = make(chan Event, 1)
		}
		go func() { c.look(&stop); close(looked) }()
		go func() { c.wait(); close(waited) }()
		for i := range c.done {
			go func() { read <- c.read(i, 200) }()
		}
		for range c.done {
			if err := <-read; err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(true)
		<-looked
		q.Close()
		<-waited
	})
}
