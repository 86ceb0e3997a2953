package tests

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// ioLoad is one kind of I/O at depth 32.
type ioLoad struct {
	op   nvme.Opcode
	size int
	ios  int // counted
}

func (l ioLoad) String() string { return fmt.Sprintf("%s-%dk", l.op.IOName(), l.size>>10) }

// TestNoAllocations counts the heap allocations of host and target together in steady state, for reads and writes with
// data in the capsule and outside it.
func TestNoAllocations(t *testing.T) {
	alone(t)
	if racing() {
		t.Skip("the race detector allocates")
	}
	volumes := []struct {
		name string
		open func(testing.TB) (string, blockdev.Options)
		ios  int // per 100,000
	}{{"mem", memVolume, 100_000}, {"file", fileVolume, 20_000}, {"io_uring", ringVolume, 20_000}, {"pmem", pmemVolume, 100_000}}
	for _, v := range volumes {
		t.Run(v.name, func(t *testing.T) {
			noLeaks(t)
			spec, o := v.open(t)
			remote := servePair(t, spec, o)
			for _, path := range localPaths {
				h := dialPair(t, remote, path)
				for _, l := range []ioLoad{
					{nvme.OpRead, 4 << 10, v.ios}, {nvme.OpWrite, 4 << 10, v.ios},
					{nvme.OpRead, 128 << 10, v.ios / 10}, {nvme.OpWrite, 128 << 10, v.ios / 10},
				} {
					t.Run(path+"/"+l.String(), func(t *testing.T) { countAllocations(t, h, l) })
				}
				h.close(t)
			}
		})
	}
}

func countAllocations(t *testing.T, h *hostSide, l ioLoad) {
	// Timers and the collector itself allocate now and then, too.
	const (
		most   = 0.01 // per I/O
		aside  = 100
		warmUp = 5 // as 1/n of what is counted
	)
	d := newDriver(t, h, l)
	defer d.free()
	d.run(t, l.ios/warmUp) // until tables and pools have their size
	var n int
	var rate float64
	for range 2 { // on a busy machine a volume may start its many workers in the first round
		n = allocations(func() { d.run(t, l.ios) })
		rate = float64(n) / float64(l.ios)
		t.Logf("%d allocations in %d I/Os: %.5f each", n, l.ios, rate)
		if float64(n) < aside+most*float64(l.ios) {
			return
		}
	}
	t.Errorf("%.4f allocations an I/O, want less than %v", rate, most)
}

// allocations counts heap allocations while f runs, without those that Go's scheduler makes for a new thread: it adds
// threads if the system lets the existing ones wait, which says nothing about f.
func allocations(f func()) int {
	const ofThread = 7 // an m, its two stacks' g, and what goes with them (runtime.allocm)
	threads := pprof.Lookup("threadcreate")
	var before, after runtime.MemStats
	added := -threads.Count()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	added += threads.Count()
	return int(after.Mallocs-before.Mallocs) - added*ofThread
}

// BenchmarkIO is the cost of an I/O on both sides together, in one process.
func BenchmarkIO(b *testing.B) {
	spec, o := memVolume(b)
	remote := servePair(b, spec, o)
	for _, path := range localPaths {
		h := dialPair(b, remote, path)
		for _, l := range []ioLoad{{op: nvme.OpRead, size: 4 << 10}, {op: nvme.OpWrite, size: 4 << 10},
			{op: nvme.OpRead, size: 128 << 10}, {op: nvme.OpWrite, size: 128 << 10}} {
			b.Run(path+"/"+l.String(), func(b *testing.B) {
				d := newDriver(b, h, l)
				defer d.free()
				d.run(b, 1000)
				b.SetBytes(int64(l.size))
				b.ReportAllocs()
				b.ResetTimer()
				d.run(b, b.N)
			})
		}
		h.close(b)
	}
}

// driver keeps loadDepth I/Os of one kind outstanding on one queue.
type driver struct {
	h     *hostSide
	queue *host.Queue
	load  ioLoad
	reqs  []*host.Request
	rng   *rand.PCG
	slots uint64 // places on the namespace
	left  atomic.Int64
	ended chan error // of every request
}

