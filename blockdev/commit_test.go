package blockdev

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// TestFlushesOwed: after a failed sync, flushes fail until the failure has been reported to one submitted later, since
// a flush that was already on its way promises nothing about what others wrote meanwhile; then they succeed again.
func TestFlushesOwed(t *testing.T) {
	var c commits
	failure := errors.New("the system tells once")
	var syncs, told error
	c.init(func() error { return syncs }, func(_ *Request, err error) { told = err })
	submit := func(op Op) *Request {
		r := &Request{Op: op}
		c.begin(r)
		return r
	}
	commit := func(r *Request, fails bool) error {
		t.Helper()
		if !c.join(r) {
			t.Fatal("another runs")
		}
		if syncs = nil; fails {
			syncs = failure
		}
		c.run(r)
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

// TestFlushesTogether: flushes answered by one sync don't report a failure that another flush reported before they
// came.
func TestFlushesTogether(t *testing.T) {
	var c commits
	failure := errors.New("the system tells once")
	var told []error
	var sync func() error
	c.init(func() error { return sync() }, func(_ *Request, err error) { told = append(told, err) })
	flush := func() *Request {
		r := &Request{Op: OpFlush}
		c.begin(r)
		c.join(r)
		return r
	}
	sync = func() error { return failure }
	c.run(flush())
	sync = func() error { return nil }
	c.run(flush())
	first := true
	sync = func() error {
		if first {
			flush()
			flush()
		}
		first = false
		return nil
	}
	c.run(flush())
	if len(told) != 5 || told[0] == nil || told[1] == nil || told[2] != nil || told[3] != nil || told[4] != nil {
		t.Errorf("the flushes were told %v", told)
	}
}

// soleSync is a storage that notes whether syncs run concurrently.
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

// TestOneSync: only one sync runs at a time, for whatever needs it, since the system reports an error to only one.
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

// TestPageCacheSyncs: through the page cache, requests that must be durable when they complete take a sync, and nothing
// else does; both with a writer, as for a file, and where a write may be done at once by its goroutine, as for a
// device.
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

// lossy is a storage that loses, once, data that it has accepted, before the write is answered: it reports that to a
// flush that comes meanwhile, and to no other.
type lossy struct {
	storage
	flush func() error // of the volume
	told  error        // what the flushes returned
	lost  bool
	lose  bool
	dsync bool // a flush that succeeds waits for the write
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
		if l.told = l.flush(); !l.dsync {
			l.told = errors.Join(l.told, l.flush())
		}
	}
}

func (l *lossy) sync() error {
	if l.lose {
		l.lose = false
		return unix.EIO
	}
	return l.storage.sync()
}

// TestWritesLostMeanwhile: a write, or write zeroes, whose data the system lost before it was answered fails, whatever
// path it took: the loss was already reported to a flush, and the next flush would promise data that isn't there.
func TestWritesLostMeanwhile(t *testing.T) {
	for _, x := range []struct {
		op     Op
		mode   IOMode
		fua    bool
		writer bool // as with a file, but not with a device
	}{
		{op: OpWrite, mode: IOBuffered, writer: true}, {op: OpWrite, mode: IOBuffered}, {op: OpWriteZeroes, mode: IOBuffered},
		{op: OpWrite, mode: IODirect}, {op: OpWrite, mode: IODirect, fua: true},
	} {
		v := openInternal(t, x.mode)
		l := &lossy{storage: v.store, dsync: x.fua}
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
		r := &Request{Op: x.op, FUA: x.fua, Length: 4096}
		if x.op == OpWrite {
			r.Bufs = [][]byte{make([]byte, 4097)[1:]} // with direct I/O, an unaligned buffer goes to a worker
		}
		if err := ask(r); !errors.Is(err, unix.EIO) || !errors.Is(l.told, unix.EIO) {
			t.Errorf("%+v: %v; flushes meanwhile were told %v", x, err, l.told)
		}
		if err := l.flush(); (err != nil) != l.dsync {
			t.Errorf("%+v: a flush afterwards: %v", x, err) // the second after the loss, or the third
		}
		v.writer = w
	}
}

// TestLossWhileAnswered: a flush fails that is submitted after a write was answered whose data the system lost, even if
// two others have failed before, while it was answered: neither promised anything about that write.
func TestLossWhileAnswered(t *testing.T) {
	for _, x := range []struct {
		op     Op
		mode   IOMode
		writer bool // as with a file, but not with a device
		skip   int  // bytes of the buffer; 1 with direct I/O is for a worker
	}{
		{op: OpWrite, mode: IOBuffered, writer: true}, {op: OpWrite, mode: IOBuffered}, {op: OpWriteZeroes, mode: IOBuffered},
		{op: OpWrite, mode: IODirect}, {op: OpWrite, mode: IODirect, skip: 1},
	} {
		v := openInternal(t, x.mode)
		l := &lossy{storage: v.store, lost: true}
		l.flush = func() error { // in this goroutine: a worker that answers does what is submitted meanwhile
			r := &Request{Op: OpFlush, Complete: func(*Request) {}, lane: v.lanes.enter()}
			v.commits.begin(r)
			v.commit(r)
			return r.Err
		}
		w := v.writer
		if v.store = l; !x.writer {
			v.writer = nil
		}
		r := &Request{Op: x.op, Length: 4096}
		if x.op == OpWrite {
			r.Bufs = [][]byte{directio.AlignedBlock(8192)[x.skip:][:4096]}
		}
		answered := make(chan error)
		r.Complete = func(r *Request) {
			l.lost = false
			l.forget()
			answered <- r.Err
		}
		v.Submit(r)
		if err := <-answered; err != nil || !errors.Is(l.told, unix.EIO) {
			t.Errorf("%+v: %v; flushes meanwhile were told %v", x, err, l.told)
		}
		for v.commits.answering.Load() > 0 {
			runtime.Gosched()
		}
		if err := l.flush(); !errors.Is(err, unix.EIO) {
			t.Errorf("%+v: the first flush afterwards: %v", x, err)
		}
		if err := l.flush(); err != nil {
			t.Errorf("%+v: the second: %v", x, err)
		}
		v.writer = w
	}
}

// TestQueuedWriteLostMeanwhile is TestWritesLostMeanwhile for a write done by the kernel's queue, also one with FUA:
// what made it durable may have come after a failed sync, which may have lost its data.
func TestQueuedWriteLostMeanwhile(t *testing.T) {
	for _, flags := range []int{0, unix.RWF_DSYNC} {
		testQueuedWriteLost(t, flags)
	}
}

func testQueuedWriteLost(t *testing.T, flags int) {
	v := openInternal(t, IODirect)
	l := &lossy{storage: v.store}
	v.store = l
	done := make(chan error, 1)
	l.flush = func() error {
		v.Submit(&Request{Op: OpFlush, Complete: func(r *Request) { done <- r.Err }})
		return <-done
	}
	r := &Request{Op: OpWrite, FUA: flags != 0, Length: 4096, Bufs: [][]byte{make([]byte, 4096)},
		Complete: func(r *Request) { done <- r.Err }}
	r.lane = v.lanes.enter()
	v.commits.begin(r)
	l.forget()
	if !v.took(nil, r, 4096, flags) {
		t.Fatal("it isn't done")
	}
	if err := <-done; !errors.Is(err, unix.EIO) || !errors.Is(l.told, unix.EIO) {
		t.Errorf("flags %d: %v; flushes meanwhile were told %v", flags, err, l.told)
	}
}

// TestFlushWaitsForDurableWrite: if the disk loses data of others as it fails to empty its cache for a write that was to
// be durable by itself, a flush that begins and succeeds below before the system answers that write waits for it, and
// fails.
func TestFlushWaitsForDurableWrite(t *testing.T) {
	for _, k := range durableKinds {
		t.Run(k.name, func(t *testing.T) { synctest.Test(t, k.testFlushWaits) })
	}
}

var durableKinds = []crashKind{
	{name: "workers", block: 512, unit: 512, direct: true},
	{name: "asynchronous", block: 512, unit: 512, direct: true, aio: true},
}

func (k crashKind) testFlushWaits(t *testing.T) {
	d := &simDisk{m: crash.NewMedium(int64(crashBlocks*k.block), k.unit), rnd: rand.New(rand.NewPCG(1, 2))}
	v := k.volume(d)
	var answered atomic.Int32
	submit := func(op Op, fua bool) *Request {
		r := &Request{Op: op, FUA: fua, Complete: func(*Request) { answered.Add(1) }}
		if op == OpWrite {
			r.Bufs, r.Length = [][]byte{make([]byte, k.block)}, int64(k.block)
		}
		v.Submit(r)
		return r
	}
	want := func(answers int32, failed ...*Request) {
		t.Helper()
		if n := answered.Load(); n != answers {
			t.Errorf("%d requests are answered, want %d", n, answers)
		}
		for _, r := range failed {
			if !errors.Is(r.Err, unix.EIO) {
				t.Errorf("%s, FUA %v: %v, want %v", r.Op, r.FUA, r.Err, unix.EIO)
			}
		}
	}
	submit(OpWrite, false)
	d.step()
	want(1)
	d.faults.failDsync = true
	write := submit(OpWrite, true)
	d.step(simTransfer)
	d.faults.failDsync = false
	flush := submit(OpFlush, false)
	for d.step(simSync) {
	}
	want(1)
	for d.step() {
	}
	want(3, write, flush)
	told, after := submit(OpFlush, false), submit(OpFlush, false)
	for d.step() {
	}
	want(5, told, after)
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	for d.step() {
	}
	if err := <-closed; err != nil {
		t.Errorf("closed: %v", err)
	}
}

// TestDurableWriteFails: a failed write that was to be durable by itself may be all that the disk reports of a cache
// that it failed to empty. So the next flush fails, or Close if there is none, and later ones don't.
func TestDurableWriteFails(t *testing.T) {
	for _, k := range durableKinds {
		t.Run(k.name, func(t *testing.T) { synctest.Test(t, k.testDurableWriteFails) })
	}
}

func (k crashKind) testDurableWriteFails(t *testing.T) {
	d := &simDisk{m: crash.NewMedium(int64(crashBlocks*k.block), k.unit), rnd: rand.New(rand.NewPCG(1, 2))}
	v := k.volume(d)
	ask := func(op Op, fua bool, want error) {
		t.Helper()
		r := &Request{Op: op, FUA: fua, Complete: func(*Request) {}}
		if op == OpWrite {
			r.Bufs, r.Length = [][]byte{make([]byte, k.block)}, int64(k.block)
		}
		v.Submit(r)
		for d.step() {
		}
		if !errors.Is(r.Err, want) {
			t.Errorf("%s, FUA %v: %v, want %v", op, fua, r.Err, want)
		}
	}
	ask(OpWrite, false, nil)
	d.faults.failDsync = true
	ask(OpWrite, true, unix.EIO)
	d.faults.failDsync = false
	ask(OpWrite, false, nil)
	ask(OpWrite, true, nil)
	ask(OpFlush, false, unix.EIO)
	ask(OpFlush, false, nil)
	d.faults.failDsync = true
	ask(OpWrite, true, unix.EIO)
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	for d.step() {
	}
	if err := <-closed; !errors.Is(err, unix.EIO) {
		t.Errorf("closed: %v", err)
	}
}
