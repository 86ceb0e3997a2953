package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// work is one measurement.
type work struct {
	file    string
	size    int64
	path    path
	write   bool
	bs      int
	depth   int
	runtime time.Duration
}

// pattern returns fio's name for it.
func (w *work) pattern() string {
	if w.write {
		return "randwrite"
	}
	return "randread"
}

// fill writes the whole file, so that everything is allocated and in the page cache.
func fill(p *plan) error {
	_, err := os.Stat(p.file)
	o := blockdev.Options{IO: blockdev.IOBuffered, Preallocate: true}
	if errors.Is(err, os.ErrNotExist) {
		o.Size = p.size
	}
	v, err := blockdev.OpenFile(p.file, o)
	if err != nil {
		return err
	}
	defer v.Close()
	p.size = min(p.size, v.Info().Size)
	b := make([]byte, 1<<20)
	done := make(chan error, 1)
	r := &blockdev.Request{Op: blockdev.OpWrite, Complete: func(r *blockdev.Request) { done <- r.Err }}
	for off := int64(0); off < p.size; off += r.Length {
		r.Offset, r.Length = off, min(int64(len(b)), p.size-off)
		r.Bufs = [][]byte{b[:r.Length]}
		v.Submit(r)
		if err := <-done; err != nil {
			return err
		}
	}
	r.Op, r.Bufs = blockdev.OpFlush, nil
	v.Submit(r)
	return <-done
}

// warm reads the whole file if it is to be measured through the page cache, so that all of it is there: some systems
// evict within seconds what wasn't used meanwhile.
func (w *work) warm() error {
	if w.path.direct {
		return nil
	}
	f, err := os.Open(w.file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// volume measures the volume: requests a second.
func (w *work) volume() (float64, error) {
	if err := w.warm(); err != nil {
		return 0, err
	}
	v, err := blockdev.OpenFile(w.file, blockdev.Options{IO: w.path.mode})
	if err != nil {
		return 0, err
	}
	defer v.Close()
	buffers, done, err := w.buffers(v)
	if err != nil {
		return 0, err
	}
	defer done()
	var all sync.WaitGroup
	slots := make([]*slot, w.depth)
	began := time.Now()
	for i := range slots {
		slots[i] = newSlot(w, v, buffers[i], began.Add(w.runtime), all.Done)
		all.Add(1)
		go slots[i].pump()
	}
	all.Wait()
	took := time.Since(began)
	n := 0
	for _, s := range slots {
		if s.r.Err != nil {
			return 0, s.r.Err
		}
		n += s.done
	}
	return float64(n) / took.Seconds(), nil
}

// buffers returns a buffer for each concurrent request, in memory like a target's: in huge pages, if the system has
// some, and registered with the volume. A disk that gets adjacent pieces has fewer of them to go through.
func (w *work) buffers(v blockdev.Volume) (buffers [][]byte, done func(), err error) {
	var ends []func()
	a, err := mem.New(mem.Config{OnGrow: func(_ int, chunk []byte) error {
		if g, ok := v.(blockdev.Registrar); ok {
			ends = append(ends, g.Register(chunk))
		}
		return nil
	}})
	if err != nil {
		return nil, nil, err
	}
	noise := rand.NewChaCha8([32]byte{})
	for range w.depth {
		if b := a.Alloc(w.bs); b != nil {
			_, _ = noise.Read(b) // pages that were never written are all the same one
			buffers = append(buffers, b)
		}
	}
	done = func() {
		for _, end := range ends {
			end()
		}
		a.Close()
	}
	if len(buffers) < w.depth {
		err = a.Err()
		done()
	}
	return buffers, done, err
}

// slot is a request that is resubmitted as soon as it is answered.
type slot struct {
	v      blockdev.Volume
	r      blockdev.Request
	blocks int64
	rnd    *rand.Rand
	until  time.Time
	end    func()
	state  atomic.Int32
	done   int
}

// States of a slot: Submit has not returned, it has, or the answer came before it did.
const (
	submitting = iota
	waiting
	answered
)

func newSlot(w *work, v blockdev.Volume, buf []byte, until time.Time, end func()) *slot {
	s := &slot{v: v, blocks: w.size / int64(w.bs), until: until, end: end, rnd: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	s.r = blockdev.Request{Op: blockdev.OpRead, Length: int64(w.bs), Bufs: [][]byte{buf}, Complete: s.complete}
	if w.write {
		s.r.Op = blockdev.OpWrite
	}
	return s
}

// pump submits until an answer will come later, or the time is over.
func (s *slot) pump() {
	for {
		s.r.Offset = s.rnd.Int64N(s.blocks) * s.r.Length
		s.state.Store(submitting)
		s.v.Submit(&s.r)
		if s.state.CompareAndSwap(submitting, waiting) {
			return // complete continues
		}
		if s.over() {
			return
		}
	}
}

func (s *slot) complete(*blockdev.Request) {
	s.done++
	if s.state.CompareAndSwap(submitting, answered) {
		return // pump continues
	}
	if !s.over() {
		s.pump()
	}
}

// over ends the slot if its time is over. Asking for the time is cheap compared with a request.
func (s *slot) over() bool {
	if s.r.Err == nil && time.Now().Before(s.until) {
		return false
	}
	s.end()
	return true
}
