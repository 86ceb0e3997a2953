package report

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Figures holds what one run measured, over all directions.
type Figures struct {
	IOPS, Bandwidth      float64 // per second; bandwidth in bytes
	Mean, P50, P99, P999 float64 // nanoseconds
	CPU                  float64 // of the initiator, nanoseconds per operation
}

// FiguresOf returns the figures of jobs that ran in parallel.
func FiguresOf(g *loadgen.JobResult) Figures {
	m := g.Total()
	return Figures{
		IOPS: g.IOPS(m), Bandwidth: g.Bandwidth(m), Mean: m.Latency.Mean(),
		P50: float64(m.Latency.Percentile(50)), P99: float64(m.Latency.Percentile(99)),
		P999: float64(m.Latency.Percentile(99.9)), CPU: float64(g.CPUPerIO()),
	}
}

// Metric is one of the Figures.
type Metric struct {
	Name string
	Unit string
	Of   func(Figures) float64
	Text func(float64) string
	Less bool // smaller is better
}

// Metrics are the metrics that tables show, in order.
var Metrics = []Metric{
	{"IOPS", "1/s", func(f Figures) float64 { return f.IOPS }, countText, false},
	{"bandwidth", "B/s", func(f Figures) float64 { return f.Bandwidth }, bandwidthText, false},
	{"latency mean", "ns", func(f Figures) float64 { return f.Mean }, TimeText, true},
	{"latency p50", "ns", func(f Figures) float64 { return f.P50 }, TimeText, true},
	{"latency p99", "ns", func(f Figures) float64 { return f.P99 }, TimeText, true},
	{"latency p99.9", "ns", func(f Figures) float64 { return f.P999 }, TimeText, true},
	{"processor an I/O", "ns", func(f Figures) float64 { return f.CPU }, TimeText, true},
}

// Work is one load that ran over each of several paths.
type Work struct {
	Name   string   // such as randread 4 KiB
	Paths  []string // the others are compared with the last
	Depths []Depth  // ascending
	Main   int      // index of the depth that Tails and Course show
	Tails  []Tail   // by path
	Course []Course // by path
	Late   []uint64 // by path: approximate number of operations that were due by a rate and that no run began
}

// Depth is what was measured at one depth.
type Depth struct {
	Depth int
	Runs  [][]Figures // by path, by repeat; each repeat ran over all paths
}

// Tail is the distribution of latencies over all repeats.
type Tail []TailPoint

// TailPoint is one percentile.
type TailPoint struct {
	Percentile float64
	Nanos      float64
}

// tailPercentiles are the percentiles that a curve is drawn through.
var tailPercentiles = []float64{
	0, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 98.5, 99, 99.3, 99.5, 99.7,
	99.8, 99.9, 99.95, 99.97, 99.98, 99.99, 99.995, 99.999, 99.9999,
}

// enoughAbove is how many latencies must be above a percentile for it to be drawn.
const enoughAbove = 5

// TailOf returns the distribution of what h recorded, as far as there is enough data.
func TailOf(h *loadgen.Histogram) Tail {
	var t Tail
	for _, p := range tailPercentiles {
		if float64(h.Count())*(100-p)/100 >= enoughAbove {
			t = append(t, TailPoint{p, float64(h.Percentile(p))})
		}
	}
	return t
}

// Course is what one run did over time.
type Course []loadgen.Sample

// Spread is the median of several values, and their range.
type Spread struct{ Median, Min, Max float64 }

// spreadOf returns the spread of values, of which there must be at least one.
func spreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// Spread returns the spread of a metric over the repeats of a path.
func (d *Depth) Spread(path int, m Metric) Spread {
	values := make([]float64, len(d.Runs[path]))
	for i, f := range d.Runs[path] {
		values[i] = m.Of(f)
	}
	return spreadOf(values)
}

// Ratio returns the ratio of a metric on one path to that on another. It is computed for each repeat, since
// whatever disturbed the machine in that time disturbed both.
func (d *Depth) Ratio(path, base int, m Metric) Spread {
	values := make([]float64, 0, len(d.Runs[path]))
	for i, f := range d.Runs[path] {
		if b := m.Of(d.Runs[base][i]); b > 0 {
			values = append(values, m.Of(f)/b)
		}
	}
	if len(values) == 0 {
		return Spread{}
	}
	return spreadOf(values)
}