func newDriver(t testing.TB, h *hostSide, l ioLoad) *driver {
	t.Helper()
	ns := h.namespace(t, 1)
	d := &driver{h: h, queue: h.Queues()[0], load: l, rng: rand.NewPCG(1, 2),
		slots: uint64(ns.Size()) / uint64(l.size), ended: make(chan error, loadDepth)}
	blocks := l.size / ns.BlockSize()
	for range loadDepth {
		b, err := h.Alloc(l.size)
		if err != nil {
			t.Fatal(err)
		}
		r := &host.Request{Data: b}
		// Only the transport's context runs Done, one call at a time, as there is one queue.
		r.Done = func(r *host.Request) {
			if err := r.Check(); err != nil || d.left.Add(-1) < 0 {
				d.ended <- err
				return
			}
			r.Cmd.SetIO(l.op, ns.ID, d.rng.Uint64()%d.slots*uint64(blocks), uint32(blocks), 0)
			d.queue.SubmitOne(r)
		}
		d.reqs = append(d.reqs, r)
	}
	for _, r := range d.reqs {
		r.Cmd.SetIO(l.op, ns.ID, 0, uint32(blocks), 0)
	}
	return d
}

// run does n I/Os.
func (d *driver) run(t testing.TB, n int) {
	t.Helper()
	d.left.Store(int64(max(n-len(d.reqs), 0)))
	reqs := d.reqs[:min(n, len(d.reqs))]
	d.queue.Submit(reqs)
	for range reqs {
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
	}
}

func (d *driver) free() {
	for _, r := range d.reqs {
		d.h.Transport.Free(r.Data)
	}
}

// pathsDriver keeps loadDepth Reads and Writes of one block outstanding on all paths together.
type pathsDriver struct {
	s           *multipath.Subsystem
	ns          *multipath.Namespace
	reqs        []*host.Request
	left, place atomic.Int64
	ended       chan error // of every request
}

func newPathsDriver(t *testing.T, s *multipath.Subsystem) *pathsDriver {
	t.Helper()
	ns, err := s.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	d := &pathsDriver{s: s, ns: ns, ended: make(chan error, loadDepth)}
	for range loadDepth {
		data, err := s.Alloc(ns.BlockSize())
		if err != nil {
			t.Fatal(err)
		}
		d.reqs = append(d.reqs, &host.Request{Data: data, Done: d.next})
	}
	return d
}

// next is Done of each request; the contexts of two transports call it concurrently.
func (d *pathsDriver) next(r *host.Request) {
	if err := r.Check(); err != nil || d.left.Add(-1) < 0 {
		d.ended <- err
		return
	}
	op := nvme.OpRead
	n := uint64(d.place.Add(1))
	if n%2 == 0 {
		op = nvme.OpWrite
	}
	blocks := uint64(d.ns.Size()) / uint64(d.ns.BlockSize())
	r.Cmd.SetIO(op, d.ns.ID, n*7%blocks, 1, 0)
	d.ns.Lane(0).SubmitOne(r)
}

// run does n I/Os.
func (d *pathsDriver) run(t *testing.T, n int) {
	t.Helper()
	d.left.Store(int64(n - len(d.reqs)))
	for _, r := range d.reqs {
		r.Cmd.SetIO(nvme.OpRead, d.ns.ID, 0, 1, 0)
		d.ns.Lane(0).SubmitOne(r)
	}
	for range d.reqs {
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
	}
}

func (d *pathsDriver) free() {
	for _, r := range d.reqs {
		d.s.Free(r.Data)
	}
}

// TestNoAllocationsPaths is TestNoAllocations through two paths at once.
func TestNoAllocationsPaths(t *testing.T) {
	if racing() {
		t.Skip("the race detector allocates")
	}
	noLeaks(t)
	spec, o := memVolume(t)
	remote := servePair(t, spec, o)
	a, b := dialPair(t, remote, "rdma"), dialPair(t, remote, "tcp")
	defer a.close(t)
	defer b.close(t)
	cfg := multipath.Config{Paths: []host.Config{a.Config(), b.Config()}, Policy: multipath.RoundRobin}
	for i := range cfg.Paths {
		cfg.Paths[i].HostNQN, cfg.Paths[i].HostID = cfg.Paths[0].HostNQN, cfg.Paths[0].HostID
	}
	s, err := multipath.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := newPathsDriver(t, s)
	defer d.free()
	const ios = 20_000
	d.run(t, ios/5)
	n := allocations(func() { d.run(t, ios) })
	t.Logf("%d allocations in %d I/Os", n, ios)
	if n >= 100+ios/100 {
		t.Errorf("%d allocations", n)
	}
	for _, p := range s.Paths() {
		if p.Counters.Ended.Load() < ios/4 {
			t.Errorf("%s took %d requests", p.Name(), p.Counters.Ended.Load())
		}
	}
}
