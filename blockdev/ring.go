package blockdev

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/uring"
)

// ring gives the aligned reads and writes of a file volume to io_uring. One goroutine, on a
// thread of its own, submits some of what has gathered and completes what is done with one
// system call for both; it blocks when there is nothing to do. What the ring can't do, and what the
// system refuses to do in this way, goes to the volume's workers.
type ring struct {
	v *file
	u kernelRing

	mu      sync.Mutex
	queue   requestQueue
	jobs    []func() // on the ring's thread
	asleep  bool     // the thread waits, or is about to
	stopped bool
	ended   chan struct{}

	// Of the ring's goroutine.
	slots   []slot
	free    []int
	buffers []registered // by address
	places  []int        // of the table of buffers, free
	row     Row          // what one Reap completes
}

// kernelRing is what a ring needs of *uring.Ring, the only one outside of tests.
type kernelRing interface {
	Mode() string
	Entries() int
	Next() *uring.SQE
	Enter(wait bool) error
	Reap(func(uring.CQE))
	Wake()
	MakeBuffers(n int) error
	SetBuffer(i int, mem []byte) error
	Close()
}

// slot is a request in the kernel.
type slot struct {
	r     *Request
	flags int // RWF_*
	iov   nowIovecs
}

// registered is memory that is pinned for the ring.
type registered struct {
	mem   []byte
	place int
}

const (
	ringEntries = 256
	ringBuffers = 1024 // places for registered buffers
	maxBuffer   = 1 << 30

	// ringBatch is how many requests a call submits at most. The device sees none of them before
	// the last is prepared, and one that takes what is there at once, as virtio's does, stands
	// idle so long: with batches of 32 it did a fifth less.
	ringBatch = 4
)

// newRing starts the ring of v on what open gives, which is called on the ring's thread.
func newRing(v *file, open func() (kernelRing, error)) (*ring, error) {
	g := &ring{v: v, ended: make(chan struct{})}
	opened := make(chan error)
	go g.run(open, opened)
	if err := <-opened; err != nil {
		return nil, err
	}
	return g, nil
}

// run is the life of the ring's goroutine.
func (g *ring) run(open func() (kernelRing, error), opened chan<- error) {
	defer close(g.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	if g.u, err = open(); err != nil {
		opened <- err
		return
	}
	defer g.u.Close()
	if g.u.MakeBuffers(ringBuffers) == nil {
		for i := range ringBuffers {
			g.places = append(g.places, ringBuffers-1-i)
		}
	}
	g.slots = make([]slot, g.u.Entries())
	for i := range g.slots {
		g.free = append(g.free, i)
	}
	opened <- nil
	complete := g.complete
	for g.prepare() {
		if err := g.u.Enter(g.mayWait()); err != nil {
			panic(err) // only a ring that is misused; what the kernel still has can't be given back
		}
		g.awake()
		g.u.Reap(complete)
		g.row.End()
	}
}

// submit hands r to the ring's goroutine.
func (g *ring) submit(r *Request) {
	g.mu.Lock()
	g.queue.push(r)
	g.unlockAndWake()
}

func (g *ring) unlockAndWake() {
	wake := g.asleep
	g.asleep = false
	if wake {
		g.u.Wake() // under the lock: the ring stays open until it is seen to be stopped
	}
	g.mu.Unlock()
}

// prepare makes entries of some of what has gathered. It returns false where the ring is to end.
func (g *ring) prepare() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, job := range g.jobs {
		job()
	}
	g.jobs = g.jobs[:0]
	for n := 0; n < ringBatch && len(g.free) > 0; n++ {
		r := g.queue.pop()
		if r == nil {
			break
		}
		i := g.free[len(g.free)-1]
		g.free = g.free[:len(g.free)-1]
		g.slots[i].r = r
		g.start(i)
	}
	return !g.stopped || len(g.free) < len(g.slots)
}

// mayWait tells whether nothing is to be done but to wait, and says so to those who submit.
func (g *ring) mayWait() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) == 0 {
		return true // for a completion: nothing else helps
	}
	g.asleep = len(g.jobs) == 0 && !g.stopped && g.queue.first == nil
	return g.asleep
}

