package blockdev

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// heldStorage is a file whose writes take as long as hold is not nil and open.
type heldStorage struct {
	*kernel
	hold  chan struct{}
	began chan struct{}
}

func (s *heldStorage) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	if op == OpWrite && s.hold != nil {
		s.began <- struct{}{}
		<-s.hold
	}
	return s.kernel.transfer(op, iov, off, flags)
}

// attended puts the test's goroutine on duty until the test's end. replaced is closed when another goroutine is to take
// its place.
func attended(t *testing.T) (a *duty.Attendant, replaced chan struct{}) {
	replaced = make(chan struct{})
	a = duty.NewAttendant(sync.OnceFunc(func() { close(replaced) }))
	a.Arrive()
	t.Cleanup(func() {
		a.Leave()
		a.Close()
	})
	return a, replaced
}

// writes makes n requests that write one block each and call done.
func writes(n int) (all []*Request, done chan error) {
	done = make(chan error, n)
	mem := directio.AlignedBlock(n * 4096)
	for i := range n {
		all = append(all, &Request{Op: OpWrite, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]},
			Complete: func(r *Request) { done <- r.Err }})
	}
	return all, done
}

// starved is how often a test tries again if the writer's own goroutine always comes first because the attendant gets
// no processor.
const starved = 1000

// TestWriterHelped: an attendant on duty writes a row of what came to an idle writer, and the rest is written by the
// writer's own goroutine, or, if that would have to share a processor, by the attendant, which does something else in
// between. In a test that stands still for a moment the writer's own goroutine has done everything, so there are
// several attempts.
func TestWriterHelped(t *testing.T) {
	for _, lent := range []bool{false, true} {
		v := openInternal(t, IOBuffered)
		v.writer.lent = lent
		a, _ := attended(t)
		helped := 0
		for round := 0; round < 20 || helped == 0 && round < starved; round++ {
			all, done := writes(2 * writerRow)
			for _, r := range all {
				v.Submit(r)
			}
			before := len(done)
			a.Work()
			row := before == 0 && len(done) >= writerRow
			if lent {
				row = row && len(done) == writerRow && duty.Offered()
				a.Work()
				row = row && len(done) == len(all)
			}
			if row {
				helped++
			}
			allDone(t, all, done)
		}
		if helped == 0 {
			t.Errorf("those on duty never wrote what is theirs, of all: %v", lent)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriterBack: after a row by the writer's own goroutine the next one is again for those on duty.
func TestWriterBack(t *testing.T) {
	v := openInternal(t, IOBuffered)
	v.writer.lent = true
	a, _ := attended(t)
	back := 0
	for round := 0; round < 20 || back == 0 && round < starved; round++ {
		all, done := writes(2 * writerRow)
		v.writer.mu.Lock()
		v.writer.shy = 1
		v.writer.mu.Unlock()
		for _, r := range all {
			v.Submit(r)
		}
		for len(done) < len(all) && !duty.Offered() {
			runtime.Gosched()
		}
		if duty.Offered() {
			back++
		}
		a.Work()
		allDone(t, all, done)
	}
	if back == 0 {
		t.Error("nothing was left to those on duty")
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// allDone waits until all are done.
func allDone(t *testing.T, all []*Request, done chan error) {
	t.Helper()
	for range all {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriterHeldUp: after a write that takes long, its volume does without those on duty for a while; what arrives
// meanwhile is written.
func TestWriterHeldUp(t *testing.T) {
	v := openInternal(t, IOBuffered)
	s := &heldStorage{v.store.(*kernel), make(chan struct{}), make(chan struct{}, 3)}
	v.store = s
	a, replaced := attended(t)
	all, done := writes(3)
	v.Submit(all[0])
	v.Submit(all[1])
	ended := make(chan bool)
	go func() { ended <- a.Work() }()
	<-s.began
	<-replaced
	if len(done) != 0 {
		t.Fatal("a write was done that is held")
	}
	close(s.hold)
	if <-ended {
		t.Error("whoever was held up goes on beside the one who has taken its place")
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	v.Submit(all[2])
	if duty.Offered() {
		t.Error("those on duty are asked again though they were held up")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWriterUnattended: what those on duty leave when they go off duty is written by the writer's own goroutine.
func TestWriterUnattended(t *testing.T) {
	v := openInternal(t, IOBuffered)
	a := duty.NewAttendant(func() {})
	defer a.Close()
	a.Arrive()
	all, done := writes(3)
	v.Submit(all[0])
	v.Submit(all[1])
	a.Leave()
	v.Submit(all[2])
	allDone(t, all, done)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWriterApart: somebody on duty whose thread has a request of a ring under way, which would wait with a write,
// leaves the write to the writer's own goroutine.
func TestWriterApart(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	ring, err := aio.OpenRing(1, int(in.Fd()))
	if err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := directio.AlignedBlock(4096)
	read := aio.Request{Op: aio.OpRead, Offset: -1, Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Len: 1}
	if err := ring.Submit(read); err != nil {
		t.Fatal(err)
	}
	v := openInternal(t, IOBuffered)
	a, _ := attended(t)
	all, done := writes(1)
	v.Submit(all[0])
	a.Work()
	allDone(t, all, done)
	if _, err := out.WriteString("b"); err != nil {
		t.Fatal(err)
	}
	var events [1]aio.Event
	if n := ring.Wait(events[:]); n != 1 {
		t.Errorf("%d events", n)
	}
	ring.Close()
	if n := ring.Wait(events[:]); n != 0 {
		t.Errorf("%d events of a closed ring", n)
	}
	runtime.KeepAlive(b)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}
