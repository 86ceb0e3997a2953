package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Buckets are fio's: below 128 each value has its own, above they are 1/64 wide or less, and
// every value lies in the bucket whose middle is nearest.
func TestBuckets(t *testing.T) {
	last := -1
	for _, ns := range []uint64{0, 1, 63, 64, 127, 128, 129, 130, 255, 256, 1000, 1 << 20, 1<<20 + 1<<14, 1 << 40, 1<<41 - 1} {
		i := bucketOf(ns)
		if i < last {
			t.Errorf("%d ns is in bucket %d, below the one before", ns, i)
		}
		last = i
		if v := bucketValue(i); math.Abs(float64(v)-float64(ns)) > max(float64(ns)/128+1, 0) {
			t.Errorf("%d ns is in bucket %d, whose middle is %d", ns, i, v)
		}
	}
	for i := range buckets {
		if got := bucketOf(uint64(bucketValue(i))); got != i {
			t.Fatalf("the middle of bucket %d is in bucket %d", i, got)
		}
	}
	if i := bucketOf(math.MaxInt64); i != buckets-1 {
		t.Errorf("the longest is in bucket %d", i)
	}
	// As fio prints them: 62720 and 67072 were p99.99 and p99 of its own runs.
	for _, v := range []int64{1064, 17024, 62720, 67072, 798720, 1253376} {
		if got := bucketValue(bucketOf(uint64(v))); got != v {
			t.Errorf("fio's %d is our %d", v, got)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h, half, second Histogram
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]int64, 10000)
	for i := range values {
		values[i] = int64(rng.ExpFloat64() * 1e5)
		h.Record(values[i])
		if i == len(values)/2-1 {
			half = h
		} else if i >= len(values)/2 {
			second.Record(values[i])
		}
	}
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
	}
	mean := sum / float64(len(values))
	for _, v := range values {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	slices.Sort(values)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/60+1 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("the mean", h.Mean(), mean)
	near("the deviation", h.StdDev(), math.Sqrt(squares/float64(len(values)-1)))
	var two Histogram
	two.Record(339_353)
	two.Record(828_902)
	if got := two.StdDev(); math.Abs(got-346_163.417623) > 1e-6 { // what fio 3.33 reports for these
		t.Errorf("the deviation of two is %v", got)
	}
	for _, p := range []float64{1, 50, 99, 99.9, 99.99} {
		near("a percentile", float64(h.Percentile(p)), float64(values[int(math.Ceil(p/100*1e4))-1]))
	}
	if h.Min() != values[0] || h.Max() != values[len(values)-1] || h.Percentile(100) != h.Max() || h.Count() != 10000 {
		t.Errorf("%d values of %d to %d", h.Count(), h.Min(), h.Max())
	}
	rest := h
	rest.subtract(&half)
	again := half
	again.Merge(&rest)
	if rest.Count() != 5000 || rest.counts != second.counts || again.counts != h.counts || again.Count() != h.Count() {
		t.Error("the parts don't make the whole")
	}
	if least, most := bucketOf(uint64(rest.Min())), bucketOf(uint64(rest.Max())); least != bucketOf(uint64(second.Min())) || most != bucketOf(uint64(second.Max())) {
		t.Errorf("a part is of %d to %d, want %d to %d", rest.Min(), rest.Max(), second.Min(), second.Max())
	}
	near("the mean of a part", rest.Mean(), second.Mean())
	near("the deviation of a part", rest.StdDev(), second.StdDev())
	near("the mean of the parts", again.Mean(), h.Mean())
	near("the deviation of the parts", again.StdDev(), h.StdDev())
	var inBins uint64
	for ns, n := range h.Bins() {
		if inBins += n; n == 0 {
			t.Errorf("the bin of %d ns is empty", ns)
		}
	}
	if inBins != h.Count() || h.Sum() != int64(sum) {
		t.Errorf("%d in the bins, %d ns", inBins, h.Sum())
	}
	var none Histogram
	if none.Mean() != 0 || none.StdDev() != 0 || none.Percentile(99) != 0 {
		t.Error("an empty histogram has figures")
	}
}

// Merged histograms have the extremes of both, in either order; an empty one adds nothing.
func TestMerge(t *testing.T) {
	var low, high, none Histogram
	low.Record(10)
	low.Record(20)
	high.Record(15)
	high.Record(100)
	for _, c := range []struct {
		a, b     Histogram
		min, max int64
	}{{low, high, 10, 100}, {high, low, 10, 100}, {low, none, 10, 20}, {none, low, 10, 20}, {none, none, 0, 0}} {
		h, of := c.a, c.b
		if h.Merge(&of); h.Min() != c.min || h.Max() != c.max {
			t.Errorf("%d to %d merged with %d to %d are %d to %d", c.a.Min(), c.a.Max(), c.b.Min(), c.b.Max(), h.Min(), h.Max())
		}
	}
}
