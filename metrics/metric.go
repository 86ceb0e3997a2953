package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// metric is a metric with its name and labels.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{newDesc(name, help, labels), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{newDesc(name, help, labels), prometheus.GaugeValue}
}

// descs describes all possible metrics, each of which is a variable of the package.
var descs []*prometheus.Desc

func newDesc(name, help string, labels []string) *prometheus.Desc {
	d := prometheus.NewDesc("nvmeof_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// number is any type that counters have.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// send sends a value to a scrape.
func send[N number](ch chan<- prometheus.Metric, m metric, v N, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(v), labels...)
}

// flag returns the value of a gauge that means yes or no.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// text makes a valid label of text from a peer or user: Prometheus requires UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// row is a metric with the function that reads it from a package's counters.
type row[T any] struct {
	metric
	read func(T) float64
}

// collector makes a function a prometheus.Collector. It describes nothing, as it is registered for one scrape only.
type collector func(chan<- prometheus.Metric)

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

func seconds(nanos uint64) float64 { return float64(nanos) / 1e9 }

// histogram makes a Prometheus histogram of the latencies in o. (Our buckets count values below their bound, Prometheus'
// those not above it: with nanoseconds the difference is invisible.)
func histogram(d *prometheus.Desc, o *target.OpStats, labels ...string) prometheus.Metric {
	const last = target.LatencyBuckets - 1 // has no bound
	buckets := make(map[float64]uint64, last)
	var n uint64
	for i, c := range o.Latency[:last] {
		n += c
		buckets[target.LatencyBound(i).Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(d, n+o.Latency[last], seconds(o.Nanos), buckets, labels...)
}
