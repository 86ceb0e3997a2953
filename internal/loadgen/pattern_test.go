package loadgen

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A permutation has every number once, and neighbours far apart.
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
		// Two random places of a line are a third of it apart.
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

// hottest is the share of operations that go to the most popular share of blocks.
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

// Two clones of a spec share its popular blocks, and draw differently; so do two specs of one seed.
func TestClones(t *testing.T) {
	s := spec("randread")
	s.Distribution = Distribution{Zipf, 1.5}
	s.BS[Read] = Split{{4096, 50}, {8192, 50}}
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
