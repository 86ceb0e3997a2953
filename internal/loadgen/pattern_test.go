package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A permutation has every number once, and puts neighbours far apart.
func TestPermutation(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 7, 8, 9, 255, 256, 257, 100_003} {
		p := newPermutation(n, 12345)
		seen := make([]bool, n)
		var jumps float64
		for i := range n {
			v := p.at(uint64(i))
			if v >= uint64(n) || seen[v] {
				t.Fatalf("of %d numbers, place %d has %d, which is outside or came before", n, i, v)
			}
			seen[v] = true
			jumps += math.Abs(float64(v) - float64(p.at(uint64((i+1)%n))))
		}
		// Two random places on a line are a third of its length apart on average.
		if mean := jumps / float64(n) / float64(n); n > 1000 && (mean < 0.3 || mean > 0.37) {
			t.Errorf("of %d numbers, neighbours are %.2f of it apart, want about 0.33", n, mean)
		}
	}
}

// Ranks come as often as Zipf's law says, on either side of an exponent of 1.
func TestZipf(t *testing.T) {
	const n, draws = 1000, 200_000
	for _, theta := range []float64{0.5, 0.99, 1, 1.2, 2.5} {
		z := newZipf(theta, n)
		rng := rand.New(rand.NewPCG(1, uint64(theta*100)))
		var counts [n]int
		for range draws {
			counts[z.rank(rng)]++
		}
		var sum float64
		for k := 1; k <= n; k++ {
			sum += math.Pow(float64(k), -theta)
		}
		for _, k := range []int{1, 2, 3, 10} {
			want := math.Pow(float64(k), -theta) / sum * draws
			if got := float64(counts[k-1]); math.Abs(got-want) > 5*math.Sqrt(want)+1 {
				t.Errorf("θ %v: rank %d came %v times, want %.0f", theta, k, got, want)
			}
		}
	}
}

// Sizes of a range are multiples of the smallest, equally likely, and none is above the largest.
func TestRange(t *testing.T) {
	const draws = 100_000
	s := spec("randread")
	s.BS[Read] = Range(4096, 18<<10)
	z := newSizes(&s, 0)
	counts := map[int]int{}
	for range draws {
		counts[z.next(Read)]++
	}
	for _, bytes := range []int{4096, 8192, 12288, 16384} {
		if share := float64(counts[bytes]) / draws; math.Abs(share-0.25) > 0.01 {
			t.Errorf("%d bytes are %.3f of the operations, want 0.25", bytes, share)
		}
	}
	if len(counts) != 4 || s.largestBlock() != 16<<10 || s.BS[Read].mean() != 10<<10 {
		t.Errorf("sizes %v, the largest %d, on average %v; want 4, 16384, 10240", counts, s.largestBlock(), s.BS[Read].mean())
	}
}

// hottest returns the share of operations that go to the most popular share of blocks.
func hottest(d Distribution, blocks float64) float64 {
	s := spec("randread")
	s.Distribution = d
	const span, draws = 4096 * 1000, 100_000
	p := newPattern(&s, 0, span)
	counts := map[int64]int{}
	for range draws {
		counts[p.offset(Read, 4096)]++
	}
	hot := 0
	for rank := range uint64(blocks * 1000) {
		hot += counts[int64(p.hot.at(rank))*4096]
	}
	return float64(hot) / draws
}

func TestDistributions(t *testing.T) {
	for _, c := range []struct {
		d         Distribution
		blocks    float64
		low, high float64
	}{
		{Distribution{Pareto, 0.2}, 0.2, 0.78, 0.82}, // 80% of the operations
		{Distribution{Pareto, 0.1}, 0.1, 0.88, 0.92},
		{Distribution{Zipf, 1.2}, 0.01, 0.55, 0.59}, // Σ k^-1.2 to 10 over that to 1000: 0.57
		{Distribution{}, 0.2, 0.19, 0.21},
	} {
		if got := hottest(c.d, c.blocks); got < c.low || got > c.high {
			t.Errorf("%+v: %.3f of the operations go to %v of the blocks, want %v to %v", c.d, got, c.blocks, c.low, c.high)
		}
	}
}

