package blockdev

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/uring"
)

// openInternal opens a file of 1 MiB in a mode that isn't to be had everywhere.
func openInternal(t *testing.T, mode IOMode) *file {
	t.Helper()
	v, err := OpenFile(filepath.Join(t.TempDir(), "v"), Options{Size: 1 << 20, IO: mode})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { v.Close() })
	return v.(*file)
}

// await submits requests together and waits for all.
func await(t *testing.T, v Volume, all ...*Request) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Add(1)
		r.Complete = func(*Request) { wg.Done() }
		v.Submit(r)
	}
	wg.Wait()
	for _, r := range all {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestAlignment: buffers are aligned as statx says, and neither more nor less.
func TestAlignment(t *testing.T) {
	v := openInternal(t, IODirect)
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, v.info.Path, 0, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		t.Skipf("this system doesn't tell: %v", err)
	}
	mem, unit := int(st.Dio_mem_align), int(st.Dio_offset_align)
	if v.align != (alignment{mem, unit}) || v.Info().Align != mem {
		t.Errorf("alignment %+v, told as %d; statx says %d and %d", v.align, v.Info().Align, mem, unit)
	}
	room := directio.AlignedBlock(4 * directio.AlignSize)
	r := &Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{room[mem:][:4096]}}
	if v.misaligned(r) {
		t.Errorf("a buffer at %d bytes is copied", mem)
	}
	await(t, v, r)
	if r.Bufs[0] = room[mem/2:][:4096]; mem > 1 && !v.misaligned(r) {
		t.Errorf("a buffer at %d bytes isn't copied", mem/2)
	}
}

// watchedRing notes what the kernel is asked for.
type watchedRing struct {
	*uring.Ring
	next    []*uring.SQE
	batches [][]uring.SQE
	idle    chan struct{} // told, with room for one, when there is nothing to do
	hold    chan struct{} // what an Enter without work waits for first
	wakes   atomic.Int64
}

func (w *watchedRing) Wake() {
	w.wakes.Add(1)
	w.Ring.Wake()
}

func (w *watchedRing) Next() *uring.SQE {
	e := w.Ring.Next()
	w.next = append(w.next, e)
	return e
}

func (w *watchedRing) Enter(wait bool) error {
	if len(w.next) > 0 {
		var batch []uring.SQE
		for _, e := range w.next {
			batch = append(batch, *e)
		}
		w.batches, w.next = append(w.batches, batch), nil
	} else if wait {
		select {
		case w.idle <- struct{}{}:
		default:
		}
		<-w.hold
	}
	return w.Ring.Enter(wait)
}

// TestRingBatches: what gathers is submitted in few calls, for a registered file, and from
// registered buffers where a request lies in one.
func TestRingBatches(t *testing.T) {
	v := openInternal(t, IOUring)
	v.ring.close()
	w := &watchedRing{idle: make(chan struct{}, 1), hold: make(chan struct{})}
	var err error
	if v.ring, err = newRing(v, func() (_ kernelRing, err error) {
		w.Ring, err = uring.Open(64, v.store.(*kernel).fd)
		return w, err
	}); err != nil {
		t.Fatal(err)
	}
	<-w.idle
	const n = 16
	mem := directio.AlignedBlock(n * 4096)
	unregister := v.Register(mem[:n/2*4096])
	var all []*Request
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		all = append(all, &Request{Op: OpWrite, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]},
			Complete: func(*Request) { wg.Done() }})
		v.Submit(all[i])
	}
	close(w.hold)
	wg.Wait()
	unregister()
	var batches [][]uring.SQE
	done := make(chan struct{})
	v.ring.do(func() { batches = w.batches; close(done) })
	<-done
	if len(batches) != n/ringBatch {
		t.Fatalf("%d requests in %d calls, want %d", n, len(batches), n/ringBatch)
	}
	fixed := 0
	for _, e := range slices.Concat(batches...) {
		if e.Flags&uring.FixedFile == 0 {
			t.Error("the file isn't a registered one")
		}
		if e.Opcode == uring.OpWriteFixed {
			fixed++
		}
	}
	if fixed != n/2 && len(v.ring.places) > 0 { // where the system has registered buffers
		t.Errorf("%d of %d writes from registered buffers, want %d", fixed, n, n/2)
	}
	for i, r := range all {
		if r.Err != nil {
			t.Errorf("write %d: %v", i, r.Err)
		}
	}
	runtime.KeepAlive(mem)

	// What is submitted where others complete needs no wake: the ring's thread is there.
	const chained = 50
	before, left, end := w.wakes.Load(), chained, make(chan error, 1)
	next := all[0]
	next.Complete = func(*Request) {
		if left--; left == 0 || next.Err != nil {
			end <- next.Err
			return
		}
		v.Submit(next)
	}
	v.Submit(next)
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	if n := w.wakes.Load() - before; n > 1 {
		t.Errorf("%d requests one after another woke the ring %d times", chained, n)
	}
}

// watchedStorage notes what the system is asked for.
type watchedStorage struct {
	storage
	asked []string
}

func (w *watchedStorage) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	w.asked = append(w.asked, op.String())
	return w.storage.transfer(op, iov, off, flags)
}

func (w *watchedStorage) allocate(mode uint32, off, n int64) error {
	name := map[uint32]string{punchHole: "punch hole", zeroRange: "zero range"}[mode]
	err := w.storage.allocate(mode, off, n)
	if err != nil {
		name = "no " + name
	}
	w.asked = append(w.asked, name)
	return err
}

// TestZeroesOfTheFileSystem: zeroes are the file system's where it has them, and are written
// where it hasn't.
func TestZeroesOfTheFileSystem(t *testing.T) {
	v := openInternal(t, IOBuffered)
	w := &watchedStorage{storage: v.store}
	v.store = w
	for _, x := range []struct {
		r    Request
		want string
	}{
		{Request{Op: OpWriteZeroes, Length: 64 << 10}, "zero range"},
		{Request{Op: OpWriteZeroes, Length: 64 << 10, MayUnmap: true}, "punch hole"},
		{Request{Op: OpDiscard, Length: 64 << 10}, "punch hole"},
	} {
		w.asked = nil
		await(t, v, &x.r)
		got := strings.Join(w.asked, ", ")
		if got == "no "+x.want || strings.HasPrefix(got, "no "+x.want+", ") {
			t.Skipf("the file system has none: %s", got)
		}
		if got != x.want {
			t.Errorf("%s, may unmap %t: the system is asked for %q, want %q", x.r.Op, x.r.MayUnmap, got, x.want)
		}
	}
	v.noZeroRange.Store(true)
	w.asked = nil
	await(t, v, &Request{Op: OpWriteZeroes, Length: 64 << 10})
	if !slices.Equal(w.asked, []string{"write"}) {
		t.Errorf("without the file system's way it is asked for %q", w.asked)
	}
}
