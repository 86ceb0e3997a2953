package blockdev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

const (
	crashBlocks = 24
	crashDepth  = 6   // requests at a time
	crashSteps  = 150 // of the disk, in a history; the power may fail at each
	// crashPoints is how many such points are tried for each kind; `make crash` tries more.
	crashPoints = 400
)

// crashKind is a way to access a file, on some sort of disk.
type crashKind struct {
	name   string
	block  int
	unit   int // sector of the disk
	direct bool
	writer bool
	aio    bool
	faults simFaults
}

var crashKinds = []crashKind{
	{name: "page cache", block: 512, unit: 512, writer: true},
	{name: "page cache, small sectors", block: 2048, unit: 512, writer: true, faults: simFaults{cut: true}},
	{name: "page cache that fails", block: 512, unit: 512, writer: true, faults: simFaults{errors: true}},
	{name: "page cache of a device", block: 512, unit: 512, faults: simFaults{cut: true}},
	{name: "page cache of a device that fails", block: 512, unit: 512, faults: simFaults{errors: true}},
	{name: "page cache of a device that fails in pieces", block: 512, unit: 512, faults: simFaults{errors: true, cut: true}},
	{name: "page cache that fails in pieces", block: 512, unit: 512, writer: true, faults: simFaults{errors: true, cut: true}},
	{name: "direct that fails in pieces", block: 512, unit: 512, direct: true, faults: simFaults{errors: true, cut: true}},
	{name: "direct, asynchronous that fails in pieces", block: 512, unit: 512, direct: true, aio: true, faults: simFaults{errors: true, cut: true}},
	{name: "direct, workers", block: 512, unit: 512, direct: true, faults: simFaults{cut: true}},
	{name: "direct without RWF_DSYNC", block: 512, unit: 512, direct: true, faults: simFaults{noDsync: true}},
	{name: "direct that fails", block: 512, unit: 512, direct: true, faults: simFaults{errors: true}},
	{name: "direct, asynchronous", block: 512, unit: 512, direct: true, aio: true, faults: simFaults{cut: true}},
	{name: "direct, asynchronous, small sectors", block: 2048, unit: 512, direct: true, aio: true, faults: simFaults{cut: true}},
	{name: "direct, asynchronous without RWF_DSYNC", block: 512, unit: 512, direct: true, aio: true, faults: simFaults{noDsync: true}},
	{name: "direct, asynchronous that fails", block: 512, unit: 512, direct: true, aio: true, faults: simFaults{errors: true}},
}

// TestFileCrashes lets the power fail at every step of random histories.
func TestFileCrashes(t *testing.T) {
	points := int(fuzzing.Number(t, "NVMEOF_CRASH_POINTS", crashPoints))
	seed := fuzzing.Number(t, "NVMEOF_CRASH_SEED", rand.Uint64()>>16)
	for _, k := range crashKinds {
		t.Run(k.name, func(t *testing.T) {
			done := 0
			for i := uint64(0); done < points; i++ {
				n, err := k.history(t, seed+i)
				if err != nil {
					t.Fatalf("NVMEOF_CRASH_SEED=%d: after %d points: %v", seed+i, done+n, err)
				}
				done += n
			}
			t.Logf("%d points, seeds from %d on", done, seed)
		})
	}
}

// TestFileCrashesAreCaught breaks the storage below, and what the volume relies on, in the ways that matter: the same
// histories must detect each.
func TestFileCrashesAreCaught(t *testing.T) {
	for _, x := range []struct {
		name   string
		faults simFaults
	}{
		{"no fsync", simFaults{brokenSync: true}},
		{"no FUA", simFaults{brokenDsync: true}},
	} {
		for _, k := range crashKinds {
			if k.faults.noDsync || !k.direct && x.faults.brokenDsync {
				continue // RWF_DSYNC isn't relied on
			}
			t.Run(x.name+"/"+k.name, func(t *testing.T) {
				k.faults.brokenSync, k.faults.brokenDsync = x.faults.brokenSync, x.faults.brokenDsync
				for seed := range uint64(20) {
					if _, err := k.history(t, seed); err != nil {
						if !errors.Is(err, crash.ErrLost) {
							t.Errorf("caught as %v", err)
						}
						return
					}
				}
				t.Error("20 histories noticed nothing")
			})
		}
	}
}

// TestFileCrashSeeds repeats a history by its seed.
func TestFileCrashSeeds(t *testing.T) {
	for _, k := range crashKinds {
		k.faults.brokenSync = true // so that there is an error to compare
		n, err := k.history(t, 7)
		for range 3 {
			if m, again := k.history(t, 7); m != n || fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("%s: %d points and %v, then %d and %v", k.name, n, err, m, again)
			}
		}
	}
}

// history runs a random history, and counts the points at which the power could have failed.
func (k crashKind) history(t *testing.T, seed uint64) (points int, err error) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		d := &simDisk{m: crash.NewMedium(int64(crashBlocks*k.block), k.unit), faults: k.faults, rnd: rnd}
		h := &crashHistory{k: k, d: d, rnd: rnd, v: k.volume(d)}
		h.atoms = k.block / k.unit
		h.ledger = crash.NewLedger(crashBlocks * h.atoms)
		points, err = h.run()
	})
	return points, err
}

