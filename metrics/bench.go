package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// What the load generator measures.
var (
	benchIOs     = counter("bench_ios_total", "Operations that the load generator has completed.", "op")
	benchBytes   = counter("bench_bytes_total", "Bytes that the load generator has moved.", "op")
	benchErrors  = counter("bench_errors_total", "Operations of the load generator that failed.")
	benchLatency = newDesc("bench_io_duration_seconds", "Time of the load generator's operations.", []string{"op"})
)

// Bench shows the runs of a load generator, one after another.
type Bench struct {
	mu     sync.Mutex
	live   [2]benchOp // the run under way
	ended  [2]benchOp // those that ended, together
	errors uint64
}

// benchOp are the figures of one direction.
type benchOp struct {
	ios, bytes uint64
	latencies  loadgen.Latencies
}

func (o *benchOp) add(p *benchOp) {
	o.ios += p.ios
	o.bytes += p.bytes
	o.latencies.Add(&p.latencies)
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
func (b *Bench) Report(p *loadgen.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.live {
		m := &p.Ops[i]
		b.live[i] = benchOp{m.IOs, m.Bytes, m.Latency.Latencies()}
	}
}

// Finish takes the results of a run, whose reports they replace.
func (b *Bench) Finish(r *loadgen.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.live {
		b.live[i] = benchOp{}
	}
	for k := range r.Jobs {
		j := &r.Jobs[k]
		b.errors += j.Errors
		for i := range b.ended {
			m := &j.Ops[i]
			b.ended[i].add(&benchOp{m.IOs, m.Bytes, m.Latency.Latencies()})
		}
	}
}

// total is what all runs did.
func (b *Bench) total() (ops [2]benchOp, errors uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ops = b.ended
	for i := range ops {
		ops[i].add(&b.live[i])
	}
	return ops, b.errors
}

func (b *Bench) collect(ch chan<- prometheus.Metric) {
	ops, errors := b.total()
	send(ch, benchErrors, errors)
	for op, label := range [...]string{loadgen.Read: "read", loadgen.Write: "write"} {
		o := &ops[op]
		send(ch, benchIOs, o.ios, label)
		send(ch, benchBytes, o.bytes, label)
		ch <- histogram(benchLatency, o.latencies.Buckets[:], o.latencies.Nanos, loadgen.LatencyBound, label)
	}
}
