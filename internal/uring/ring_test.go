package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open gives a ring on a file of its own, or skips where the system has none.
func open(t *testing.T, entries uint32) (*Ring, *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := Open(entries, int(f.Fd()))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(r.Close)
	t.Logf("%s, %d entries", r.Mode(), r.Entries())
	return r, f
}

func request(t *testing.T, r *Ring, op Op, b []byte, off int64, data uint64) *SQE {
	t.Helper()
	e := r.Next()
	if e == nil {
		t.Fatal("no entry is free")
	}
	e.Opcode, e.Flags, e.Off, e.UserData = op, FixedFile, uint64(off), data
	e.Addr, e.Len = uint64(uintptr(unsafe.Pointer(&b[0]))), uint32(len(b))
	return e
}

// gather enters until n completions are there.
func gather(t *testing.T, r *Ring, n int) map[uint64]int32 {
	t.Helper()
	got := map[uint64]int32{}
	for len(got) < n {
		if err := r.Enter(true); err != nil {
			t.Fatal(err)
		}
		r.Reap(func(c CQE) { got[c.UserData] = c.Res })
	}
	return got
}

func TestReadWrite(t *testing.T) {
	r, f := open(t, 16)
	one, two := bytes.Repeat([]byte{1}, 4096), bytes.Repeat([]byte{2}, 4096)
	request(t, r, OpWrite, one, 0, 10)
	iov := []unix.Iovec{{Base: &two[0]}, {Base: &two[100]}}
	iov[0].SetLen(100)
	iov[1].SetLen(3996)
	e := request(t, r, OpWritev, two, 4096, 11)
	e.Addr, e.Len, e.RWFlags = uint64(uintptr(unsafe.Pointer(&iov[0]))), 2, unix.RWF_DSYNC
	if got := gather(t, r, 2); got[10] != 4096 || got[11] != 4096 {
		t.Fatalf("writes: %v", got)
	}
	runtime.KeepAlive(iov)
	b := make([]byte, 8192)
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, append(one, two...)) {
		t.Fatalf("the file holds other bytes, %v", err)
	}
	clear(b)
	request(t, r, OpRead, b[:4096], 4096, 12)
	request(t, r, OpRead, b[4096:], 8192, 13) // at the end
	if got := gather(t, r, 2); got[12] != 4096 || got[13] != 0 || b[0] != 2 {
		t.Errorf("reads: %v", got)
	}
	e = request(t, r, OpRead, b, 0, 14)
	e.Opcode = 255
	if got := gather(t, r, 1); got[14] != -int32(unix.EINVAL) {
		t.Errorf("an unknown operation: %v", got)
	}
}

func TestBuffers(t *testing.T) {
	r, _ := open(t, 16)
	if err := r.MakeBuffers(4); err != nil {
		t.Skip(err)
	}
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := r.SetBuffer(2, mem); err != nil {
		t.Skip(err)
	}
	copy(mem[8192:], "registered")
	e := request(t, r, OpWriteFixed, mem[8192:12288], 0, 1)
	e.BufIndex = 2
	if got := gather(t, r, 1); got[1] != 4096 {
		t.Fatalf("write: %v", got)
	}
	e = request(t, r, OpReadFixed, mem[:4096], 0, 2)
	e.BufIndex = 2
	if got := gather(t, r, 1); got[2] != 4096 || string(mem[:10]) != "registered" {
		t.Fatalf("read: %v", got)
	}
	if err := r.SetBuffer(2, nil); err != nil {
		t.Fatal(err)
	}
	e = request(t, r, OpReadFixed, mem[:4096], 0, 3)
	e.BufIndex = 2
	if got := gather(t, r, 1); got[3] != -int32(unix.EFAULT) {
		t.Errorf("a buffer that is registered no more: %v", got)
	}
	if err := r.SetBuffer(9, mem); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a place that isn't there: %v", err)
	}
}

// TestCloseReleases closes rings, busy and idle ones, and wants their file to be nobody's at once: a
// lock of it lasts as long as the kernel holds the file.
func TestCloseReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := make([]byte, 4096)
	for round := range 20 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatalf("round %d: the file is still in use: %v", round, err)
		}
		r, err := Open(16, int(f.Fd()))
		if err != nil {
			t.Skip(err)
		}
		switch round % 3 {
		case 1:
			request(t, r, OpWrite, b, 0, 1)
			gather(t, r, 1)
		case 2: // nobody asks for the answers
			for i := range uint64(8) {
				request(t, r, OpWrite, b, int64(i)*4096, i)
			}
			if err := r.Enter(false); err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		f.Close()
	}
}

// TestFull fills the ring, and goes round it.
func TestFull(t *testing.T) {
	r, _ := open(t, 8)
	b := make([]byte, 512)
	seen := map[uint64]bool{}
	for round := range uint64(20) {
		n := uint64(0)
		for r.Next() != nil {
			n++
		}
		if int(n) != r.Entries() {
			t.Fatalf("round %d: %d entries, want %d", round, n, r.Entries())
		}
		r.tail -= uint32(n)
		for i := range n {
			request(t, r, OpWrite, b, int64(i*512), round<<8|i)
		}
		for k := range gather(t, r, int(n)) {
			seen[k] = true
		}
	}
	if len(seen) != 20*r.Entries() {
		t.Errorf("%d completions, want %d", len(seen), 20*r.Entries())
	}
}

// TestWake ends waits from another goroutine, before and during.
func TestWake(t *testing.T) {
	r, _ := open(t, 8)
	const times = 2000
	turn := make(chan struct{})
	go func() {
		for range times {
			<-turn
			r.Wake()
			r.Wake() // counts once or twice
		}
	}()
	for range times {
		turn <- struct{}{}
		if err := r.Enter(true); err != nil {
			t.Fatal(err)
		}
		r.Reap(func(c CQE) { t.Errorf("completion %d", c.UserData) })
	}
}