// Offsets are multiples of the requested alignment, inside the range and up to its end; every place comes.
func TestAlign(t *testing.T) {
	for _, c := range []struct {
		bs, align, places int
	}{{4096, 16384, 6}, {16384, 4096, 22}, {4096, 4096, 25}, {32768, 16384, 5}, {4096, 0, 25}} {
		s := spec("randread")
		s.BS[Read], s.Align[Read] = Fixed(c.bs), c.align
		const span = 25 * 4096
		p := newPattern(&s, 0, span)
		seen := map[int64]bool{}
		for range 10_000 {
			at := p.offset(Read, c.bs)
			if at < 0 || at+int64(c.bs) > span || at%int64(max(c.align, 1)) != 0 {
				t.Fatalf("%d bytes at %d of %d, aligned to %d", c.bs, at, span, c.align)
			}
			seen[at] = true
		}
		if len(seen) != c.places {
			t.Errorf("%d bytes aligned to %d begin at %d places, want %d", c.bs, c.align, len(seen), c.places)
		}
		s.RW = "read" // whose offsets follow each other
		p = newPattern(&s, 0, span)
		for n := range int64(span / c.bs) {
			if at := p.offset(Read, c.bs); at != n*int64(c.bs) {
				t.Errorf("sequential operation %d of %d bytes, aligned to %d, is at %d", n, c.bs, c.align, at)
			}
		}
	}
}

// If directions have different sizes, the offsets of each are multiples of its own, as with fio, also at the end of a
// range that isn't.
func TestAlignOfDirections(t *testing.T) {
	s := spec("randrw")
	s.BS[Write] = Fixed(16384)
	p := newPattern(&s, 0, 25*4096)
	for op, want := range map[Op]int{Read: 25, Write: 6} {
		bytes := s.BS[op][0].Bytes
		seen := map[int64]bool{}
		for range 10_000 {
			at := p.offset(op, bytes)
			if at%int64(bytes) != 0 {
				t.Fatalf("%v: %d bytes at %d", op, bytes, at)
			}
			seen[at] = true
		}
		if len(seen) != want {
			t.Errorf("%v: %d bytes begin at %d places, want %d", op, bytes, len(seen), want)
		}
	}
}

// A random job goes through all blocks, each time in another order, before it repeats one; with norandommap it draws any.
func TestRandomMap(t *testing.T) {
	const blocks = 1000
	draw := func(p *pattern) (order []int64, distinct int) {
		for range blocks {
			order = append(order, p.offset(Read, 4096))
		}
		return order, len(slices.Compact(slices.Sorted(slices.Values(order))))
	}
	s := spec("randread")
	p := newPattern(&s, 0, 4096*blocks)
	var last []int64
	for pass := range 3 {
		order, distinct := draw(p)
		if distinct != blocks || slices.Equal(order, last) {
			t.Errorf("pass %d has %d of %d blocks, in the order of the one before: %v", pass, distinct, blocks, slices.Equal(order, last))
		}
		last = order
	}
	s.NoRandomMap = true
	if _, distinct := draw(newPattern(&s, 0, 4096*blocks)); distinct < 600 || distinct > 660 {
		t.Errorf("%d of %d blocks came in as many draws, want 1 - 1/e of them, 632", distinct, blocks)
	}
}

// The operations of a random job that begin where the previous one ended are the percentage that is asked for.
func TestSequentialShare(t *testing.T) {
	const draws = 100_000
	for _, percent := range []int{0, 1, 40, 99, 100} {
		s := spec("randread")
		s.Sequential[Read] = percent
		p := newPattern(&s, 0, 1<<40)
		follow, end := 0, int64(0)
		for range draws {
			at := p.offset(Read, 4096)
			if at == end {
				follow++
			}
			end = at + 4096
		}
		if share := 100 * float64(follow) / draws; math.Abs(share-float64(percent)) > 0.5 {
			t.Errorf("%.2f%% of the operations follow others, want %d%%", share, percent)
		}
	}
}

