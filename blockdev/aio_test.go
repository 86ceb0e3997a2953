package blockdev

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestAIOAttended: an attendant on duty completes what is done, and what it leaves when it goes off duty is completed
// by the queue's own goroutine; each request once.
func TestAIOAttended(t *testing.T) {
	t.Run("io_submit", func(t *testing.T) { testAttended(t, openInternal(t, IODirect)) })
	t.Run("io_uring", func(t *testing.T) { testAttended(t, openInternal(t, IOUring)) })
}

// batch is a set of writes that are submitted together, again and again.
type batch struct {
	all  [32]Request
	done chan error
}

func newBatch() *batch {
	b := &batch{done: make(chan error, len(batch{}.all))}
	mem := directio.AlignedBlock(len(b.all) * 4096)
	for i := range b.all {
		b.all[i] = Request{Op: OpWrite, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]},
			Complete: func(r *Request) { b.done <- r.Err }}
	}
	return b
}

func (b *batch) submit(v *file) {
	for i := range b.all {
		v.Submit(&b.all[i])
	}
}

// await waits for an answer to each.
func (b *batch) await(t *testing.T) {
	t.Helper()
	for range b.all {
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
	}
	if len(b.done) > 0 {
		t.Fatal("a request was answered twice")
	}
}

func testAttended(t *testing.T, v *file) {
	if v.aio == nil {
		t.Skip(v.info.Mode)
	}
	a := duty.NewAttendant(func() {}) // if replaced, the test's goroutine itself continues
	defer a.Close()
	b := newBatch()
	found := 0
	for round := range 50 {
		a.Arrive()
		b.submit(v)
		if round%2 == 0 { // it stays until all is done; otherwise it leaves what it hasn't begun
			for !a.Work() {
			}
			for v.aio.inFlight.Load() > 0 {
				if a.Look() {
					found++
				} else {
					time.Sleep(10 * time.Microsecond)
				}
			}
		}
		a.Leave()
		b.await(t)
	}
	if found == 0 {
		t.Error("whoever is on duty never found anything")
	}
	b.submit(v) // nobody is on duty
	b.await(t)
	if n := v.aio.writing.Load(); n != 0 {
		t.Errorf("%d writes are in the kernel when all are answered", n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if a.Look() {
		t.Error("something was found after Close")
	}
}

// TestAIOParked: while somebody is on duty the queue's own goroutine sleeps. It continues for a request that comes when
// nobody is any more, and ends when the volume is closed.
func TestAIOParked(t *testing.T) {
	for _, mode := range []IOMode{IODirect, IOUring} {
		for _, leaves := range []bool{true, false} {
			v := openInternal(t, mode)
			if v.aio == nil {
				t.Skip(v.info.Mode)
			}
			a := duty.NewAttendant(func() {})
			a.Arrive()
			done := make(chan error, 1)
			read := func() {
				v.Submit(&Request{Op: OpRead, Length: 4096, Bufs: [][]byte{directio.AlignedBlock(4096)},
					Complete: func(r *Request) { done <- r.Err }})
			}
			for read(); len(done) == 0 || !v.aio.parked.Load(); time.Sleep(time.Millisecond) {
				if v.aio.parked.Load() { // otherwise the goroutine completes the read, and then sleeps
					a.Look()
				}
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if leaves {
				a.Leave()
				read()
				if err, came := soon.Receive(done); !came || err != nil {
					t.Errorf("%v: nobody is on duty, and a read is done: %v, with %v", mode, came, err)
					v.aio.unpark() // so that the volume can be closed
				}
			}
			closed := make(chan error, 1)
			go func() { closed <- v.Close() }()
			if err, came := soon.Receive(closed); !came || err != nil {
				t.Errorf("%v: with nobody on duty: %v, it is closed: %v, with %v", mode, leaves, came, err)
				v.aio.unpark()
			}
			if !leaves {
				a.Leave()
			}
			a.Close()
		}
	}
}

// idleAIO is asynchronous I/O that does nothing until it is allowed to.
type idleAIO struct {
	mu   sync.Mutex
	got  []aio.Event
	goOn chan struct{} // closed
	end  chan struct{} // closed
}

func (a *idleAIO) Submit(r aio.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, aio.Event{Data: r.Data, Res: int64(r.Len)})
	return nil
}

func (a *idleAIO) Wait(events []aio.Event) int {
	<-a.goOn
	if n := a.Take(events); n > 0 {
		return n
	}
	<-a.end
	return 0
}

func (a *idleAIO) Take(events []aio.Event) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := copy(events, a.got)
	a.got = a.got[n:]
	return n
}

func (a *idleAIO) Ready() bool { return false }
func (a *idleAIO) Close()      { close(a.end) }

// TestAIOFull: workers do the requests for which the kernel's queue has no room, and each is done once.
func TestAIOFull(t *testing.T) {
	v := openInternal(t, IOBuffered)
	a := &idleAIO{goOn: make(chan struct{}), end: make(chan struct{})}
	v.noNow.Store(true) // so that no request is answered by the page cache
	v.aio = newAIO(v, a)
	const more = 40
	done := make(chan error, 2*(aioEntries+more))
	for i := range aioEntries + more {
		v.Submit(&Request{Op: OpRead, Offset: int64(i%aioEntries) * 4096, Length: 4096, Bufs: [][]byte{make([]byte, 4096)},
			Complete: func(r *Request) { done <- r.Err }})
	}
	for i := range aioEntries + more {
		if i == more {
			if n := len(a.got); n != aioEntries || len(done) > 0 {
				t.Errorf("the kernel has %d requests, and more than %d are done", n, more)
			}
			close(a.goOn)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := v.Close(); err != nil || len(done) > 0 {
		t.Errorf("%d requests are answered twice, %v", len(done), err)
	}
}

// TestAIOFullLocks: requests that wait for a worker don't have their ranges yet. There can be many, and everybody who
// wants a range looks at all that have one.
func TestAIOFullLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := openInternal(t, IOBuffered)
		a := &idleAIO{goOn: make(chan struct{}), end: make(chan struct{})}
		s := stopHalfway(v, OpRead)
		v.noNow.Store(true)
		v.aio = newAIO(v, a)
		v.pool.Close()
		v.pool = NewPool(1, v.run)
		const more = 40
		done := make(chan error, aioEntries+more)
		for i := range int64(aioEntries + more) {
			v.Submit(&Request{Op: OpRead, Offset: i % aioEntries * 4096, Length: 4096, Bufs: [][]byte{make([]byte, 4096)},
				Complete: func(r *Request) { done <- r.Err }})
		}
		<-s.stopped
		synctest.Wait()
		if n := len(v.ranges.others); n != aioEntries+1 {
			t.Errorf("%d requests have their ranges, though the kernel has %d and a worker one", n, aioEntries)
		}
		close(s.goOn)
		close(a.goOn)
		for range aioEntries + more {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAIOUnwanted: a write that had to wait for its blocks, and became unwanted meanwhile, isn't passed to the kernel.
func TestAIOUnwanted(t *testing.T) {
	v := openInternal(t, IOBuffered)
	a := &idleAIO{goOn: make(chan struct{}), end: make(chan struct{})}
	v.noNow.Store(true)
	v.aio = newAIO(v, a)
	_, read := submitted(v, OpRead, 0, make([]byte, 4096))
	var unwanted atomic.Bool
	refused := make(chan error, 1)
	v.Submit(&Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{filled(3)}, Unwanted: unwanted.Load,
		Complete: func(r *Request) { refused <- r.Err }})
	unwanted.Store(true)
	close(a.goOn)
	<-read
	if err := <-refused; !errors.Is(err, ErrUnwanted) {
		t.Errorf("an unwanted write: %v", err)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// fullAIO is asynchronous I/O that takes nothing.
type fullAIO struct{ idleAIO }

func (a *fullAIO) Submit(aio.Request) error { return unix.EAGAIN }

// TestAIORefuses: workers do the requests that the system refuses to take, and each leaves the queue as it was.
func TestAIORefuses(t *testing.T) {
	v := openInternal(t, IOBuffered)
	a := &fullAIO{idleAIO{goOn: make(chan struct{}), end: make(chan struct{})}}
	close(a.goOn)
	v.noNow.Store(true)
	v.aio = newAIO(v, a)
	for i := range int64(4) {
		r := &Request{Op: OpRead, Offset: i * 4096, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}}
		if await(t, v, r); r.Err != nil {
			t.Error(r.Err)
		}
	}
	if n, free := v.aio.inFlight.Load(), len(v.aio.free); n != 0 || free != aioEntries {
		t.Errorf("%d requests are in the kernel, and it takes %d more", n, free)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// busyAIO has another attendant look while one takes what is done, and counts how often anybody looks.
type busyAIO struct {
	idleAIO
	q     *queueAIO
	looks int
}

func (a *busyAIO) Ready() bool {
	a.looks++
	return true
}

func (a *busyAIO) Take([]aio.Event) int {
	if a.looks == 1 {
		a.q.take()
	}
	return 0
}

// TestAIOTaken: what an attendant is taking, other attendants leave alone, as they would use the same memory. After
// Close they touch nothing, as the kernel's memory is gone.
func TestAIOTaken(t *testing.T) {
	v := openInternal(t, IOBuffered)
	a := &busyAIO{idleAIO: idleAIO{goOn: make(chan struct{}), end: make(chan struct{})}}
	v.noNow.Store(true)
	v.aio = newAIO(v, a)
	a.q = v.aio
	a.q.take()
	if a.looks != 1 {
		t.Error("two attendants take at once")
	}
	close(a.goOn)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if a.q.take(); a.looks != 1 {
		t.Error("somebody looks after Close")
	}
}

// TestAIOClosesAttended: a queue that is closed while somebody is on duty ends, though its own goroutine is only about
// to leave the requests to them.
func TestAIOClosesAttended(t *testing.T) {
	attended(t)
	q := &queueAIO{wake: make(chan struct{}, 1)}
	q.closed.Store(true)
	q.unpark() // as close does, which finds it awake
	q.park()
}
