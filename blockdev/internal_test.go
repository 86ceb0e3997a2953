package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/hangtest"
)

// TestGuardTable has volumes with more stripes than the table has entries.
func TestGuardTable(t *testing.T) {
	for stripes, entries := range map[int64]int{1: 1, 2: 2, 3: 4, 8192: 8192, 8193: 8192, 1 << 30: 8192} {
		if g := NewGuard(stripes*stripeSize-512, nil, nil); len(g.entries) != entries {
			t.Errorf("%d stripes: %d entries, want %d", stripes, len(g.entries), entries)
		}
	}
	var applied int64
	g := NewGuard(4*stripeSize, func(_ *Request, _, n int64) { applied += n }, func(*Request) {})
	// Ranges that wrap around the table, once and more often.
	for _, x := range [][2]int64{{3, 2}, {0, 4}, {2, 4}, {3, 13}, {1 << 40, 5}} {
		off, n := x[0]*stripeSize+512, x[1]*stripeSize-1024
		applied = 0
		tok, ok := g.View(off, n)
		r := &Request{Op: OpWrite, Offset: off, Length: n}
		if !ok || g.Write(r) {
			t.Fatalf("%v: view %v, or a write passed it", x, ok)
		}
		g.Release(tok)
		if applied != n {
			t.Errorf("%v: %d of %d bytes written", x, applied, n)
		}
		var covered int64
		if err := g.Exclude(off, n, func(o, k int64) error {
			if o != off+covered || k <= 0 {
				t.Errorf("%v: run %d, %d after %d", x, o, k, covered)
			}
			covered += k
			return nil
		}); err != nil || covered != n {
			t.Errorf("%v: %d of %d bytes covered, %v", x, covered, n, err)
		}
		for i := range g.entries {
			if e := &g.entries[i]; e.views != 0 || !e.waiting.empty() || !e.mu.TryLock() {
				t.Fatalf("%v: entry %d is left %+v", x, i, e)
			} else {
				e.mu.Unlock()
			}
		}
	}
	if _, ok := g.View(0, maxView+1); ok {
		t.Error("a view whose token can't name it")
	}
	if tok, ok := g.View(512, maxView); !ok {
		t.Error("the longest view")
	} else {
		g.Release(tok)
	}
}

// TestPool counts the goroutines: no more than the bound, none after idleness.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, ran atomic.Int32
		p := NewPool(3, func(*struct{}, *Request) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			ran.Add(1)
		})
		running := func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.running }
		idle := func() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.idle) }
		for range 10 {
			p.Submit(&Request{})
		}
		synctest.Wait()
		if most.Load() != 3 || running() != 3 {
			t.Errorf("%d at once, %d running, want 3", most.Load(), running())
		}
		time.Sleep(4*time.Second + poolIdle/2)
		synctest.Wait()
		if ran.Load() != 10 || idle() != 3 {
			t.Errorf("%d ran, %d idle", ran.Load(), idle())
		}
		p.Submit(&Request{}) // one is kept busy, the others end
		time.Sleep(poolIdle)
		synctest.Wait()
		if running() != 1 || idle() != 1 {
			t.Errorf("%d running, %d idle; want 1 of each", running(), idle())
		}
		time.Sleep(2 * poolIdle)
		synctest.Wait()
		if running() != 0 || idle() != 0 {
			t.Errorf("%d running, %d idle after idleness", running(), idle())
		}
		p.Submit(&Request{})
		p.Submit(&Request{})
		time.Sleep(2 * time.Second)
		p.Submit(&Request{}) // one worker is busy, the other idle
		p.Close()
		if running() != 0 || ran.Load() != 14 {
			t.Errorf("%d running after close, %d ran", running(), ran.Load())
		}
	})
}

// TestPoolChain: a request submitted by a completion runs on the same worker, and one that others submit meanwhile runs
// on another.
func TestPoolChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Pool[int] // each worker's scratch counts the requests it ran
		var other atomic.Pointer[int]
		var last *int
		p = NewPool(3, func(n *int, r *Request) {
			*n++
			if r.Length == 0 {
				other.Store(n)
				time.Sleep(time.Second)
			} else {
				last = n
			}
			p.End(r, nil)
		})
		for range 3 { // idle workers that could take new requests
			p.Submit(&Request{Complete: func(*Request) {}})
		}
		time.Sleep(2 * time.Second)
		first, left, done := (*int)(nil), 5, make(chan struct{})
		r := &Request{Length: 1}
		r.Complete = func(r *Request) {
			if first == nil {
				first = last
			}
			if last != first {
				t.Error("the chain went to another worker")
			}
			if left--; left == 0 {
				close(done)
				return
			}
			p.Submit(r)
			if left == 2 {
				p.Submit(&Request{Complete: func(*Request) {}})
			}
		}
		p.Submit(r)
		<-done
		synctest.Wait()
		if other.Load() == first || *first != 6 || p.queued != 0 {
			t.Errorf("%d requests on the chain's worker, %d wait", *first, p.queued)
		}
		time.Sleep(2 * time.Second)
		p.Close()
	})
}

// TestPoolLastMoment: a request that comes when a worker has just waited long enough isn't lost.
func TestPoolLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan struct{}, 1)
		p := NewPool(1, func(*struct{}, *Request) { ran <- struct{}{} })
		for range 200 {
			p.Submit(&Request{})
			<-ran
			synctest.Wait()
			time.Sleep(poolIdle)
		}
		p.Close()
	})
}