// TestRunLength: of so many operations, whatever their directions, the last goes to a random offset, and the others
// continue where one of their direction ended.
func TestRunLength(t *testing.T) {
	for n, random := range map[int]int{0: 80_000, 1: 80_000, 8: 10_000} {
		s := spec("randrw")
		s.RunLength = n
		p := newPattern(&s, 0, 1<<40)
		var end [ops]int64
		jumps := 0
		for i := range 80_000 {
			op := Op(i / 3 % 2)
			at := p.offset(op, 4096)
			if at != end[op] {
				jumps++
				if n > 0 && i%n != n-1 {
					t.Fatalf("rw=randrw:%d: operation %d goes to a random offset", n, i)
				}
			}
			end[op] = at + 4096
		}
		if jumps != random {
			t.Errorf("rw=randrw:%d: %d of 80000 operations go to random offsets, want %d", n, jumps, random)
		}
	}
}

// TestSkip: sequential operations are as far apart as the spec says, and those that go back reach every block.
func TestSkip(t *testing.T) {
	for _, c := range []struct {
		skip int64
		want []int64 // in blocks of 4096 bytes, of eight
	}{
		{0, []int64{0, 1, 2, 3, 4, 5, 6, 7, 0, 1}},
		{4096, []int64{0, 2, 4, 6, 0, 2}},
		{5 * 4096, []int64{0, 6, 0, 6}},
		{7 * 4096, []int64{0, 0, 0}},
		{-4096, []int64{0, 0, 0}},
		{-8192, []int64{0, 7, 6, 5, 4, 3, 2, 1, 0, 7}},
		{-3 * 4096, []int64{0, 7, 5, 3, 1, 7}},
	} {
		s := spec("rw")
		s.Skip = c.skip
		p := newPattern(&s, 0, 8*4096)
		var got []int64
		for range c.want {
			got = append(got, p.offset(Write, 4096)/4096)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("rw=rw:%d: blocks %v, want %v", c.skip, got, c.want)
		}
	}
}

// A mix of nothing but reads, or of no reads, is just that.
func TestMixOfOne(t *testing.T) {
	for reads, want := range map[int]Op{0: Write, 100: Read} {
		s := spec("randrw")
		s.RWMixRead = reads
		p := newPattern(&s, 0, fakeSize)
		for range 10_000 {
			if op, _ := p.choose(); op != want {
				t.Fatalf("rwmixread=%d: a %v", reads, op)
			}
		}
	}
}

// Clones of a sequential job begin at different offsets, spread evenly over the range.
func TestWhereClonesBegin(t *testing.T) {
	s := spec("read")
	s.NumJobs = 4
	for clone := range s.NumJobs {
		const quarter = 64 << 10
		if at := newPattern(&s, clone, 4*quarter).offset(Read, 4096); at != int64(clone)*quarter {
			t.Errorf("clone %d begins at %d", clone, at)
		}
	}
	s.NumJobs, s.BS[Read] = 4096, Fixed(512)
	for clone := range s.NumJobs {
		if at := newPattern(&s, clone, 4<<60).offset(Read, 512); at != int64(clone)<<50 {
			t.Fatalf("clone %d of %d begins at %d of 4 EiB", clone, s.NumJobs, at)
		}
	}
}

// TestInsideShort: an operation that is longer than what all directions' alignments leave of the range goes to its
// beginning, with a skip as without.
func TestInsideShort(t *testing.T) {
	for _, skip := range []int64{0, 4096, -24 << 10} {
		s := spec("rw")
		s.BS[Read], s.BS[Write], s.Skip = Fixed(16<<10), Fixed(20<<10), skip
		p := newPattern(&s, 0, 28<<10)
		for i := range 4 {
			if at := p.offset(Write, 20<<10); at != 0 {
				t.Errorf("rw=rw:%d: write %d of 20 KiB in 28 KiB is at %d", skip, i, at)
			}
		}
	}
}

