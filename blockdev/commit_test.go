package blockdev

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFlushesOwed: after a sync that failed flushes fail until one is told that was submitted later, since a flush that
// was on its way promises nothing of what others wrote meanwhile; and then they don't any more.
func TestFlushesOwed(t *testing.T) {
	var c commits
	failure := errors.New("the system tells once")
	submit := func(op Op) *Request {
		r := &Request{Op: op}
		c.begin(r)
		return r
	}
	commit := func(r *Request, fails bool) (told error) {
		t.Helper()
		if !c.join(r) {
			t.Fatal("another runs")
		}
		c.run(r, func() error {
			if fails {
				return failure
			}
			return nil
		}, func(_ *Request, err error) { told = err })
		return told
	}
	before, write := submit(OpFlush), submit(OpWrite)
	first := submit(OpFlush)
	if err := commit(first, true); !errors.Is(err, failure) {
		t.Errorf("the flush whose sync failed: %v", err)
	}
	if err := commit(before, false); !errors.Is(err, failure) {
		t.Errorf("a flush submitted before the failure: %v", err)
	}
	if err := commit(write, false); !errors.Is(err, failure) {
		t.Errorf("a write submitted before the failure: %v", err)
	}
	if err := commit(submit(OpWrite), false); err != nil {
		t.Errorf("a write submitted after it: %v", err)
	}
	waits := submit(OpFlush)
	if err := commit(submit(OpFlush), false); !errors.Is(err, failure) {
		t.Errorf("the first flush submitted after it: %v", err)
	}
	if err := commit(waits, false); !errors.Is(err, failure) {
		t.Errorf("a flush submitted before that was told: %v", err)
	}
	for range 2 {
		if err := commit(submit(OpFlush), false); err != nil {
			t.Errorf("a flush submitted when one was told: %v", err)
		}
	}
	if err := commit(submit(OpWrite), false); err != nil {
		t.Errorf("a write submitted after all that: %v", err)
	}
}

// TestFlushesTogether: flushes that one sync answers aren't told of a failure that another was told of before they came.
func TestFlushesTogether(t *testing.T) {
	var c commits
	failure := errors.New("the system tells once")
	var told []error
	done := func(_ *Request, err error) { told = append(told, err) }
	flush := func() *Request {
		r := &Request{Op: OpFlush}
		c.begin(r)
		c.join(r)
		return r
	}
	c.run(flush(), func() error { return failure }, done)
	c.run(flush(), func() error { return nil }, done)
	first := true
	c.run(flush(), func() error {
		if first {
			flush()
			flush()
		}
		first = false
		return nil
	}, done)
	if len(told) != 5 || told[0] == nil || told[1] == nil || told[2] != nil || told[3] != nil || told[4] != nil {
		t.Errorf("the flushes were told %v", told)
	}
}

// soleSync is a storage that notes whether syncs run beside each other.
type soleSync struct {
	storage
	now, most atomic.Int32
}

func (s *soleSync) sync() error {
	n := s.now.Add(1)
	s.most.Store(max(n, s.most.Load()))
	time.Sleep(time.Millisecond)
	s.now.Add(-1)
	return s.storage.sync()
}

// TestOneSync: one sync runs at a time, whoever needs it, since the system tells only one of an error.
func TestOneSync(t *testing.T) {
	v := openInternal(t, IOBuffered)
	s := &soleSync{storage: v.store}
	v.store = s
	var all []*Request
	for i := range int64(64) {
		all = append(all, &Request{Op: OpFlush},
			&Request{Op: OpWrite, FUA: true, Offset: i * 8192, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}},
			&Request{Op: OpWriteZeroes, FUA: true, Offset: i*8192 + 4096, Length: 4096})
	}
	await(t, v, all...)
	if n := s.most.Load(); n != 1 {
		t.Errorf("%d syncs at once", n)
	}
}

