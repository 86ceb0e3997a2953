package mem

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const poolSize = 4 << 20

// newTestPool makes a pool of poolSize bytes; granted gathers the requests that had to wait.
func newTestPool(t *testing.T, limit int64) (p *Pool[string], granted *[]string, bufs map[string][]byte) {
	t.Helper()
	a, err := New(Config{Max: poolSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	granted, bufs = new([]string), map[string][]byte{}
	p = NewPool(a, limit, func(r string, b []byte) {
		*granted = append(*granted, r)
		bufs[r] = b
	})
	return p, granted, bufs
}

var greedy, honest = netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1")

// A peer that takes all it can and returns nothing leaves others what they need, and only waits itself.
func TestPoolShares(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize/2)
	g, h := p.Join(greedy), p.Join(honest)
	const piece = poolSize / 8
	var held [][]byte
	for range 4 {
		held = append(held, g.Alloc(piece, "early"))
	}
	if slices.ContainsFunc(held, func(b []byte) bool { return b == nil }) {
		t.Fatal("a share is less than it should be")
	}
	for range 3 {
		if g.Alloc(piece, "greedy") != nil {
			t.Fatal("more than a share")
		}
	}
	var all [][]byte
	for range 4 {
		b := h.Alloc(piece, "honest")
		if b == nil {
			t.Fatal("the other peer gets nothing")
		}
		all = append(all, b)
	}
	for _, b := range all {
		h.Free(b)
	}
	if len(*granted) != 0 {
		t.Errorf("granted beyond the share: %v", *granted)
	}
	g.Free(held[0])
	if !slices.Equal(*granted, []string{"greedy"}) {
		t.Errorf("granted %v", *granted)
	}
	if n := len(g.Drop(func(r string) bool { return r == "greedy" })); n != 2 {
		t.Errorf("%d requests waited, want 2", n)
	}
	for _, b := range held[1:] {
		g.Free(b)
	}
	g.Free(bufs["greedy"])
	g.Leave()
	h.Leave()
	if used, _, _ := holds(p.arena); len(p.shares) != 0 || len(p.hungry) != 0 || p.waiting.Load() != 0 || used != 0 {
		t.Errorf("left: %d shares, %d hungry, %d waiting, %d bytes", len(p.shares), len(p.hungry), p.waiting.Load(), used)
	}
}

// Waiting requests are served in the order in which they came, whichever peer they are from, and a small request
// doesn't overtake a large one.
func TestPoolOrder(t *testing.T) { synctest.Test(t, testPoolOrder) }

func testPoolOrder(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize)
	g, h := p.Join(greedy), p.Join(honest)
	whole := g.Alloc(poolSize, "")
	for _, r := range []struct {
		s    *Share[string]
		name string
		n    int
	}{{g, "first", poolSize / 2}, {h, "second", poolSize}, {g, "third", 512}} {
		if r.s.Alloc(r.n, r.name) != nil {
			t.Fatalf("%s found memory", r.name)
		}
	}
	g.Free(whole)
	if !slices.Equal(*granted, []string{"first"}) {
		t.Fatalf("granted %v", *granted)
	}
	g.Free(bufs["first"])
	h.Free(bufs["second"])
	if !slices.Equal(*granted, []string{"first", "second", "third"}) {
		t.Errorf("granted %v", *granted)
	}
	g.Free(bufs["third"])
}

// Small requests of other peers don't overtake a large one for ever: freed memory is saved for it. But if that fails,
// not for long, nor again soon.
func TestPoolSaves(t *testing.T) { synctest.Test(t, testPoolSaves) }

