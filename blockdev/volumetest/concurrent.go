package volumetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// testModel runs random operations against a model in memory, each worker in its own part, concurrently. Some writes
// use memory that the volume lends, if it does.
func testModel(s *session) {
	const steps = 400
	part := s.c.Size / workers
	run(s, func(i int) error {
		m := &model{
			c: NewClient(s.v), rnd: newRandom(s.seed, uint64(i)),
			base: part * int64(i), data: make([]byte, part), bs: s.bs,
			forgets: s.c.Forgets, zeroes: s.v.Info().ZeroAfterDiscard,
			buf: make([]byte, 1<<20), unit: s.unit(),
		}
		m.lender, _ = s.v.(blockdev.Lender)
		for range steps {
			if err := m.step(); err != nil {
				return err
			}
		}
		return m.check(0, int64(len(m.data)))
	})
}

// workers is the number of goroutines of run.
const workers = 4

// run runs fn in goroutines and reports their errors.
func run(s *session, fn func(i int) error) {
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			if err := fn(i); err != nil {
				s.Errorf("worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// model is the expected content of a part of the volume.
type model struct {
	c       *Client
	rnd     random
	base    int64
	data    []byte
	buf     []byte
	bs      int64
	forgets bool
	zeroes  bool
	lender  blockdev.Lender // nil if the volume lends nothing
	unit    int64
}

func (m *model) step() error {
	blocks := int64(len(m.data)) / m.bs
	off := m.rnd.Int64N(blocks)
	n := 1 + m.rnd.Int64N(min(blocks-off, 16))
	if m.rnd.IntN(8) == 0 {
		n = 1 + m.rnd.Int64N(min(blocks-off, int64(len(m.buf))/m.bs))
	}
	off, n = off*m.bs, n*m.bs
	r := blockdev.Request{Offset: m.base + off, Length: n, FUA: m.rnd.IntN(8) == 0, MayUnmap: m.rnd.IntN(2) == 0}
	switch x := m.rnd.IntN(20); {
	case x < 9:
		return m.check(off, n)
	case x < 13 && m.lender != nil:
		return m.writeLent()
	case x < 16:
		b := m.buf[:n]
		m.rnd.Fill(b)
		if !m.forgets {
			copy(m.data[off:], b)
		}
		cut := m.rnd.Int64N(n + 1)
		r.Op, r.Bufs = blockdev.OpWrite, [][]byte{b[:cut], b[cut:]}
	case x < 18:
		clear(m.data[off : off+n])
		r.Op = blockdev.OpWriteZeroes
	case x < 19 && m.zeroes:
		clear(m.data[off : off+n])
		r.Op = blockdev.OpDiscard
	default:
		r = blockdev.Request{Op: blockdev.OpFlush}
	}
	return m.c.Do(r)
}

// writeLent borrows some units and writes them, or returns them.
func (m *model) writeLent() error {
	n := m.unit * (1 + m.rnd.Int64N(min(max(256<<10/m.unit, 4), int64(len(m.data))/m.unit)))
	off := m.rnd.Int64N((int64(len(m.data))-n)/m.bs+1) * m.bs
	if m.rnd.IntN(2) == 0 {
		off -= off % m.unit
	}
	b := m.buf[:n]
	m.rnd.Fill(b)
	segs, loan, err := m.lender.Lend(nil, n)
	switch {
	case errors.Is(err, blockdev.ErrBusy):
		copy(m.data[off:], b)
		return m.c.Write(b, m.base+off, false)
	case err != nil:
		return err
	}
	fill(segs, b)
	if m.rnd.IntN(8) == 0 {
		m.lender.Return(loan)
		return nil
	}
	copy(m.data[off:], b)
	return m.c.Do(blockdev.Request{Op: blockdev.OpWrite, Offset: m.base + off, Length: n, Loan: loan})
}

func (m *model) check(off, n int64) error {
	for n > 0 {
		b := m.buf[:min(n, int64(len(m.buf)))]
		if err := m.c.Read(b, m.base+off); err != nil {
			return err
		}
		if want := m.data[off : off+int64(len(b))]; !bytes.Equal(b, want) {
			for i := range b {
				if b[i] != want[i] {
					return fmt.Errorf("byte %d: got %#x, want %#x", m.base+off+int64(i), b[i], want[i])
				}
			}
		}
		off += int64(len(b))
		n -= int64(len(b))
	}
	return nil
}

// testWholeBlocks has readers and writers overlap on the same blocks. Each block is filled with one number, repeated,
// or zeroed, and must be read that way.
func testWholeBlocks(s *session) {
	const blocks, steps = 8, 250
	var writing atomic.Int32
	writing.Store(2)
	run(s, func(i int) error {
		c, rnd := NewClient(s.v), newRandom(s.seed, uint64(i))
		b := make([]byte, blocks*s.bs)
		if i < 2 {
			defer writing.Add(-1)
			return stamp(c, rnd, b, s.bs, steps)
		}
		for writing.Load() > 0 {
			if err := c.Read(b, stampedAt(s.bs)); err != nil {
				return err
			}
			if err := checkStamps(b, s.bs); err != nil {
				return err
			}
		}
		return nil
	})
}

// stampedAt is where stamp begins to write: small blocks lie on both sides of a boundary at which a volume may divide
// requests.
func stampedAt(bs int64) int64 { return max(0, 64<<10-4*bs) }

// stamp fills the blocks at stampedAt with numbers, by way of b, or zeroes them.
func stamp(c *Client, rnd random, b []byte, bs int64, steps int) error {
	at := stampedAt(bs)
	for range steps {
		if rnd.IntN(4) == 0 {
			zero := blockdev.Request{Op: blockdev.OpWriteZeroes, MayUnmap: rnd.IntN(2) == 0, Offset: at, Length: int64(len(b))}
			if err := c.Do(zero); err != nil {
				return err
			}
			continue
		}
		for off := 0; off < len(b); off += int(bs) {
			putStamp(b[off:off+int(bs)], rnd.Uint64())
		}
		if err := c.Write(b, at, false); err != nil {
			return err
		}
	}
	return nil
}

// putStamp fills b with x.
func putStamp(b []byte, x uint64) {
	for j := 0; j < len(b); j += 8 {
		binary.LittleEndian.PutUint64(b[j:], x)
	}
}

func checkStamps(b []byte, bs int64) error {
	for off := 0; off < len(b); off += int(bs) {
		x := binary.LittleEndian.Uint64(b[off:])
		for j := 8; j < int(bs); j += 8 {
			if binary.LittleEndian.Uint64(b[off+j:]) != x {
				return errors.New("a block is half old and half new")
			}
		}
	}
	return nil
}

// testCloseOutstanding closes a volume that is busy: every request is answered once.
func testCloseOutstanding(s *session) {
	const requests = 64
	v := s.v
	var answers, succeeded atomic.Int32
	var all sync.WaitGroup
	all.Add(requests)
	started := make(chan struct{}, requests)
	for i := range requests {
		b := make([]byte, 16*s.bs)
		r := &blockdev.Request{
			Op: blockdev.OpWrite, Offset: int64(i) * 16 * s.bs, Length: int64(len(b)), Bufs: [][]byte{b},
			Complete: func(r *blockdev.Request) {
				answers.Add(1)
				if r.Err == nil {
					succeeded.Add(1)
				} else {
					wantKind(s, "write while closing", r.Err, blockdev.ErrGone)
				}
				all.Done()
			},
		}
		if i%9 == 8 {
			r.Op, r.Bufs = blockdev.OpFlush, nil
		}
		go func() { v.Submit(r); started <- struct{}{} }()
	}
	for range requests / 4 {
		<-started
	}
	if err := s.v.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	s.v = nil
	all.Wait()
	if answers.Load() != requests || succeeded.Load() < requests/4 {
		s.Errorf("%d answers, %d of them good, to %d requests", answers.Load(), succeeded.Load(), requests)
	}
}

// testAllocations checks that a request allocates nothing.
func testAllocations(s *session) {
	c := NewClient(s.v)
	b := make([]byte, 8*s.bs)
	ops := []*blockdev.Request{
		{Op: blockdev.OpWrite, Length: int64(len(b)), Bufs: [][]byte{b[:100], b[100:]}},
		{Op: blockdev.OpRead, Length: int64(len(b)), Bufs: [][]byte{b}},
		{Op: blockdev.OpWrite, FUA: true, Length: int64(len(b)), Bufs: [][]byte{b}},
		{Op: blockdev.OpWriteZeroes, Length: s.bs},
		{Op: blockdev.OpFlush},
	}
	for _, r := range ops {
		s.do(c, *r)
		if n := testing.AllocsPerRun(50, func() { s.do(c, *r) }); n > 0 {
			s.Errorf("%s: %v allocations", r.Op, n)
		}
	}
	m, ok := s.v.(blockdev.Memory)
	if !ok {
		return
	}
	segs := make([]blockdev.Segment, 0, 8)
	if n := testing.AllocsPerRun(50, func() {
		_, t, err := m.View(segs, 0, 8*s.bs)
		if err != nil {
			s.Fatal(err)
		}
		m.Release(t)
	}); n > 0 {
		s.Errorf("view: %v allocations", n)
	}
	if l, ok := s.v.(blockdev.Lender); ok {
		lent := &blockdev.Request{Op: blockdev.OpWrite, Length: s.unit()}
		if n := testing.AllocsPerRun(50, func() {
			var err error
			if _, lent.Loan, err = l.Lend(segs, lent.Length); err != nil {
				s.Fatal(err)
			}
			s.do(c, *lent)
		}); n > 0 {
			s.Errorf("loan: %v allocations", n)
		}
	}
	if p, ok := s.v.(blockdev.Prefetcher); ok {
		if n := testing.AllocsPerRun(50, func() { p.Prefetch(blockdev.OpRead, 0, 8*s.bs) }); n > 0 {
			s.Errorf("prefetch: %v allocations", n)
		}
	}
}
