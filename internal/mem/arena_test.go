package mem

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newArena(t testing.TB, cfg Config) *Arena {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestConfigLimits(t *testing.T) {
	for _, limit := range []int64{-1, 1, MinMax - 1, maxMax + 1} {
		if _, err := New(Config{Max: limit}); err == nil {
			t.Errorf("Max %d accepted", limit)
		}
	}
}

func TestUnitsFor(t *testing.T) {
	for _, tc := range []struct {
		bytes int
		units uint32
	}{
		{1, 1}, {512, 1}, {513, 2}, {1024, 2}, {1025, 4}, {2048, 4}, {2049, 8}, {4096, 8},
		{4097, 16}, {8192, 16}, {8193, 24}, {12288, 24}, {131072, 256}, {1 << 20, 2048},
	} {
		if got := unitsFor(tc.bytes); got != tc.units {
			t.Errorf("%d bytes take %d units, want %d", tc.bytes, got, tc.units)
		}
	}
}

func TestAlignment(t *testing.T) {
	a := newArena(t, Config{})
	for n := 1; n < 300_000; n += 1 + n/7 {
		b := a.Alloc(n)
		if len(b) != n || cap(b) != n {
			t.Fatalf("asked %d bytes, got len %d cap %d", n, len(b), cap(b))
		}
		align := uintptr(pageSize)
		if units := unitsFor(n); units*unit < pageSize {
			align = uintptr(units * unit)
		}
		if baseOf(b)%align != 0 {
			t.Errorf("%d bytes at %p, want a multiple of %d", n, &b[0], align)
		}
	}
	for _, c := range a.chunks {
		if baseOf(c.mem)%(2<<20) != 0 {
			t.Errorf("chunk at %p isn't aligned to a huge page", &c.mem[0])
		}
	}
}

func TestExhaustionAndReuse(t *testing.T) {
	a := newArena(t, Config{Max: 6 << 20})
	if a.Alloc(0) != nil || a.Alloc(-1) != nil || a.Alloc(6<<20+1) != nil || !errors.Is(a.Err(), ErrExhausted) {
		t.Error("got a buffer of an impossible size")
	}
	var all [][]byte
	for b := a.Alloc(4096); b != nil; b = a.Alloc(4096) {
		all = append(all, b)
	}
	if len(all) != 6<<20/4096 {
		t.Errorf("%d pages, want all 6 MiB", len(all))
	}
	if err := a.Err(); !errors.Is(err, ErrExhausted) {
		t.Errorf("Err is %v", err)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, b := range all {
		a.Free(b)
	}
	// Small pieces, some of them cached, join into the largest.
	if b := a.Alloc(ChunkSize); b == nil {
		t.Error("freed pages don't join")
	}
	if used, mapped, chunks := holds(a); used != ChunkSize || mapped != 6<<20 || chunks != 2 || a.exhausted.Load() != 4 {
		t.Errorf("%d bytes in use, %d mapped in %d chunks; exhausted %d times", used, mapped, chunks, a.exhausted.Load())
	}
}

// TestLargest: a buffer of Config.Largest finds room after all memory was used for small buffers.
func TestLargest(t *testing.T) {
	a := newArena(t, Config{Max: 40 << 20, Largest: 16 << 20})
	var all [][]byte
	for b := a.Alloc(1 << 20); b != nil; b = a.Alloc(1 << 20) {
		all = append(all, b)
	}
	for _, b := range all {
		a.Free(b)
	}
	for i := range 2 {
		if a.Alloc(16<<20) == nil {
			t.Errorf("buffer %d finds no room", i)
		}
	}
}

func TestSmallMaximumServesItself(t *testing.T) {
	for _, limit := range []int64{MinMax, 100_000, 1 << 20, 3 << 20} {
		a := newArena(t, Config{Max: limit})
		for range 3 {
			b := a.Alloc(int(limit))
			if b == nil {
				t.Fatalf("Max %d: can't allocate it", limit)
			}
			a.Free(b)
		}
	}
}

func TestLargeBuffersGetChunksOfTheirOwn(t *testing.T) {
	a := newArena(t, Config{Max: 64 << 20})
	for range 10 {
		b := a.Alloc(6 << 20)
		if b == nil {
			t.Fatal("no room for 6 MiB")
		}
		b[0], b[len(b)-1] = 1, 2
		a.Free(b)
	}
	if _, mapped, _ := holds(a); mapped != 8<<20 {
		t.Errorf("%d bytes mapped for one buffer at a time", mapped)
	}
}

func TestOnGrowAndChunkOf(t *testing.T) {
	var chunks [][]byte
	a := newArena(t, Config{Max: 32 << 20, OnGrow: func(i int, c []byte) error {
		if i != len(chunks) {
			t.Errorf("chunk %d announced as %d", len(chunks), i)
		}
		chunks = append(chunks, c)
		return nil
	}})
	if len(chunks) != 0 {
		t.Error("mapped before it was needed")
	}
	var bufs [][]byte
	for range 20 {
		bufs = append(bufs, a.Alloc(1<<20))
	}
	if len(chunks) != 5 {
		t.Errorf("%d chunks for 20 MiB", len(chunks))
	}
	for _, b := range bufs {
		i, off, ok := a.ChunkOf(b[100:200])
		if !ok || &chunks[i][off] != &b[100] {
			t.Fatalf("ChunkOf gave %d, %d, %v", i, off, ok)
		}
	}
	var onStack [16]byte
	past := unsafe.Slice(&chunks[0][ChunkSize-1], 2)
	for name, b := range map[string][]byte{"nil": nil, "foreign": make([]byte, 10), "stack": onStack[:], "past the end": past} {
		if _, _, ok := a.ChunkOf(b); ok {
			t.Errorf("%s slice has a chunk", name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.ChunkOf(bufs[7]) }); n != 0 {
		t.Errorf("ChunkOf allocates %v times", n)
	}
}

func TestOnGrowRefuses(t *testing.T) {
	refusal := errors.New("device full")
	refuse := true
	a := newArena(t, Config{OnGrow: func(i int, _ []byte) error {
		if i != 0 {
			t.Errorf("index %d, want 0: the first was refused", i)
		}
		if refuse {
			return refusal
		}
		return nil
	}})
	if a.Alloc(4096) != nil || !errors.Is(a.Err(), refusal) || a.mapped != 0 {
		t.Errorf("after a refusal: %v, %d bytes mapped", a.Err(), a.mapped)
	}
	refuse = false
	if a.Alloc(4096) == nil {
		t.Error("no memory after the refusal ended")
	}
}

func TestWrongFrees(t *testing.T) {
	a := newArena(t, Config{})
	b := a.Alloc(8192)
	wrong := map[string][]byte{
		"foreign": make([]byte, 10), "middle": b[1:], "inner block": b[512:],
		"never handed out": unsafe.Slice(unsafe.SliceData(b), 1<<20)[65536:],
	}
	for name, w := range wrong {
		free(t, a, w, true)
		if used, _, _ := holds(a); used != 8192 {
			t.Errorf("%s: %d bytes in use, want 8192", name, used)
		}
	}
	free(t, a, nil, false)
	free(t, a, b[:0], false)
	free(t, a, b, true)
	a.drain()
	free(t, a, b, true)
}

// holds returns how many bytes of an Arena are handed out, once nothing is cached any more, and how many it has mapped.
func holds(a *Arena) (used, mapped int64, chunks int) {
	a.drain()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chunks {
		if c != nil {
			used += int64(c.used) * unit
			chunks++
		}
	}
	return used, a.mapped, chunks
}

// free frees b and expects a panic if wrong is true and invariants are checked.
func free(t *testing.T, a *Arena, b []byte, wrong bool) {
	t.Helper()
	defer func() {
		if r := recover(); (r != nil) != (wrong && invariants) {
			t.Errorf("panic %v, wrong use %v, invariants %v", r, wrong, invariants)
		}
	}()
	a.Free(b)
}

func TestPoison(t *testing.T) {
	if !invariants {
		t.Skip("built without the tag invariants")
	}
	a := newArena(t, Config{})
	b := a.Alloc(1000)
	a.Free(b)
	if !bytes.Equal(b, bytes.Repeat([]byte{0xdb}, 1000)) {
		t.Error("freed memory keeps its contents")
	}
}

func TestCloseWaitsForBuffersInUse(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	kept, cached, large := a.Alloc(4096), a.Alloc(4096), a.Alloc(ChunkSize)
	a.Free(cached)
	a.Free(large)
	a.Close()
	a.Close()
	if _, _, chunks := holds(a); chunks != 1 || a.Alloc(4096) != nil {
		t.Errorf("after Close: %d chunks", chunks)
	}
	kept[0] = 1
	if _, _, ok := a.ChunkOf(kept); !ok {
		t.Error("a buffer in use lost its chunk")
	}
	a.Free(kept)
	if used, mapped, _ := holds(a); mapped != 0 || used != 0 {
		t.Errorf("after the last Free: %d bytes in use, %d mapped", used, mapped)
	}
	if _, _, ok := a.ChunkOf(kept); ok {
		t.Error("an unmapped chunk is found")
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	a := newArena(t, Config{})
	var bufs [64][]byte
	round := func() {
		for i := range bufs {
			bufs[i] = a.Alloc(512 << (i % 12))
		}
		bufs[0][0]++
		for _, b := range bufs {
			a.Free(b)
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v heap allocations per round", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	a := newArena(t, Config{Max: 16 << 20, OnGrow: func(int, []byte) error { return nil }})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			var held [][]byte
			for i := range 3000 {
				if len(held) > 0 && r.IntN(2) == 0 {
					k := r.IntN(len(held))
					b := held[k]
					if b[0] != byte(w) || b[len(b)-1] != byte(w) {
						t.Errorf("worker %d step %d: another wrote into its buffer", w, i)
					}
					a.Free(b)
					held[k] = held[len(held)-1]
					held = held[:len(held)-1]
				} else if b := a.Alloc(1 + r.IntN(512<<r.IntN(12))); b != nil {
					b[0], b[len(b)-1] = byte(w), byte(w)
					if _, _, ok := a.ChunkOf(b); !ok {
						t.Error("a buffer has no chunk")
					}
					held = append(held, b)
				}
			}
			for _, b := range held {
				a.Free(b)
			}
		})
	}
	wg.Wait()
	if used, _, _ := holds(a); used != 0 {
		t.Errorf("%d bytes in use", used)
	}
	checkBooks(t, a)
}

func BenchmarkAllocFree(b *testing.B) {
	for name, n := range map[string]int{"4KiB": 4096, "128KiB": 128 << 10, "12KiB uncached": 12 << 10} {
		b.Run(name, func(b *testing.B) {
			a := newArena(b, Config{})
			a.Free(a.Alloc(n))
			b.ReportAllocs()
			for b.Loop() {
				a.Free(a.Alloc(n))
			}
		})
	}
}

func BenchmarkChunkOf(b *testing.B) {
	a := newArena(b, Config{})
	var bufs [64][]byte
	for i := range bufs {
		bufs[i] = a.Alloc(ChunkSize)
	}
	i := 0
	for b.Loop() {
		a.ChunkOf(bufs[i&63])
		i++
	}
}

// TestGrowthInCompany: a goroutine that grows the Arena gets a buffer, though others take from the new chunk.
func TestGrowthInCompany(t *testing.T) {
	for range 20 {
		a := newArena(t, Config{})
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 3 {
					if a.Alloc(ChunkSize/4) == nil {
						_, mapped, _ := holds(a)
						t.Errorf("no memory, where %d of %d bytes are mapped: %v", mapped, a.cfg.Max, a.Err())
					}
				}
			})
		}
		all.Wait()
		a.Close()
	}
}

// lacking configures an Arena that gets no memory from the system while short is set, and counts the failures.
func lacking(t testing.TB, short *bool, failed *int) Config {
	return Config{
		OnGrow: func(int, []byte) error {
			if *short {
				return unix.ENOMEM
			}
			return nil
		},
		OnFail: func(err error) {
			if !errors.Is(err, unix.ENOMEM) {
				t.Error(err)
			}
			*failed++
		},
	}
}

// TestOnFail: a failure is told of where there is no buffer, and not where one comes from a chunk of the other kind.
func TestOnFail(t *testing.T) {
	short, failed := false, 0
	a := newArena(t, lacking(t, &short, &failed))
	a.Free(a.Alloc(ChunkSize))
	short = true
	b := a.AllocSparse(ChunkSize)
	if b == nil || failed != 0 {
		t.Errorf("a buffer of the other kind: found: %v; told of %d failures", b != nil, failed)
	}
	if a.Alloc(ChunkSize) != nil || failed != 1 || !errors.Is(a.Err(), unix.ENOMEM) {
		t.Errorf("no buffer: told of %d failures; %v", failed, a.Err())
	}
	a.Free(b)
}