func testPoolSaves(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize)
	g, h := p.Join(greedy), p.Join(honest)
	const pieces = 8
	var held [][]byte
	for range pieces {
		held = append(held, g.Alloc(poolSize/pieces, "early"))
	}
	release := func() {
		g.Free(held[0])
		held = held[1:]
	}
	if h.Alloc(poolSize, "large") != nil {
		t.Fatal("more than there is")
	}
	release()
	if g.Alloc(poolSize/pieces, "small") != nil {
		t.Error("a small request passed a large one of another peer")
	}
	for len(held) > 0 {
		release()
	}
	if !slices.Equal(*granted, []string{"large"}) {
		t.Fatalf("granted %v", *granted)
	}
	h.Free(bufs["large"])
	if !slices.Equal(*granted, []string{"large", "small"}) {
		t.Errorf("granted %v", *granted)
	}
	// Somebody keeps what the large one needs.
	if h.Alloc(poolSize, "in vain") != nil || g.Alloc(512, "patient") != nil {
		t.Error("found memory")
	}
	time.Sleep(patience)
	synctest.Wait()
	if last := (*granted)[len(*granted)-1]; last != "patient" {
		t.Errorf("granted %v", *granted)
	}
	g.Free(bufs["patient"])
	if b := g.Alloc(512, "at once"); b == nil {
		t.Error("memory is still saved")
	} else {
		g.Free(b)
	}
	time.Sleep(pause)
	p.Serve()
	if g.Alloc(512, "later") != nil {
		t.Error("memory is saved no more")
	}
	// The large one gives up.
	h.Drop(func(string) bool { return true })
	if last := (*granted)[len(*granted)-1]; last != "later" || p.saving.Load() {
		t.Errorf("granted %v", *granted)
	}
	if b := h.Alloc(512, "free"); b == nil {
		t.Error("memory is saved for nobody")
	}
}

// A request that found no memory because the system had none gets some once the system has it again, even if nobody
// holds any that could be freed.
func TestPoolSystemShort(t *testing.T) { synctest.Test(t, testPoolSystemShort) }

func testPoolSystemShort(t *testing.T) {
	short, failed := true, 0
	a, err := New(lacking(t, &short, &failed))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	type grant struct {
		r string
		b []byte
	}
	var granted []grant
	p := NewPool(a, poolSize, func(r string, b []byte) { granted = append(granted, grant{r, b}) })
	shares := map[string]*Share[string]{"first": p.Join(greedy), "second": p.Join(honest)}
	// First memory is saved, then no more. A buffer that is larger than those before needs a new chunk.
	for round, who := range [][]string{{"first"}, {"first", "second"}} {
		short, failed, granted = true, 0, nil
		for _, r := range who {
			if shares[r].Alloc(poolSize<<round, r) != nil {
				t.Fatalf("%s found memory", r)
			}
		}
		time.Sleep(5 * patience)
		synctest.Wait()
		if failed < 5 || len(granted) > 0 {
			t.Errorf("tried %d times, granted %d", failed, len(granted))
		}
		p.mu.Lock() // which orders this, and what was looked at, before the timer's next attempt
		short = false
		p.mu.Unlock()
		time.Sleep(patience)
		synctest.Wait()
		if len(granted) != len(who) {
			t.Errorf("granted %d, want %d", len(granted), len(who))
		}
		for _, g := range granted {
			shares[g.r].Free(g.b)
		}
	}
}

// Requests of new peers that find no memory either don't put off that others are tried again.
func TestPoolNewcomersWait(t *testing.T) { synctest.Test(t, testPoolNewcomersWait) }

func testPoolNewcomersWait(t *testing.T) {
	short := true
	a := newArena(t, Config{OnGrow: func(_ int, chunk []byte) error {
		if short || len(chunk) > ChunkSize {
			return unix.ENOMEM
		}
		return nil
	}})
	var granted []byte
	p := NewPool(a, poolSize, func(_ string, b []byte) { granted = b })
	first := p.Join(honest)
	if first.Alloc(poolSize, "first") != nil {
		t.Fatal("found memory")
	}
	time.Sleep(patience) // saving was in vain
	synctest.Wait()
	short = false
	for i := range 4 {
		if p.Join(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})).Alloc(2*ChunkSize, "newcomer") != nil {
			t.Fatal("a newcomer found memory")
		}
		time.Sleep(patience / 2)
		synctest.Wait()
	}
	if granted == nil {
		t.Fatal("the first request isn't served")
	}
	first.Free(granted)
	for _, s := range p.shares {
		s.Drop(func(string) bool { return true })
	}
}

// Freed memory is offered to few of many waiting requests: of those for the same size, only to the oldest.
func TestPoolTriesFew(t *testing.T) { synctest.Test(t, testPoolTriesFew) }

