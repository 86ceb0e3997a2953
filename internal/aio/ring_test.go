package aio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// newFile makes a file that is closed when the test ends.
func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// openRing opens a ring for 16 requests to a file.
func openRing(t *testing.T, f *os.File) *Ring {
	t.Helper()
	r, err := OpenRing(16, int(f.Fd()))
	if err != nil {
		lacking(t, err)
	}
	return r
}

// noRing wants this program to have no ring, nor the memory of one.
func noRing(t *testing.T) {
	t.Helper()
	const ring = "[io_uring]"
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || strings.Contains(string(maps), ring) {
		t.Errorf("memory of a ring is left, %v", err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.Contains(to, ring) {
			t.Errorf("a ring is left, as %s", fd)
		}
	}
	if err != nil || len(fds) == 0 {
		t.Errorf("this program has %d files, %v", len(fds), err)
	}
}

// TestRefused: if the system allows a ring to be set up, but not used, OpenRing fails, and nothing is left of it.
func TestRefused(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	f := newFile(t)
	shut(t, openRing(t, f))
	for _, call := range []uint32{unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		sandbox.Refuse(t, call, unix.EPERM)
		if _, err := OpenRing(16, int(f.Fd())); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "io_uring") {
			t.Errorf("a ring is opened: %v", err)
		}
		noRing(t)
	}
}

// TestFailsOnce: a kernel that doesn't know the newer way of completing has the older one, and what forbids one
// forbids the other. A request that the kernel doesn't take leaves nothing behind: it isn't handed over along with the
// next one, as its memory is the caller's again.
func TestFailsOnce(t *testing.T) {
	const setup, enter = unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER
	for name, c := range map[string]struct {
		call   uint32
		errno  unix.Errno
		opened string // how requests complete; "" if there is no ring
		submit error
	}{
		"old kernel":  {setup, unix.EINVAL, "plain", nil},
		"forbidden":   {setup, unix.EPERM, "", nil},
		"interrupted": {enter, unix.EINTR, "any", nil},
		"no memory":   {enter, unix.EAGAIN, "any", unix.EAGAIN},
		"registering": {unix.SYS_IO_URING_REGISTER, unix.EINTR, "any", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			f := newFile(t)
			shut(t, openRing(t, f))
			before := 0
			if c.call == enter {
				before = 1 // by start
			}
			failed := sandbox.FailLater(t, c.call, c.errno, before)
			r, err := OpenRing(16, int(f.Fd()))
			if (err == nil) != (c.opened != "") {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if c.opened != "any" && r.Mode() != c.opened {
				t.Errorf("requests complete by %s, want %s", r.Mode(), c.opened)
			}
			b := directio.AlignedBlock(4096)
			want := 2
			if err := r.Submit(transfer(OpWrite, 5, b, 0)); !errors.Is(err, c.submit) {
				t.Fatalf("submitted: %v, want %v", err, c.submit)
			} else if err != nil {
				want = 1
			}
			if !failed() {
				t.Error("the call didn't fail")
			}
			if err := r.Submit(transfer(OpWrite, 6, b, 0)); err != nil {
				t.Fatal(err)
			}
			if got := gather(t, r, want); got[6] != 4096 || want == 2 && got[5] != 4096 {
				t.Errorf("requests end with %v", got)
			}
			shut(t, r)
		})
	}
}

// TestTooOld: OpenRing refuses a kernel that maps the queues separately, or that loses completions.
func TestTooOld(t *testing.T) {
	for _, features := range []uint32{0, featSingleMmap, featNoDrop} {
		r := Ring{fd: -1}
		if err := r.start(&params{features: features}); err == nil || !strings.Contains(err.Error(), "Linux 5.5") {
			t.Errorf("with features %#x: %v", features, err)
		}
	}
}

// TestBuffers: data in registered memory is read and written from there, and other data isn't.
func TestBuffers(t *testing.T) {
	r := openRing(t, newFile(t))
	if len(r.buffers.free) == 0 {
		t.Skip("this system has no table of buffers")
	}
	const size = 4096
	mem := directio.AlignedBlock(16 * size)
	low, high := mem[2*size:4*size], mem[8*size:12*size]
	mayPin(t, r, mem)
	r.pin(high)
	r.pin(low)
	for i, x := range []struct {
		at, n int
		fixed bool
	}{
		{1, 1, false}, {2, 1, true}, {3, 1, true}, {2, 2, true}, {3, 2, false}, {4, 1, false}, {1, 2, false},
		{8, 4, true}, {11, 1, true}, {11, 2, false}, {12, 1, false}, {15, 1, false},
	} {
		for _, op := range []Op{OpWrite, OpRead} {
			before := r.sqTail.Load()
			q := transfer(op, 5, mem[x.at*size:][:x.n*size], 0)
			if err := r.Submit(q); err != nil {
				t.Fatal(err)
			}
			e := r.entries[before&r.sqMask]
			if res := gather(t, r, 1)[5]; res != int64(x.n*size) {
				t.Errorf("%d: %d bytes of %d", i, res, x.n*size)
			}
			if fixed := e.opcode == ringReadFixed || e.opcode == ringWriteFixed; fixed != x.fixed || e.flags != fixedFile {
				t.Errorf("%d: opcode %d with flags %d, want registered memory: %v, and a registered file", i, e.opcode, e.flags, x.fixed)
			}
		}
	}
	unregister := r.Register(mem)
	r.unpin(low)
	unregister()
	if n, free := len(r.buffers.list), len(r.buffers.free); n != 1 || free != bufferPlaces-1 {
		t.Errorf("%d buffers and %d free places are left", n, free)
	}
	r.Register(nil)()
	unregister = r.Register(mem)
	shut(t, r)
	unregister()
}