// TestFlushGroup: flushes that come during a flush share the next.
func TestFlushGroup(t *testing.T) {
	var g *FlushGroup
	a, b, c := &Request{}, &Request{}, &Request{}
	meanwhile := [][]*Request{{b, c}, {a}, nil} // come during each sync
	var groups [][]*Request
	g = NewFlushGroup(func() error {
		for _, r := range meanwhile[len(groups)] {
			if g.Lead(r) {
				t.Error("not one leads")
			}
		}
		groups = append(groups, nil)
		return nil
	}, func(r *Request, _ error) {
		last := &groups[len(groups)-1]
		*last = append(*last, r)
	})
	if !g.Lead(a) {
		t.Fatal("the first doesn't lead")
	}
	g.Run(a)
	if want := [][]*Request{{a}, {b, c}, {a}}; !slices.EqualFunc(groups, want, slices.Equal) {
		t.Errorf("answered together: %v, want %v", groups, want)
	}
	if !g.Lead(b) {
		t.Error("the group doesn't end")
	}
}

// TestFlushGroupApart: a flush whose answer led to a request of a ring doesn't hold that up by the next sync.
func TestFlushGroupApart(t *testing.T) {
	first, second, syncs := &Request{}, &Request{}, 0
	var g *FlushGroup
	g = NewFlushGroup(func() error {
		if syncs++; syncs == 1 {
			g.Lead(second)
		}
		if hangtest.Busy() {
			t.Errorf("sync %d holds up a read", syncs)
		}
		return nil
	}, func(r *Request, _ error) {
		if r == first {
			hangtest.BusyThread(t)
		}
	})
	g.Lead(first)
	g.Run(first)
	if syncs != 2 {
		t.Errorf("%d syncs", syncs)
	}
}

// TestDirectoryApart: a directory looks up its volumes on a thread without requests of a ring. Here that has a working
// directory of its own, in which alone there is a volume.
func TestDirectoryApart(t *testing.T) {
	hangtest.BusyThread(t)
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	lock, err := os.Open(".")
	if err := errors.Join(err, unix.Unshare(unix.CLONE_FS), unix.Chdir(t.TempDir()),
		os.WriteFile("v"+directorySuffix, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d := &Directory{path: ".", lock: lock}
	defer d.Close()
	if _, err := d.Open("v", -1, 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := d.Create("v", -1, 4096); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("create: %v", err)
	}
}

func TestCopy(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		src := make([]byte, 1+rnd.IntN(100))
		for i := range src {
			src[i] = byte(rnd.Int())
		}
		var bufs [][]byte
		dst := make([]byte, len(src))
		for rest := dst; ; {
			n := rnd.IntN(len(rest) + 1)
			bufs = append(bufs, rest[:n])
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		r := &Request{Bufs: bufs}
		cut := rnd.IntN(len(src))
		r.CopyIn(src[cut:], int64(cut))
		r.CopyIn(src[:cut], 0)
		back := make([]byte, len(src)-cut)
		r.CopyOut(back, int64(cut))
		if string(dst) != string(src) || string(back) != string(src[cut:]) {
			t.Fatalf("cut at %d of %d", cut, len(src))
		}
	}
}

func BenchmarkGuard(b *testing.B) {
	for _, n := range []int64{4096, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := NewGuard(1<<30, nil, nil)
			b.ReportAllocs()
			for i := range int64(b.N) {
				tok, _ := g.View(i*n&(1<<29-1), n)
				g.Release(tok)
			}
		})
	}
}

// TestWholePages: the range passed to madvise begins and ends on a page boundary, whatever the page size.
func TestWholePages(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct{ page, off, end, from, to int64 }{
		{4 * kib, 0, 4 * kib, 0, 4 * kib},
		{4 * kib, 512, 12*kib + 512, 4 * kib, 12 * kib},
		{16 * kib, 0, 4 * kib, 0, 0},
		{16 * kib, 0, 20 * kib, 0, 16 * kib},
		{16 * kib, 4 * kib, 48 * kib, 16 * kib, 48 * kib},
		{64 * kib, 0, 64 * kib, 0, 64 * kib},
		{64 * kib, 60 * kib, 196 * kib, 64 * kib, 192 * kib},
	} {
		if from, to := wholePages(c.off, c.end, c.page); from != c.from || to != c.to {
			t.Errorf("pages of %d in %d to %d: %d to %d, want %d to %d", c.page, c.off, c.end, from, to, c.from, c.to)
		}
	}
}

// TestDiskTakenAway: errors on a file whose disk no longer exists for the system are reported as ErrGone, and others
// not. For tmpfs no disk is seen.
func TestDiskTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	opened, err := OpenFile(path, Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	v, _ := opened.(*file)
	if v.below == "" && !inMemory(v.locked) {
		t.Skip("sysfs has no device of this file system's")
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	read := func() error {
		done := make(chan error, 1)
		v.Submit(&Request{Op: OpRead, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}, Complete: func(r *Request) { done <- r.Err }})
		return <-done
	}
	if err := read(); !errors.Is(err, ErrMedium) {
		t.Errorf("of a file that was cut: %v", err)
	}
	v.below = "/sys/dev/block/no device"
	if err := read(); !errors.Is(err, ErrGone) {
		t.Errorf("of a disk that was taken away: %v", err)
	}
}
