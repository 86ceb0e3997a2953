package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is one name with its labels.
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

// descs are all metrics that there can be, each described by a variable of the package.
var descs []*prometheus.Desc

func newDesc(name, help string, labels []string) *prometheus.Desc {
	d := prometheus.NewDesc("nvmeof_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// number is what rooms count in.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// send gives a value to a scrape.
func send[N number](ch chan<- prometheus.Metric, m metric, v N, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(v), labels...)
}

// flag is how a gauge says yes or no.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// text makes a label of what a peer or user wrote: Prometheus wants UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// row is a counter with the function that reads it from a room's counters.
type row[T any] struct {
	metric
	read func(T) float64
}

// collector is a prometheus.Collector made of a function. It describes nothing: it is registered for one scrape only.
type collector func(chan<- prometheus.Metric)

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

func seconds(nanos uint64) float64 { return float64(nanos) / 1e9 }

// histogram makes a Prometheus histogram of counts below bounds; the last has none. (The
// rooms' buckets count what is below their bound, Prometheus' what is not above: for
// nanoseconds that is the same to the eye.)
func histogram(d *prometheus.Desc, counts []uint64, nanos uint64, bound func(int) time.Duration, labels ...string) prometheus.Metric {
	last := len(counts) - 1
	buckets := make(map[float64]uint64, last)
	var n uint64
	for i, c := range counts[:last] {
		n += c
		buckets[bound(i).Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(d, n+counts[last], seconds(nanos), buckets, labels...)
}
