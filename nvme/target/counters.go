package target

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// LatencyBuckets is the number of buckets of a latency histogram. Bucket i counts commands that took less than
// LatencyBound(i), and at least the bound before it; the last bucket has no bound.
const LatencyBuckets = 25

// latencyShift makes the first bound 1024 ns; each further one is twice as long, up to 8.6 s.
const latencyShift = 10

// LatencyBound returns the upper bound of bucket i, exclusive.
func LatencyBound(i int) time.Duration { return 1 << (latencyShift + i) }

// LatencyBucket returns the bucket that d falls in.
func LatencyBucket(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0))>>latencyShift), LatencyBuckets-1)
}

// opKind is what a command counts as.
type opKind uint8

const (
	opRead opKind = iota
	opWrite
	opOther
	opCompare // these three count as other, except for SMART
	opVerify
	opCopy
	opKinds
)

// ioCounters count the commands of a queue, or those of a namespace in one of its shards. The number of commands isn't
// kept: it is the sum of the buckets.
type ioCounters struct {
	kind   [opKinds]opCounters
	errors [8]atomic.Uint64 // by status code type
	stages stageCounters
}

type opCounters struct {
	latency [LatencyBuckets]atomic.Uint64
	nanos   atomic.Uint64
	bytes   atomic.Uint64
}

func (c *ioCounters) count(k opKind, st nvme.Status, ns int64, bytes int) {
	o := &c.kind[k]
	o.latency[LatencyBucket(time.Duration(ns))].Add(1)
	o.nanos.Add(uint64(max(ns, 0)))
	if !st.OK() {
		c.errors[st.Code()>>8].Add(1)
	} else if bytes > 0 {
		o.bytes.Add(uint64(bytes))
	}
}

// totals returns the number of commands and the payload of those that succeeded.
func (o *opCounters) totals() (ops, bytes uint64) {
	for i := range o.latency {
		ops += o.latency[i].Load()
	}
	return ops, o.bytes.Load()
}

// OpStats are the counters of one kind of command.
type OpStats struct {
	Ops     uint64
	Bytes   uint64 // payload of those that succeeded
	Latency [LatencyBuckets]uint64
	Nanos   uint64 // sum of the latencies, from the arrival of the capsule to the response
}

// IOStats are the counters of a queue, a controller, a namespace or a transport. They cover commands that were
// completed, and none that its connection's end cut off.
type IOStats struct {
	Read, Write, Other OpStats
	// Errors counts responses with an error by status code type: 0 generic, 1 command specific, 2 media, 3 path, 7
	// vendor.
	Errors [8]uint64
	Stages StageStats // of a sample of the commands
}

// addTo adds the counters to s.
func (c *ioCounters) addTo(s *IOStats) {
	for k, o := range [opKinds]*OpStats{&s.Read, &s.Write, &s.Other, &s.Other, &s.Other, &s.Other} {
		from := &c.kind[k]
		for i := range from.latency {
			n := from.latency[i].Load()
			o.Latency[i] += n
			o.Ops += n
		}
		o.Bytes += from.bytes.Load()
		o.Nanos += from.nanos.Load()
	}
	for i := range c.errors {
		s.Errors[i] += c.errors[i].Load()
	}
	c.stages.addTo(&s.Stages)
}

// Add adds the counters of o to s.
func (s *IOStats) Add(o *IOStats) {
	s.Read.Add(&o.Read)
	s.Write.Add(&o.Write)
	s.Other.Add(&o.Other)
	for i, n := range o.Errors {
		s.Errors[i] += n
	}
	s.Stages.add(&o.Stages)
}

// Add adds the counters of o to s.
func (s *OpStats) Add(o *OpStats) {
	s.Ops += o.Ops
	s.Bytes += o.Bytes
	s.Nanos += o.Nanos
	for i, n := range o.Latency {
		s.Latency[i] += n
	}
}