func testPoolTriesFew(t *testing.T) {
	p, granted, _ := newTestPool(t, poolSize)
	g := p.Join(greedy)
	small := g.Alloc(512, "")
	for n := poolSize; n >= 512; n /= 2 {
		for p.arena.Alloc(n) != nil {
		}
	}
	const peers = 200
	for i := range peers {
		s := p.Join(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}))
		if s.Alloc(8192<<(i%2), "large") != nil {
			t.Fatal("found memory")
		}
	}
	last := p.Join(honest)
	if last.Alloc(512, "small") != nil {
		t.Fatal("found memory")
	}
	time.Sleep(patience) // saving was in vain
	synctest.Wait()
	before := p.arena.exhausted.Load()
	g.Free(small)
	if n := p.arena.exhausted.Load() - before; n > 4 {
		t.Errorf("tried %d times in vain", n)
	}
	if !slices.Equal(*granted, []string{"small"}) {
		t.Errorf("granted %v", *granted)
	}
}

// With many at once, everyone is served, and nothing is left.
func TestPoolConcurrently(t *testing.T) {
	a, err := New(Config{Max: poolSize})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p := NewPool(a, poolSize/4, func(c chan []byte, b []byte) { c <- b })
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			s := p.Join(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 4)}))
			defer s.Leave()
			c := make(chan []byte, 1)
			for k := range 500 {
				b := s.Alloc((1+(i+k)%8)<<16, c)
				if b == nil {
					b = <-c
				}
				b[0] = byte(i)
				s.Free(b)
			}
		})
	}
	all.Wait()
	if n, _, _ := holds(a); n != 0 || p.waiting.Load() != 0 {
		t.Errorf("%d bytes in use, %d waiting", n, p.waiting.Load())
	}
}

// A later request of the same peer doesn't overtake one that waits, even if there is room for it: otherwise a stream of
// small ones could keep a large one waiting for ever.
func TestPoolPatience(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize*3/4)
	g := p.Join(greedy)
	held := g.Alloc(poolSize/2, "")
	if g.Alloc(poolSize/2, "large") != nil {
		t.Fatal("more than a share")
	}
	if g.Alloc(512, "small") != nil {
		t.Error("a small request passed a large one")
	}
	g.Free(held)
	if !slices.Equal(*granted, []string{"large", "small"}) {
		t.Errorf("granted %v", *granted)
	}
	// Where the large one gives up, the small one has waited long enough.
	if g.Alloc(poolSize/2, "large again") != nil || g.Alloc(512, "small again") != nil {
		t.Error("more than a share")
	}
	if n := len(g.Drop(func(r string) bool { return r == "large again" })); n != 1 {
		t.Errorf("%d requests dropped", n)
	}
	if last := (*granted)[len(*granted)-1]; last != "small again" {
		t.Errorf("granted %v", *granted)
	}
	for _, b := range bufs {
		g.Free(b)
	}
}

// TestPoolOfMany: the time to serve a waiting request doesn't depend on how many others wait.
func TestPoolOfMany(t *testing.T) {
	few := min(serving(t, 20), serving(t, 20), serving(t, 20))
	many := min(serving(t, 10000), serving(t, 10000), serving(t, 10000))
	if many > 20*few {
		t.Errorf("a request is served in %v where 20 peers wait, in %v where 10000 do", few, many)
	}
}