// TestManyBuffers: what finds no place in the table is read and written all the same, and what is unregistered once its
// ring is closed leaves alone another ring, which may have the number of the closed one.
func TestManyBuffers(t *testing.T) {
	f := newFile(t)
	r := openRing(t, f)
	if len(r.buffers.free) == 0 {
		t.Skip("this system has no table of buffers")
	}
	const size = 4096
	mem := directio.AlignedBlock((bufferPlaces + 1) * size)
	mayPin(t, r, mem)
	for i := range bufferPlaces + 1 {
		r.pin(mem[i*size:][:size])
	}
	if len(r.buffers.free) > 0 {
		t.Skipf("%d buffers can be pinned", len(r.buffers.list))
	}
	for i := range bufferPlaces + 1 {
		if res := do(t, r, transfer(OpWrite, 5, mem[i*size:][:size], 0)); res != size {
			t.Fatalf("%d: written: %d", i, res)
		}
	}
	shut(t, r)
	other := openRing(t, f)
	if other.fd != r.fd {
		t.Logf("the other ring is %d, not %d", other.fd, r.fd)
	}
	other.pin(mem[:size])
	for i := range bufferPlaces {
		r.unpin(mem[i*size:][:size])
	}
	if res := do(t, other, transfer(OpWrite, 5, mem[:size], 0)); res != size {
		t.Errorf("written by the other ring: %d", res)
	}
	shut(t, other)
}

// mayPin skips a test if the system doesn't allow as much memory as mem to be pinned.
func mayPin(t *testing.T, r *Ring, mem []byte) {
	t.Helper()
	if err := r.setBuffer(0, mem); err != nil {
		lacking(t, err)
	}
	if err := r.setBuffer(0, nil); err != nil {
		t.Fatal(err)
	}
}

// TestUnpinFails: a place of the table that the kernel had no memory to empty is nevertheless reused for what is
// registered next.
func TestUnpinFails(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	f := newFile(t)
	r := openRing(t, f)
	const size = 4096
	one, two := directio.AlignedBlock(size), directio.AlignedBlock(size)
	mayPin(t, r, one)
	r.pin(one)
	failed := sandbox.FailOnce(t, unix.SYS_IO_URING_REGISTER, unix.ENOMEM)
	r.unpin(one)
	if n := len(r.buffers.free); !failed() || n != bufferPlaces {
		t.Errorf("%d places are free, want %d; refused: %v", n, bufferPlaces, failed())
	}
	r.pin(two)
	two[0] = 2
	if err := r.Submit(transfer(OpWrite, 5, two, 0)); err != nil {
		t.Fatal(err)
	}
	if res := gather(t, r, 1)[5]; res != size {
		t.Errorf("written: %d", res)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 0); err != nil || b[0] != 2 {
		t.Errorf("%d is in the file, %v", b[0], err)
	}
	shut(t, r)
}

// TestCloseReleases closes rings, used and unused ones, and wants their file to be released at once: a lock of it lasts
// as long as the kernel holds the file.
func TestCloseReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	b := make([]byte, 4096)
	for round := range 50 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatalf("round %d: the file is still in use: %v", round, err)
		}
		r := openRing(t, f)
		if n := round % 16; n > 0 {
			for i := range n {
				q := transfer(OpWrite, uint64(i), b, int64(i)*4096)
				if err := r.Submit(q); err != nil {
					t.Fatal(err)
				}
			}
			gather(t, r, n)
		}
		shut(t, r)
		f.Close()
	}
}

// TestLongRequest: of a request that is longer than an entry can express the beginning is done, as with every system
// call: 4 GiB don't become 0.
func TestLongRequest(t *testing.T) {
	f := newFile(t)
	if err := f.Truncate(3 * blockSize); err != nil {
		t.Fatal(err)
	}
	r := openRing(t, f)
	defer shut(t, r)
	mem, err := unix.Mmap(-1, 0, 1<<32, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Munmap(mem)
	if res := do(t, r, transfer(OpRead, 1, mem, 0)); res != 3*blockSize {
		t.Errorf("%d bytes are read of %d", res, 3*blockSize)
	}
}
