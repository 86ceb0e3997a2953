package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// What the load generator measures. The histogram grows when a run ends.
var (
	benchIOs     = counter("bench_ios_total", "Operations that the load generator has completed.", "op")
	benchBytes   = counter("bench_bytes_total", "Bytes that the load generator has moved.", "op")
	benchErrors  = counter("bench_errors_total", "Operations of the load generator that failed.")
	benchLatency = newDesc("bench_io_duration_seconds", "Time of the load generator's operations.", []string{"op"})
)

// benchBounds are the upper bounds of the buckets: 1, 2, 4 … µs up to 8 s.
var benchBounds = func() (b [24]time.Duration) {
	for i := range b {
		b[i] = time.Microsecond << i
	}
	return b
}()

// Bench shows the runs of a load generator, one after another.
type Bench struct {
	mu     sync.Mutex
	live   loadgen.Progress // of the run under way
	ops    [2]benchOp       // of those that ended
	errors uint64
}

type benchOp struct {
	ios, bytes uint64
	sum        float64 // seconds
	buckets    [len(benchBounds)]uint64
	count      uint64
}

// AddBench shows what its Report and Finish are told.
func (s *Set) AddBench() *Bench {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bench == nil {
		s.bench = new(Bench)
	}
	return s.bench
}

// Report takes a look at a run under way.
func (b *Bench) Report(p loadgen.Progress) {
	b.mu.Lock()
	b.live = p
	b.mu.Unlock()
}

// Finish takes the result of a run, whose reports it replaces.
func (b *Bench) Finish(r *loadgen.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = loadgen.Progress{}
	b.errors += r.Errors
	for i := range b.ops {
		b.ops[i].add(&r.Ops[i])
	}
}

func (o *benchOp) add(m *loadgen.Measured) {
	o.ios += m.IOs
	o.bytes += m.Bytes
	for _, bar := range m.Latency.Distribution() {
		if bar.Count == 0 {
			continue
		}
		o.count += uint64(bar.Count)
		o.sum += float64(bar.Count) * float64(bar.From+bar.To) / 2 / 1e9
		for i, bound := range benchBounds {
			if bar.To <= int64(bound) {
				o.buckets[i] += uint64(bar.Count)
			}
		}
	}
}

func (b *Bench) collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	send(ch, benchErrors, b.errors)
	for op, label := range [...]string{loadgen.Read: "read", loadgen.Write: "write"} {
		o := &b.ops[op]
		send(ch, benchIOs, o.ios+b.live.IOs[op], label)
		send(ch, benchBytes, o.bytes+b.live.Bytes[op], label)
		buckets := make(map[float64]uint64, len(benchBounds))
		for i, bound := range benchBounds {
			buckets[bound.Seconds()] = o.buckets[i]
		}
		ch <- prometheus.MustNewConstHistogram(benchLatency, o.count, o.sum, buckets, label)
	}
}