// awake says that nobody need wake the thread: it takes what is submitted by itself, most of which
// comes from the completions that it is about to make.
func (g *ring) awake() {
	g.mu.Lock()
	g.asleep = false
	g.mu.Unlock()
}

// start makes an entry of what is left of slot i's request. There are as many slots as
// entries, so one is free.
func (g *ring) start(i int) {
	s := &g.slots[i]
	r := s.r
	e := g.u.Next()
	k := fillIovecs(s.iov[:], r.Bufs, r.done)
	e.Flags, e.UserData = uring.FixedFile, uint64(i)
	s.flags = g.v.writeFlags(r)
	e.Off, e.RWFlags = uint64(r.Offset+r.done), uint32(s.flags)
	if k > 1 {
		e.Opcode = uring.OpReadv
		if r.Op == OpWrite {
			e.Opcode = uring.OpWritev
		}
		e.Addr, e.Len = uint64(uintptr(unsafe.Pointer(&s.iov[0]))), uint32(k)
		return
	}
	e.Addr, e.Len = uint64(uintptr(unsafe.Pointer(s.iov[0].Base))), uint32(s.iov[0].Len)
	place, fixed := g.place(s.iov[0].Base, uintptr(s.iov[0].Len))
	e.BufIndex = place
	switch {
	case fixed && r.Op == OpRead:
		e.Opcode = uring.OpReadFixed
	case fixed:
		e.Opcode = uring.OpWriteFixed
	case r.Op == OpRead:
		e.Opcode = uring.OpRead
	default:
		e.Opcode = uring.OpWrite
	}
}

// complete takes the result of a slot's entry.
func (g *ring) complete(c uring.CQE) {
	i := int(c.UserData)
	s := &g.slots[i]
	r := s.r
	clear(s.iov[:])
	s.r = nil
	g.free = append(g.free, i)
	if !g.v.took(&g.row, r, int64(c.Res), s.flags) {
		g.mu.Lock()
		g.queue.push(r)
		g.mu.Unlock()
	}
}

// close ends the ring. Nothing is in flight, and nothing is submitted any more.
func (g *ring) close() {
	g.mu.Lock()
	g.stopped = true
	g.unlockAndWake()
	<-g.ended
}

// do has a job run on the ring's thread, soon. It returns false after close.
func (g *ring) do(job func()) bool {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return false
	}
	g.jobs = append(g.jobs, job)
	g.unlockAndWake()
	return true
}

// register pins mem for transfers, where the system lets it.
func (g *ring) register(mem []byte) {
	g.do(func() {
		if len(mem) == 0 || len(mem) > maxBuffer || len(g.places) == 0 {
			return
		}
		place := g.places[len(g.places)-1]
		if g.u.SetBuffer(place, mem) != nil {
			return // more than may be pinned
		}
		g.places = g.places[:len(g.places)-1]
		i, _ := slices.BinarySearchFunc(g.buffers, mem, byAddress)
		g.buffers = slices.Insert(g.buffers, i, registered{mem, place})
	})
}

// unregister lets go of what register pinned, and waits for that.
func (g *ring) unregister(mem []byte) {
	done := make(chan struct{})
	if g.do(func() {
		defer close(done)
		i, ok := slices.BinarySearchFunc(g.buffers, mem, byAddress)
		if !ok {
			return
		}
		place := g.buffers[i].place
		g.buffers = slices.Delete(g.buffers, i, i+1)
		if g.u.SetBuffer(place, nil) == nil {
			g.places = append(g.places, place)
		}
	}) {
		<-done
	}
}

func byAddress(b registered, mem []byte) int {
	x, y := address(b.mem), address(mem)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// place finds the registered buffer that holds n bytes at p.
func (g *ring) place(p *byte, n uintptr) (uint16, bool) {
	at := uintptr(unsafe.Pointer(p))
	lo, hi := 0, len(g.buffers)
	for lo < hi {
		if mid := (lo + hi) / 2; address(g.buffers[mid].mem) <= at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, false
	}
	b := &g.buffers[lo-1]
	if at+n > address(b.mem)+uintptr(len(b.mem)) {
		return 0, false
	}
	return uint16(b.place), true
}
