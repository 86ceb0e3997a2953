package loadgen

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// LatencyBuckets is the number of buckets of Latencies.
const LatencyBuckets = 25

// latencyShift makes the first bound 1024 ns; the others are its doubles, up to 8.6 s.
const latencyShift = 10

// LatencyBound is the upper bound of bucket i, exclusive; the last bucket has none.
func LatencyBound(i int) time.Duration { return 1 << (latencyShift + i) }

// Latencies is a coarse histogram that, unlike the measured one, can be read while a run is
// under way. Bucket i counts what took less than LatencyBound(i) and not less than the bound
// before it.
type Latencies struct {
	Nanos   uint64 // sum
	Buckets [LatencyBuckets]uint64
}

// liveLatencies are Latencies that are being counted.
type liveLatencies struct {
	nanos   atomic.Uint64
	buckets [LatencyBuckets]atomic.Uint64
}

func (l *liveLatencies) record(ns int64) {
	l.nanos.Add(uint64(ns))
	l.buckets[min(bits.Len64(uint64(ns)>>latencyShift), LatencyBuckets-1)].Add(1)
}

// addTo adds what was counted to s.
func (l *liveLatencies) addTo(s *Latencies) {
	s.Nanos += l.nanos.Load()
	for i := range l.buckets {
		s.Buckets[i] += l.buckets[i].Load()
	}
}

// Add adds o to s.
func (s *Latencies) Add(o *Latencies) {
	s.Nanos += o.Nanos
	for i, n := range o.Buckets {
		s.Buckets[i] += n
	}
}
