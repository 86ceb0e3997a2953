package simulation

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// disk is a volume in memory and the faults that it has.
type disk struct {
	volume blockdev.Volume // what targets get
	freeze *wrap.Freezer   // nil if the disk has no faults, and lends its memory instead
	faults *faultyMemory
	blocks int
	block  int // bytes
	uuid   [16]byte
}

const diskBlocks = 24 // few, so that hosts meet

func newDisk(t *testing.T, rng *rand.Rand, index int, unordered bool) *disk {
	t.Helper()
	d := &disk{block: 512 << (3 * rng.IntN(2)), uuid: [16]byte{byte(index + 1), 6: 0x40, 8: 0x80}}
	d.blocks = diskBlocks
	memory, err := blockdev.NewMemory(blockdev.Options{Size: int64(2 * d.blocks * d.block), BlockSize: d.block})
	if err != nil {
		t.Fatal(err)
	}
	if index > keptDisk && rng.IntN(3) == 0 {
		d.volume = memory
		return d
	}
	d.faults = &faultyMemory{Volume: memory, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), unordered: unordered, size: int64(d.blocks * d.block)}
	d.freeze = wrap.NewFreezer(d.faults)
	d.volume = d.freeze
	return d
}

// faultyMemory fails some requests, answers some late, and grows.
type faultyMemory struct {
	blockdev.Volume
	sizes     blockdev.SizeWatchers
	unordered bool // requests that are late are executed late, rather than answered late

	mu       sync.Mutex
	rng      *rand.Rand
	size     int64
	delay    time.Duration // of a request, at most
	failures float64       // of the requests
	underWay int
}

func (m *faultyMemory) Info() blockdev.Info {
	i := m.Volume.Info()
	m.mu.Lock()
	defer m.mu.Unlock()
	i.Size = m.size
	return i
}

// OnResize implements blockdev.Resizer.
func (m *faultyMemory) OnResize(f func(int64)) (stop func()) { return m.sizes.Add(f) }

// Refresh implements blockdev.Resizer.
func (m *faultyMemory) Refresh() error {
	m.sizes.Tell(m.Info().Size)
	return nil
}

// grow adds a block, if there is room.
func (m *faultyMemory) grow() {
	whole := m.Volume.Info()
	m.mu.Lock()
	m.size = min(m.size+int64(whole.BlockSize), whole.Size)
	m.mu.Unlock()
	_ = m.Refresh()
}

func (m *faultyMemory) set(delay time.Duration, failures float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay, m.failures = delay, failures
}

func (m *faultyMemory) busy() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.underWay
}

var errMedium = errors.New("simulated")

// Submit executes and answers r, now or later. What fails may have been executed, or not.
func (m *faultyMemory) Submit(r *blockdev.Request) {
	m.mu.Lock()
	m.underWay++
	fails := m.rng.Float64() < m.failures
	executed := !fails || m.rng.IntN(2) == 0
	var late time.Duration
	if m.delay > 0 {
		late = time.Duration(m.rng.Int64N(int64(m.delay)))
	}
	m.mu.Unlock()
	info := m.Volume.Info()
	answer := func(err error) {
		if fails {
			err = info.Fail(r.Op, r.Offset, blockdev.ErrMedium, errMedium)
		}
		m.mu.Lock()
		m.underWay--
		m.mu.Unlock()
		r.End(err)
	}
	execute := func(then func(error)) {
		if !executed {
			then(nil)
			return
		}
		m.Volume.Submit(&blockdev.Request{
			Op: r.Op, FUA: r.FUA, MayUnmap: r.MayUnmap, Offset: r.Offset, Length: r.Length, Bufs: r.Bufs, Unwanted: r.Unwanted,
			Complete: func(d *blockdev.Request) { then(d.Err) },
		})
	}
	switch {
	case late == 0:
		execute(answer)
	case m.unordered:
		time.AfterFunc(late, func() { execute(answer) })
	default:
		execute(func(err error) { time.AfterFunc(late, func() { answer(err) }) })
	}
}