// serving returns how long it takes to give memory to one request after another, each of a different peer.
func serving(t *testing.T, peers int) time.Duration {
	const n, rounds = 4096, 1000
	a, err := New(Config{Max: poolSize})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var shares []*Share[int]
	var b []byte
	var who int
	p := NewPool(a, poolSize, func(r int, got []byte) {
		who, b = r, got
		shares[r].Alloc(n, r) // waits again
	})
	for i := range peers {
		shares = append(shares, p.Join(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
	}
	for got := shares[0].Alloc(n, 0); got != nil; got = shares[0].Alloc(n, 0) {
		b = got
	}
	for i, s := range shares[1:] {
		s.Alloc(n, i+1)
	}
	start := time.Now()
	for range rounds {
		shares[who].Free(b)
	}
	return time.Since(start) / rounds
}

// TestPoolForgetsNobody: every share with a waiting request that is within it is in the queue to be served.
func TestPoolForgetsNobody(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize/4)
	r := rand.New(rand.NewPCG(1, 2))
	type piece struct {
		s *Share[string]
		b []byte
	}
	var shares []*Share[string]
	for i := range byte(8) {
		shares = append(shares, p.Join(netip.AddrFrom4([4]byte{10, 0, 0, i})))
	}
	var held []piece
	of := map[string]*Share[string]{}
	for i := range 5000 {
		s := shares[r.IntN(len(shares))]
		switch name := fmt.Sprint(i); r.IntN(8) {
		case 0:
			for _, gone := range s.Drop(func(string) bool { return r.IntN(2) == 0 }) {
				delete(of, gone)
			}
		case 1, 2, 3, 4:
			if b := s.Alloc(4096<<r.IntN(7), name); b != nil {
				held = append(held, piece{s, b})
			} else {
				of[name] = s
			}
		default:
			if len(held) > 0 {
				k := r.IntN(len(held))
				give := held[k]
				held = slices.Delete(held, k, k+1)
				give.s.Free(give.b)
			}
		}
		for _, name := range *granted {
			held = append(held, piece{of[name], bufs[name]})
		}
		*granted = nil
		for s := range p.hungry {
			if s.fits(s.queue[0].n) && s.place < 0 {
				t.Fatalf("step %d: the oldest request of %v is within its share, and forgotten", i, s.addr)
			}
		}
		if first := p.oldest(); first != p.oldestFor(math.MaxInt) {
			t.Fatalf("step %d: %v is to be served first, want %v", i, first.addr, p.oldestFor(math.MaxInt).addr)
		}
	}
}

// Two connections of a peer that allocate at the same moment don't together take more than its share.
func TestPoolShareOfTwo(t *testing.T) {
	p, granted, bufs := newTestPool(t, poolSize/4)
	s := p.Join(greedy)
	allocated := make(chan []byte, 2)
	p.arena.mu.Lock() // so that both wait there for their memory
	for i := range 2 {
		go func() { allocated <- s.Alloc(poolSize/4, fmt.Sprint(i)) }()
	}
	for range 10_000 {
		runtime.Gosched()
	}
	p.arena.mu.Unlock()
	one, two := <-allocated, <-allocated
	if (one == nil) == (two == nil) {
		t.Fatalf("they have %d and %d bytes, the share is %d", len(one), len(two), poolSize/4)
	}
	if one == nil {
		one = two
	}
	s.Free(one)
	if len(*granted) != 1 {
		t.Fatalf("%q were served afterwards, want the other", *granted)
	}
	s.Free(bufs[(*granted)[0]])
}

// Memory that a peer can't keep, because another of its connections used up the share in the same moment, is for others
// that wait for as much, whether the peer asks for it or is served.
func TestPoolGivenBack(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPoolGivenBack(t, waits) })
		})
	}
}

func testPoolGivenBack(t *testing.T, waits bool) {
	p, granted, bufs := newTestPool(t, poolSize/2)
	g, h := p.Join(greedy), p.Join(honest)
	p.arena.cfg.OnGrow = func(int, []byte) error { return ErrExhausted }
	if waits {
		g.Alloc(poolSize/2, "greedy")
	}
	h.Alloc(poolSize/2, "honest")
	time.Sleep(patience) // no memory is saved from now on
	synctest.Wait()
	p.arena.cfg.OnGrow = func(int, []byte) error { // the arena finds memory
		g.held.Add(poolSize / 2) // of another connection
		return nil
	}
	if waits {
		p.Serve()
	} else if g.Alloc(poolSize/2, "greedy") != nil {
		t.Error("more than a share")
	}
	if !slices.Equal(*granted, []string{"honest"}) {
		t.Errorf("%q were served, want honest", *granted)
	}
	g.held.Add(-poolSize / 2)
	g.Drop(func(string) bool { return true })
	h.Drop(func(string) bool { return true })
	h.Free(bufs["honest"])
}
