package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// The metrics of a load generator.
var (
	benchIOs     = counter("bench_ios_total", "Operations that the load generator has completed.", "op")
	benchBytes   = counter("bench_bytes_total", "Bytes that the load generator has moved, or trimmed.", "op")
	benchErrors  = counter("bench_errors_total", "Operations of the load generator that failed.")
	benchLatency = newDesc("bench_io_duration_seconds", "Time of the load generator's operations.", []string{"op"})
)

// Bench is what a load generator, such as nvmeinit's, has measured so far. It only grows.
type Bench struct {
	Read, Write, Trim target.OpStats // as seen from the host
	Errors            uint64
}

// AddBench shows what a load generator measures. read may be called from any goroutine. A Set has at most one load
// generator.
func (s *Set) AddBench(read func() Bench) (remove func()) { return add(s, &s.benches, read) }

func (b *Bench) collect(ch chan<- prometheus.Metric) {
	send(ch, benchErrors, b.Errors)
	for label, o := range map[string]*target.OpStats{"read": &b.Read, "write": &b.Write, "trim": &b.Trim} {
		send(ch, benchIOs, o.Ops, label)
		send(ch, benchBytes, o.Bytes, label)
		ch <- histogram(benchLatency, o, label)
	}
}
