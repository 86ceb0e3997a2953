package blockdev

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// TestStandstill: of the writes that a volume hasn't begun when the program stands still, or that it gets right
// afterwards, those that turn out a moment later to be unwanted are dropped, and the others are done. The second time
// it is the same.
func TestStandstill(t *testing.T) {
	for name, x := range map[string]struct {
		io    IOMode
		begin func(*file, []*Request)
	}{
		"io_submit":           {IODirect, func(v *file, all []*Request) { queued(v, all).Do() }},
		"io_submit, declined": {IODirect, func(v *file, all []*Request) { queued(v, all).Decline() }},
		"io_submit, arriving": {IODirect, arriving},
		"io_uring, arriving":  {IOUring, arriving},
		"writer":              {IOBuffered, func(v *file, all []*Request) { queued(v, all).Do() }},
		"writer, declined":    {IOBuffered, func(v *file, all []*Request) { queued(v, all).Decline() }},
		"writer, arriving":    {IOBuffered, arriving},
		"workers": {IODirect, func(v *file, all []*Request) {
			for _, r := range all {
				v.pool.Submit(r)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) { testStandstill(t, x.io, x.begin) })
	}
}

func arriving(v *file, all []*Request) {
	for _, r := range all {
		r.lane.Leave()
		v.Submit(r)
	}
}

// queued leaves requests in the queue of v's writes, and returns the task that is then on offer.
func queued(v *file, all []*Request) duty.Task {
	if w := v.writer; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy = true
		for _, r := range all {
			w.queue.push(r)
		}
		return w
	}
	w := v.aio.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = true
	for _, r := range all {
		w.queue.push(r)
	}
	return w
}

func testStandstill(t *testing.T, mode IOMode, begin func(*file, []*Request)) {
	const block = 4096
	path := filepath.Join(t.TempDir(), "v")
	opened, err := OpenFile(path, Options{Size: 2 * block, IO: mode})
	if err != nil {
		t.Skip(err)
	}
	defer opened.Close()
	v := opened.(*file)
	if mode == IODirect && v.aio == nil {
		t.Skip(v.info.Mode)
	}
	var stood time.Duration
	ended := make(chan *Request, 2)
	request := func(i int64) *Request {
		r := &Request{
			Op: OpWrite, Offset: i * block, Length: block, Bufs: [][]byte{directio.AlignedBlock(block)},
			Complete: func(r *Request) { ended <- r },
			Unwanted: func() bool { return i == 0 && time.Since(began) >= stood+hearing },
			lane:     v.lanes.enter(),
		}
		copy(r.Bufs[0], bytes.Repeat([]byte{'x'}, block))
		v.commits.begin(r)
		return r
	}
	for times := 0; times < 2; {
		zero := make(chan error, 1)
		v.Submit(&Request{
			Op: OpWrite, FUA: true, Length: 2 * block, Bufs: [][]byte{directio.AlignedBlock(2 * block)},
			Complete: func(r *Request) { zero <- r.Err },
		})
		if err := <-zero; err != nil { // after this the block is allocated, and writing it needn't wait for an allocation
			t.Fatal(err)
		}
		stood = time.Since(began)
		v.sentry.stood.Store(int64(stood))
		begin(v, []*Request{request(0), request(1)})
		inTime := time.Since(began) < stood+hearing // else a write may have come when nobody asks any more
		for range 2 {
			r := <-ended
			if unwanted := r.Offset == 0; inTime && (errors.Is(r.Err, ErrUnwanted) != unwanted || (r.Err == nil) == unwanted) {
				t.Errorf("the write at %d ends with %v", r.Offset, r.Err)
			}
		}
		if inTime {
			times++
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := append(make([]byte, block), bytes.Repeat([]byte{'x'}, block)...)
	if !bytes.Equal(got, want) {
		t.Error("other blocks are written than those that are wanted")
	}
}

// TestSentry: a sentry notices a standstill once, and watches for a while after the last write.
func TestSentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sentry
		s.watch()
		time.Sleep(3 * beat)
		if p := s.pause(); p != 0 {
			t.Errorf("a write waits for %v though nothing stood still", p)
		}
		s.beaten.Store(int64(time.Since(began) - standstill - 1))
		for _, want := range []time.Duration{hearing, 0} {
			if p := s.pause(); p != want {
				t.Errorf("a write waits for %v, want %v", p, want)
			}
			time.Sleep(hearing)
		}
		time.Sleep(2 * beats * beat)
		if s.ticking.Load() {
			t.Error("the timer runs on though there are no writes")
		}
		time.Sleep(time.Hour)
		s.watch()
		if p := s.pause(); p != 0 {
			t.Errorf("the first write in an hour waits for %v", p)
		}
		time.Sleep(2 * beats * beat)
	})
}

// TestSentryAllocations: a sentry's timer allocates only on its first beat.
func TestSentryAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sentry
		if n := testing.AllocsPerRun(10, func() {
			s.watch()
			time.Sleep(2 * beats * beat)
		}); n != 0 {
			t.Errorf("%v allocations in %d beats", n, beats)
		}
	})
}