// volume is a file volume on a disk.
func (k crashKind) volume(d *simDisk) *file {
	v := &file{
		info:  Info{Kind: "file", BlockSize: k.block, VolatileCache: true, Discard: true},
		store: d, direct: k.direct, align: alignment{mem: 1, unit: 1}, lanes: newLanes(),
	}
	v.size.Store(d.m.Size())
	v.noNow.Store(true) // the disk answers all requests
	v.pool = NewPool(poolSize, v.run)
	v.commits.init(func() error { return v.store.sync() }, v.finish)
	if !k.direct || k.block > k.unit {
		v.ranges = newRangeLock(v.queue)
	}
	if k.writer {
		v.writer = newWriter(v)
	}
	if k.aio {
		v.aio = newAIO(v, newSimAIO(d))
		v.aio.writes = newAIOWrites(v.aio)
	}
	return v
}

// crashHistory is a random history of requests.
type crashHistory struct {
	k      crashKind
	d      *simDisk
	rnd    *rand.Rand
	v      *file
	ledger *crash.Ledger
	atoms  int // pieces of a block that reach the disk whole
	seq    uint64
	busy   [crashBlocks]bool
	active int

	groundless error // of a request that failed though the disk hadn't
}

func (h *crashHistory) run() (points int, err error) {
	for points = 0; points < crashSteps && err == nil; {
		for h.active < crashDepth && h.rnd.IntN(3) > 0 {
			h.submit()
		}
		if h.d.faults.errors && !h.k.direct && h.rnd.IntN(60) == 0 {
			h.d.writeBackFails()
		}
		switch {
		case h.d.step():
			err = h.crash(points)
			points++
		case h.active == crashDepth:
			panic(fmt.Sprintf("%d requests wait for nothing", h.active)) // nor would the volume close
		}
	}
	for h.d.step() {
	}
	if h.active != 0 && err == nil {
		err = fmt.Errorf("%d requests were never answered", h.active)
	}
	return points, errors.Join(err, h.groundless, h.close())
}

func (h *crashHistory) close() error {
	h.d.faults.errors, h.d.absent = false, nil
	closed := make(chan error, 1)
	go func() { closed <- h.v.Close() }()
	for h.d.step() {
	}
	err := <-closed
	if h.d.failed > 0 && errors.Is(err, ErrMedium) {
		return nil // no flush has told so
	}
	return err
}

// submit starts a random request on blocks that no other one is at.
func (h *crashHistory) submit() {
	r := &Request{Op: OpWrite, FUA: h.rnd.IntN(3) == 0}
	switch h.rnd.IntN(8) {
	case 0, 1:
		h.flush()
		return
	case 2:
		r.Op, r.MayUnmap = OpWriteZeroes, h.rnd.IntN(2) == 0
	case 3:
		r.Op, r.FUA = OpDiscard, false
	}
	first, n := h.rnd.IntN(crashBlocks), 1+h.rnd.IntN(4)
	n = min(n, crashBlocks-first)
	for b := first; b < first+n; b++ {
		if h.busy[b] {
			return
		}
	}
	h.write(r, first, n)
}

// write submits a request that changes n blocks from first on.
func (h *crashHistory) write(r *Request, first, n int) {
	r.Offset, r.Length = int64(first*h.k.block), int64(n*h.k.block)
	h.seq++
	stamp := h.seq
	if r.Op != OpWrite {
		stamp = 0
	}
	atom := h.k.unit
	data := make([]byte, r.Length)
	for i := range n * h.atoms {
		a := uint64(first*h.atoms + i)
		crash.Stamp(data[i*atom:][:atom], a, stamp)
		h.ledger.Begin(a, stamp)
	}
	for b := first; b < first+n; b++ {
		h.busy[b] = true
		if r.Op == OpWrite {
			r.Bufs = append(r.Bufs, data[(b-first)*h.k.block:][:h.k.block])
		}
	}
	h.active++
	r.Complete = func(r *Request) {
		h.d.mu.Lock()
		defer h.d.mu.Unlock()
		h.active--
		h.answered(r)
		for b := first; b < first+n; b++ {
			h.busy[b] = false
		}
		for i := range n * h.atoms {
			if r.Err != nil {
				h.ledger.Failed(uint64(first*h.atoms + i))
			} else {
				h.ledger.Done(uint64(first*h.atoms+i), r.FUA)
			}
		}
	}
	h.v.Submit(r)
}

func (h *crashHistory) flush() {
	promise := h.ledger.BeginFlush()
	h.active++
	h.v.Submit(&Request{Op: OpFlush, Complete: func(r *Request) {
		h.d.mu.Lock()
		defer h.d.mu.Unlock()
		h.active--
		h.answered(r)
		if r.Err != nil {
			h.ledger.FlushFailed()
		} else {
			h.ledger.Flushed(promise)
		}
	}})
}

// answered notes if a request failed without a reason.
func (h *crashHistory) answered(r *Request) {
	if r.Err != nil && h.d.failed == 0 && h.groundless == nil {
		h.groundless = fmt.Errorf("nothing below has failed: %w", r.Err)
	}
}

// crash lets the power fail now, in several ways, and looks at what is there when it is back.
func (h *crashHistory) crash(point int) error {
	floor := h.ledger.Floor()
	for range 3 {
		image := h.d.m.Crash(h.rnd)
		if point%8 == 0 {
			image = h.recover(image)
		}
		if err := h.ledger.CheckAll(floor, image); err != nil {
			return fmt.Errorf("point %d: %w", point, err)
		}
	}
	return nil
}

// recover reads an image through a volume that is opened on it.
func (h *crashHistory) recover(image []byte) []byte {
	d := &simDisk{m: crash.Restore(image, h.k.unit), rnd: h.rnd}
	v := h.k.volume(d)
	read := make([]byte, len(image))
	r := &Request{Op: OpRead, Length: int64(len(read)), Bufs: [][]byte{read}, Complete: func(*Request) {}}
	v.Submit(r)
	for d.step() {
	}
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	for d.step() {
	}
	<-closed
	return read
}
