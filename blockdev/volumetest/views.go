package volumetest

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// join concatenates the bytes of segments.
func join(segs []blockdev.Segment) []byte {
	var b []byte
	for _, x := range segs {
		b = append(b, x.Bytes...)
	}
	return b
}

// inside reports whether a segment lies in its region, and that is one of regions.
func inside(x blockdev.Segment, regions []*blockdev.Region) bool {
	for _, r := range regions {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(r.Mem)))
		at := uintptr(unsafe.Pointer(unsafe.SliceData(x.Bytes)))
		if r == x.Region && at >= from && at+uintptr(len(x.Bytes)) <= from+uintptr(len(r.Mem)) {
			return true
		}
	}
	return false
}

func testViews(s *session, m blockdev.Memory) {
	c := NewClient(s.v)
	data := s.random(1 << 20)
	s.write(c, data, s.bs)
	if s.c.Forgets {
		clear(data)
	}
	for range 50 {
		off, n := s.cut(len(data))
		first := blockdev.Segment{}
		segs, t, err := m.View([]blockdev.Segment{first}, s.bs+off, n)
		if err != nil {
			s.Fatal(err)
		}
		if segs[0].Region != nil {
			s.Fatal("View didn't append")
		}
		for _, x := range segs[1:] {
			if !inside(x, m.Regions()) {
				s.Fatal("a segment outside of the regions")
			}
		}
		s.compare(s.bs+off, join(segs[1:]), data[off:off+n])
		m.Release(t)
	}
	if _, t, err := m.View(nil, s.bs, 0); err != nil {
		s.Errorf("an empty view: %v", err)
	} else {
		m.Release(t)
	}
	_, _, err := m.View(nil, s.c.Size, s.bs)
	wantKind(s, "view beyond the end", err, blockdev.ErrRange)
	_, _, err = m.View(nil, 1, s.bs)
	wantKind(s, "view of half blocks", err, blockdev.ErrInvalid)
}

// testViewWriters writes under views: what a view shows stays as it was until its release, and then the write
// completes.
func testViewWriters(s *session, m blockdev.Memory) {
	c := NewClient(s.v)
	old := s.random(256 << 10)
	s.write(c, old, 0)
	segs, t1, err := m.View(nil, 64<<10, 4*s.bs)
	if err != nil {
		s.Fatal(err)
	}
	_, t2, err := m.View(nil, 64<<10+s.bs, s.bs)
	if err != nil {
		s.Fatalf("a second view of the same blocks: %v", err)
	}
	fresh := s.random(len(old))
	var done atomic.Int32
	for i, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpWriteZeroes} {
		r := &blockdev.Request{Op: op, Length: int64(len(fresh)), Bufs: [][]byte{fresh},
			Complete: func(r *blockdev.Request) {
				if r.Err != nil {
					s.Errorf("write: %v", r.Err)
				}
				done.Add(1)
			}}
		if i == 1 {
			r.Offset, r.Length = 64<<10+s.bs, s.bs
		}
		s.v.Submit(r)
	}
	s.compare(64<<10, join(segs), old[64<<10:][:4*s.bs])
	if _, t, err := m.View(nil, 64<<10, s.bs); err == nil {
		m.Release(t) // a kind that writes elsewhere can continue
	} else if !errors.Is(err, blockdev.ErrBusy) {
		s.Errorf("view that meets a writer: %v", err)
	}
	m.Release(t1)
	s.compare(64<<10, join(segs), old[64<<10:][:4*s.bs]) // t2 still holds a part
	m.Release(t2)
	if n := done.Load(); n != 2 {
		s.Fatalf("%d of 2 writes complete after the release", n)
	}
	s.expect(c, 0, fresh[:64<<10])
	s.expect(c, 64<<10+2*s.bs, fresh[64<<10+2*s.bs:])

	s.storm(m)
}

// storm runs views and writers concurrently in all ways.
func (s *session) storm(m blockdev.Memory) {
	var writing atomic.Int32
	writing.Store(2)
	at := stampedAt(s.bs)
	s.do(NewClient(s.v), blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: at, Length: 8 * s.bs})
	run(s, func(i int) error {
		if i < 2 {
			defer writing.Add(-1)
			return stamp(NewClient(s.v), newRandom(s.seed, uint64(i)), make([]byte, 8*s.bs), s.bs, 100)
		}
		for writing.Load() > 0 {
			segs, t, err := m.View(nil, at, 8*s.bs)
			if errors.Is(err, blockdev.ErrBusy) {
				runtime.Gosched()
				continue
			} else if err != nil {
				return err
			}
			before := join(segs)
			err = checkStamps(before, s.bs)
			if err == nil && !bytes.Equal(before, join(segs)) {
				err = errors.New("the content changed under a view")
			}
			m.Release(t)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// testPrefetch prefetches ranges that exist and that don't, while the volume is used and closed. It must have no effect
// except on time.
func testPrefetch(s *session, m blockdev.Memory) {
	p, ok := m.(blockdev.Prefetcher)
	if !ok {
		s.Skip("it fetches nothing ahead")
	}
	size := s.v.Info().Size
	ranges := [][2]int64{
		{0, s.bs}, {size - s.bs, s.bs}, {0, size}, // existing ranges
		{size, s.bs}, {size - s.bs, 2 * s.bs}, {-s.bs, s.bs}, {math.MinInt64, s.bs}, {math.MaxInt64, math.MaxInt64},
		{0, 0}, {size, 0}, {0, -s.bs}, {1, 1},
	}
	all := func() {
		for _, r := range ranges {
			p.Prefetch(blockdev.OpRead, r[0], r[1])
			p.Prefetch(blockdev.OpWrite, r[0], r[1])
		}
	}
	all()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			all()
		}
	})
	err := stamp(NewClient(s.v), newRandom(s.seed, 0), make([]byte, 8*s.bs), s.bs, 100)
	if err == nil {
		err = s.v.Close()
	}
	stop.Store(true)
	wg.Wait()
	all() // on a closed volume
	if err != nil {
		s.Fatal(err)
	}
	s.v = nil
}

// testViewClose closes a volume while a view is held: the memory must stay until its release.
func testViewClose(s *session, m blockdev.Memory) {
	segs, t, err := m.View(nil, 0, s.bs)
	if err != nil {
		s.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.v.Close() }()
	for { // until Close has begun
		_, t, err := m.View(nil, 0, s.bs)
		if err != nil {
			wantKind(s, "view while closing", err, blockdev.ErrGone)
			break
		}
		m.Release(t)
	}
	select {
	case err := <-closed:
		s.Fatalf("closed under a view: %v", err)
	default:
	}
	s.compare(0, join(segs), make([]byte, s.bs))
	m.Release(t)
	if err := <-closed; err != nil {
		s.Error(err)
	}
	s.v = nil
}