// TestInsideLargest: a sequential job goes back to the beginning from the end of the largest range, too, with a skip as
// without.
func TestInsideLargest(t *testing.T) {
	const span, bytes = math.MaxInt64 - fakeBlock + 1, 16 << 40
	s := spec("trim")
	s.BS[Trim] = Fixed(bytes)
	p := newPattern(&s, 0, span)
	for i := range 2 * (span / bytes) {
		if at := p.offset(Trim, bytes); at < 0 || at > span-bytes {
			t.Fatalf("operation %d goes to %d of %d", i, at, int64(span))
		}
	}
	const last = span - span%bytes - bytes
	s.Skip = last - bytes
	p = newPattern(&s, 0, span)
	for i, want := range []int64{0, last, 0, last} {
		if at := p.offset(Trim, bytes); at != want {
			t.Errorf("with a skip, operation %d goes to %d, want %d", i, at, want)
		}
	}
}

// Whatever the combination of sizes, alignments and distributions, operations are of whole blocks inside the range.
func TestInside(t *testing.T) {
	const block = 512
	rng := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 20_000 {
		s := spec([]string{"randread", "randrw", "rw", "read"}[rng.IntN(4)])
		blocks, short := 1+rng.Int64N(600), false
		switch rng.IntN(4) {
		case 0:
			blocks = math.MaxInt64/block - blocks
		case 1:
			blocks, short = 1+blocks%20, true
		}
		span := block * blocks
		for op := range ops {
			s.BS[op] = Range(block*(1+rng.IntN(40)), block*(1+rng.IntN(200)))
			if short || rng.IntN(2) == 0 {
				s.BS[op] = Fixed(block * int(1+rng.Int64N(min(blocks, 200))))
			}
			if !short {
				s.Align[op] = block * rng.IntN(4) * rng.IntN(100)
			}
			s.Sequential[op] = max(0, rng.IntN(200)-100)
			if share := 1 + rng.IntN(99); !short {
				s.Zones[op] = []Zone{{Percent: 70, Share: share}, {Percent: 30, Share: 100 - share}}
			}
		}
		s.Distribution = []Distribution{{}, {Kind: Zoned}, {Normal, 30}, {Zipf, 1.2}, {Pareto, 0.2}}[rng.IntN(5)]
		s.Skip, s.RunLength = block*(rng.Int64N(41)-20)*rng.Int64N(2), rng.IntN(4)
		if rng.IntN(4) == 0 {
			s.Skip = block * (rng.Int64N(blocks) - rng.Int64N(blocks))
		}
		if s.Validate(span, block) != nil {
			continue
		}
		valid++
		p := newPattern(&s, 0, span)
		for range 50 {
			op, bytes := p.choose()
			bytes = p.fit(op, bytes, span)
			if at := p.offset(op, bytes); at < 0 || at%block != 0 || bytes%block != 0 || at > span-int64(bytes) {
				t.Fatalf("%d bytes at %d of %d: %+v", bytes, at, span, s)
			}
		}
	}
	if valid < 2000 {
		t.Errorf("only %d of the specs are valid", valid)
	}
}

// Ranks of a normal distribution are around the middle, as far from it as fio's: for normal:20 with a standard
// deviation of √(1/12² + 0.2²/12) = 0.1014 of the range, and at least a twelfth for any deviation.
func TestNormal(t *testing.T) {
	const blocks, draws = 1000, 100_000
	for percent, deviation := range map[float64]float64{0: 0.0833, 20: 0.1014, 50: 0.1667, 90: 0.1667} {
		s := spec("randread")
		s.Distribution = Distribution{Normal, percent}
		p := newPattern(&s, 0, 4096*blocks)
		rank := map[int64]int{}
		for i := range blocks {
			rank[int64(p.hot.at(uint64(i)))*4096] = i
		}
		within := 0
		for range draws {
			if math.Abs(float64(rank[p.offset(Read, 4096)])+0.5-blocks/2) < deviation*blocks {
				within++
			}
		}
		if share := float64(within) / draws; share < 0.673 || share > 0.693 {
			t.Errorf("normal:%v: %.3f of the ranks are within one standard deviation, want 0.683", percent, share)
		}
	}
}

