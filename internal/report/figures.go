package report

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Figures are what one run measured, all directions together.
type Figures struct {
	IOPS, Bandwidth      float64 // a second; bytes
	Mean, P50, P99, P999 float64 // nanoseconds
	CPU                  float64 // of the initiator, nanoseconds an operation
}

// FiguresOf are those of jobs that ran side by side.
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
	Less bool // is better
}

// Metrics are those that tables show, in their order.
var Metrics = []Metric{
	{"IOPS", "1/s", func(f Figures) float64 { return f.IOPS }, Count, false},
	{"bandwidth", "B/s", func(f Figures) float64 { return f.Bandwidth }, Bandwidth, false},
	{"latency mean", "ns", func(f Figures) float64 { return f.Mean }, Time, true},
	{"latency p50", "ns", func(f Figures) float64 { return f.P50 }, Time, true},
	{"latency p99", "ns", func(f Figures) float64 { return f.P99 }, Time, true},
	{"latency p99.9", "ns", func(f Figures) float64 { return f.P999 }, Time, true},
	{"processor an I/O", "ns", func(f Figures) float64 { return f.CPU }, Time, true},
}

// Work is one load, that ran over each of several paths.
type Work struct {
	Name   string   // as randread 4 KiB
	Paths  []string // the last is what the others are compared with
	Depths []Depth  // ascending
	Main   int      // index of the depth that Tails and Courses are of
	Tails  []Tail   // by path
	Course []Course // by path
	Late   []uint64 // by path: operations that were due by a rate, and that no run began, about
}

// Depth is what was measured at one depth.
type Depth struct {
	Depth int
	Runs  [][]Figures // by path, by repeat
}

// Tail is how latencies were distributed, in all repeats together.
type Tail []TailPoint

// TailPoint is one percentile.
type TailPoint struct {
	Percentile float64
	Nanos      float64
}

// tailPercentiles are those that a curve is drawn through.
var tailPercentiles = []float64{
	0, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 98.5, 99, 99.3, 99.5, 99.7,
	99.8, 99.9, 99.95, 99.97, 99.98, 99.99, 99.995, 99.999, 99.9999,
}

// enoughAbove is how many latencies above a percentile make it worth being drawn.
const enoughAbove = 5

// TailOf is the distribution of what h counted, as far as it is known well.
func TailOf(h *loadgen.Histogram) Tail {
	var t Tail
	for _, p := range tailPercentiles {
		if float64(h.Count())*(100-p)/100 >= enoughAbove {
			t = append(t, TailPoint{p, float64(h.Percentile(p))})
		}
	}
	return t
}

// Course is what one run did in the course of time.
type Course []loadgen.Sample

// Spread is the middle of several values, and their range.
type Spread struct{ Median, Min, Max float64 }

// SpreadOf is that of values, of which there is at least one.
func SpreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// Spread is that of a metric over the repeats of a path.
func (d *Depth) Spread(path int, m Metric) Spread {
	values := make([]float64, len(d.Runs[path]))
	for i, f := range d.Runs[path] {
		values[i] = m.Of(f)
	}
	return SpreadOf(values)
}

// Ratio is that of a metric of one path to that of another. Each repeat gives one: what
// disturbed the machine meanwhile disturbed both.
func (d *Depth) Ratio(path, base int, m Metric) Spread {
	n := min(len(d.Runs[path]), len(d.Runs[base]))
	values := make([]float64, 0, n)
	for i := range n {
		if b := m.Of(d.Runs[base][i]); b > 0 {
			values = append(values, m.Of(d.Runs[path][i])/b)
		}
	}
	if len(values) == 0 {
		return Spread{}
	}
	return SpreadOf(values)
}