// TestPageCacheSyncs: through the page cache what is to be durable when it completes takes a sync, and nothing else does;
// where a writer writes, as to a file, and where whoever has a write may do so at once, as to a device.
func TestPageCacheSyncs(t *testing.T) {
	v := openInternal(t, IOBuffered)
	s := &syncCounter{storage: v.store}
	v.store = s
	defer func(w *writer) { v.writer = w }(v.writer)
	for name, w := range map[string]*writer{"a writer": v.writer, "none": nil} {
		v.writer = w
		for _, x := range []struct {
			op    Op
			fua   bool
			syncs int
		}{
			{OpWrite, false, 0}, {OpWrite, true, 1}, {OpWriteZeroes, false, 0}, {OpWriteZeroes, true, 1},
			{OpRead, false, 0}, {OpDiscard, false, 0}, {OpFlush, false, 1},
		} {
			s.syncs = 0
			r := &Request{Op: x.op, FUA: x.fua, Length: 4096}
			if x.op <= OpWrite {
				r.Bufs = [][]byte{make([]byte, 4096)}
			}
			await(t, v, r)
			if s.syncs != x.syncs {
				t.Errorf("%s, %s with FUA %v: %d syncs, want %d", name, x.op, x.fua, s.syncs, x.syncs)
			}
		}
	}
}

// lossy is a storage that loses what it has taken, once, while the one who brought it isn't answered yet: it tells a flush
// that comes meanwhile, and no other.
type lossy struct {
	storage
	flush func() error // of the volume
	told  error        // the flushes were
	lost  bool
	lose  bool
}

func (l *lossy) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	n, err := l.storage.transfer(op, iov, off, flags)
	l.forget()
	return n, err
}

func (l *lossy) allocate(mode uint32, off, n int64) error {
	err := l.storage.allocate(mode, off, n)
	l.forget()
	return err
}

func (l *lossy) forget() {
	if !l.lost {
		l.lost, l.lose = true, true
		l.told = errors.Join(l.flush(), l.flush())
	}
}

func (l *lossy) sync() error {
	if l.lose {
		l.lose = false
		return unix.EIO
	}
	return l.storage.sync()
}

// TestWritesLostMeanwhile: a write, or zeroes, that the system lost before they were answered fail, whoever brings them to
// it: flushes were told of that already, and the next would promise what isn't there.
func TestWritesLostMeanwhile(t *testing.T) {
	for _, x := range []struct {
		op     Op
		writer bool // as with a file, and not with a device
	}{{OpWrite, true}, {OpWrite, false}, {OpWriteZeroes, false}} {
		v := openInternal(t, IOBuffered)
		l := &lossy{storage: v.store}
		ask := func(r *Request) error {
			done := make(chan error, 1)
			r.Complete = func(r *Request) { done <- r.Err }
			v.Submit(r)
			return <-done
		}
		l.flush = func() error { return ask(&Request{Op: OpFlush}) }
		w := v.writer
		if v.store = l; !x.writer {
			v.writer = nil
		}
		r := &Request{Op: x.op, Length: 4096}
		if x.op == OpWrite {
			r.Bufs = [][]byte{make([]byte, 4096)}
		}
		if err := ask(r); !errors.Is(err, unix.EIO) || !errors.Is(l.told, unix.EIO) {
			t.Errorf("%s, with a writer: %v: %v; flushes meanwhile were told %v", x.op, x.writer, err, l.told)
		}
		if err := l.flush(); err != nil {
			t.Errorf("%s, with a writer: %v: a flush afterwards: %v", x.op, x.writer, err)
		}
		v.writer = w
	}
}

// TestQueuedWriteLostMeanwhile is TestWritesLostMeanwhile for a write that the kernel's queue has done.
func TestQueuedWriteLostMeanwhile(t *testing.T) {
	v := openInternal(t, IODirect)
	l := &lossy{storage: v.store}
	v.store = l
	done := make(chan error, 1)
	l.flush = func() error {
		v.Submit(&Request{Op: OpFlush, Complete: func(r *Request) { done <- r.Err }})
		return <-done
	}
	r := &Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}, Complete: func(r *Request) { done <- r.Err }}
	r.lane = v.lanes.enter()
	v.commits.begin(r)
	l.forget()
	if !v.took(nil, r, 4096, 0) {
		t.Fatal("it isn't done")
	}
	if err := <-done; !errors.Is(err, unix.EIO) || !errors.Is(l.told, unix.EIO) {
		t.Errorf("%v; flushes meanwhile were told %v", err, l.told)
	}
}