// Each zone has its part of the operations and of the range; each direction may have its own zones.
func TestZones(t *testing.T) {
	const blocks, draws = 1000, 100_000
	s := spec("randrw")
	s.Distribution = Distribution{Kind: Zoned}
	s.Zones = [ops][]Zone{{{60, 10, 0}, {30, 20, 0}, {10, 70, 0}}, {{50, 0, 100 * 4096}, {50, 0, 4096}}, {{100, 100, 0}}}
	if err := s.Validate(4096*blocks, 4096); err != nil {
		t.Fatal(err)
	}
	p := newPattern(&s, 0, 4096*blocks)
	counts := [ops][blocks]int{}
	for _, op := range []Op{Read, Write} {
		for range draws {
			counts[op][p.offset(op, 4096)/4096]++
		}
	}
	for _, z := range []struct {
		op        Op
		from, end int
		share     float64
	}{{Read, 0, 100, 0.6}, {Read, 100, 300, 0.3}, {Read, 300, 1000, 0.1}, {Write, 0, 100, 0.5}, {Write, 100, 101, 0.5}, {Write, 101, 1000, 0}} {
		n, most := 0, 0
		for _, c := range counts[z.op][z.from:z.end] {
			n, most = n+c, max(most, c)
		}
		if share := float64(n) / draws; math.Abs(share-z.share) > 0.01 {
			t.Errorf("%v: blocks %d to %d have %.3f of the operations, want %v", z.op, z.from, z.end, share, z.share)
		}
		if even := z.share * draws / float64(z.end-z.from); float64(most) > even+6*math.Sqrt(even) {
			t.Errorf("%v: one of blocks %d to %d has %d operations, and on average they have %.0f", z.op, z.from, z.end, most, even)
		}
	}
}

// Two clones of a spec share its popular blocks but draw differently; so do two specs with one seed.
func TestClones(t *testing.T) {
	s := spec("randread")
	s.Distribution = Distribution{Zipf, 1.5}
	s.BS[Read] = Split{{Bytes: 4096, Percent: 50}, {Bytes: 8192, Percent: 50}}
	other := s
	other.Number = 2
	a := newPattern(&s, 0, fakeSize)
	for name, b := range map[string]*pattern{"a clone": newPattern(&s, 1, fakeSize), "another job": newPattern(&other, 0, fakeSize)} {
		if a.hot != b.hot {
			t.Errorf("the popular blocks of %s differ", name)
		}
		offsets, sizes := 0, 0
		for range 100 {
			if a.offset(Read, 4096) == b.offset(Read, 4096) {
				offsets++
			}
			if a.sizes.next(Read) == b.sizes.next(Read) {
				sizes++
			}
		}
		if offsets == 100 || sizes == 100 {
			t.Errorf("%s draws the same", name)
		}
	}
}

// No two jobs of several specs draw the same random numbers.
func TestStreams(t *testing.T) {
	seen := map[uint64]bool{}
	for first, clones := range map[int]int{0: 1, 1: 3, 4: 2} {
		s := Spec{Number: first}
		for clone := range clones {
			seen[s.stream(clone)] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("6 jobs draw %d different streams", len(seen))
	}
}

func BenchmarkOffset(b *testing.B) {
	for name, d := range map[string]Distribution{"uniform": {}, "zipf": {Zipf, 1.1}, "pareto": {Pareto, 0.2}} {
		b.Run(name, func(b *testing.B) {
			s := spec("randread")
			s.Distribution = d
			p := newPattern(&s, 0, 1<<40)
			for b.Loop() {
				p.offset(Read, 4096)
			}
		})
	}
}
