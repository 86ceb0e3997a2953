package loadgen

import (
	"iter"
	"math"
	"math/bits"
)

// The buckets of a Histogram are fio's, which appear in its JSON: the groupBits bits below a value's highest bit
// select the bucket, so the width of a bucket is at most 1/64 of its values.
const (
	groupBits = 6
	groups    = 36 // the last one ends at 2^41 ns, 36 minutes
	buckets   = groups << groupBits
)

// Histogram counts latencies in nanoseconds. Its zero value is empty. It is not safe for
// concurrent use.
type Histogram struct {
	n        uint64
	min, max int64
	sum      float64
	squares  float64
	counts   [buckets]uint64
}

// Record counts one latency.
func (h *Histogram) Record(ns int64) {
	ns = max(ns, 0)
	if h.n == 0 || ns < h.min {
		h.min = ns
	}
	h.max = max(h.max, ns)
	h.n++
	h.sum += float64(ns)
	h.squares += float64(ns) * float64(ns)
	h.counts[bucketOf(uint64(ns))]++
}

func bucketOf(ns uint64) int {
	msb := bits.Len64(ns) - 1
	if msb <= groupBits {
		return int(ns)
	}
	drop := msb - groupBits
	i := (drop+1)<<groupBits + int(ns>>drop)&(1<<groupBits-1)
	return min(i, buckets-1)
}

// bucketValue returns the middle of bucket i, which is the value that fio shows for it.
func bucketValue(i int) int64 {
	if i < 2<<groupBits {
		return int64(i)
	}
	drop := i>>groupBits - 1
	base := int64(1) << (drop + groupBits)
	return base + int64(i&(1<<groupBits-1))<<drop + int64(1)<<(drop-1)
}

// Merge adds what o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
	h.squares += o.squares
	for i, c := range &o.counts {
		h.counts[i] += c
	}
}

// subtract reduces h to what was counted since before, an earlier state of h. Min and Max are then those of the
// buckets.
func (h *Histogram) subtract(before *Histogram) {
	h.n -= before.n
	h.sum -= before.sum
	h.squares -= before.squares
	h.min, h.max = 0, 0
	first := true
	for i, c := range &before.counts {
		if h.counts[i] -= c; h.counts[i] == 0 {
			continue
		}
		if first {
			h.min, first = bucketValue(i), false
		}
		h.max = bucketValue(i)
	}
}

// Count returns the number of latencies recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Min returns the smallest latency, in nanoseconds; 0 if there is none.
func (h *Histogram) Min() int64 { return h.min }

// Max returns the largest latency, in nanoseconds.
func (h *Histogram) Max() int64 { return h.max }

// Sum returns the sum of all latencies, in nanoseconds.
func (h *Histogram) Sum() int64 { return int64(h.sum) }

// Mean returns the average, in nanoseconds.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// StdDev returns the sample standard deviation, in nanoseconds, as fio computes it.
func (h *Histogram) StdDev() float64 {
	if h.n < 2 {
		return 0
	}
	return math.Sqrt(max(h.squares-h.sum*h.Mean(), 0) / float64(h.n-1))
}

// Percentile returns the latency in nanoseconds that p percent did not exceed, to within a bucket.
func (h *Histogram) Percentile(p float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(p / 100 * float64(h.n)))
	var seen uint64
	for i, c := range &h.counts {
		if seen += c; seen >= rank {
			return min(max(bucketValue(i), h.min), h.max)
		}
	}
	return h.max
}

// Bins yields the middle, in nanoseconds, and the count of each bucket that isn't empty, in ascending order.
func (h *Histogram) Bins() iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		for i, c := range &h.counts {
			if c > 0 && !yield(bucketValue(i), c) {
				return
			}
		}
	}
}
