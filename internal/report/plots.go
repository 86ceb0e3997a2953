package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// metric finds a metric by name.
func metric(name string) Metric {
	for _, m := range Metrics {
		if m.Name == name {
			return m
		}
	}
	panic("report: no metric " + name)
}

// overDepth returns the plots over depth; none if there is only one depth.
func (w *Work) overDepth() []*chart {
	if len(w.Depths) < 2 {
		return nil
	}
	var values []int
	for _, d := range w.Depths {
		values = append(values, d.Depth)
	}
	note := ""
	if len(w.Depths[0].Runs[0]) > 1 {
		note = "Medians; shaded: the range of all repeats."
	}
	iops := &chart{Title: "IOPS over depth", Note: note, x: depths("operations outstanding a job (iodepth)", values)}
	lat := &chart{Title: "Latency over depth", Note: "Solid: median of operations (p50); dashed: p99.", x: iops.x}
	for path, name := range w.Paths {
		iops.lines = append(iops.lines, w.depthLine(path, name, metric("IOPS"), false))
		lat.lines = append(lat.lines,
			w.depthLine(path, name+" p50", metric("latency p50"), false),
			w.depthLine(path, name+" p99", metric("latency p99"), true))
	}
	return scaled(iops, lat)
}

// depthLine returns the line of a metric of a path over the depths.
func (w *Work) depthLine(path int, name string, m Metric, dashed bool) line {
	l := line{name: name, colour: path, dashed: dashed, marks: true}
	for i := range w.Depths {
		s := w.Depths[i].Spread(path, m)
		p := point{x: float64(w.Depths[i].Depth), y: s.Median, low: s.Min, high: s.Max}
		if dashed {
			p.low, p.high = p.y, p.y // two ranges of one colour would hide each other
		}
		l.points = append(l.points, p)
	}
	return l
}

// bounds returns the smallest and the largest value of lines and of the ranges around them.
func bounds(lines []line) (low, high float64) {
	low = math.Inf(1)
	for _, l := range lines {
		for _, p := range l.points {
			v := p.y
			if p.high > p.low {
				high = max(high, p.high)
				low = min(low, p.low)
			}
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 1) {
		return 0, 1
	}
	return low, high
}

// tails returns the plot of the latency distributions.
func (w *Work) tails() *chart {
	c := &chart{
		Title: "Latency percentiles at " + w.mainDepth(), Wide: true,
		Note: "How long the slowest operations take: each step to the right leaves a tenth of them above the line.",
	}
	last := 0.0
	for path, t := range w.Tails {
		l := line{name: w.Paths[path], colour: path}
		for _, p := range t {
			l.points = append(l.points, point{x: p.Percentile, y: p.Nanos})
			last = max(last, p.Percentile)
		}
		c.lines = append(c.lines, l)
	}
	c.x = percentiles("percentile of operations", last)
	low, high := bounds(c.lines)
	c.y = logTime("latency", low, high)
	return c
}

// scaled sets the y axes of the IOPS and latency plots to fit their lines.
func scaled(iops, lat *chart) []*chart {
	_, top := bounds(iops.lines)
	iops.y = linear("operations a second", top, short)
	iops.y.text = countText
	low, high := bounds(lat.lines)
	lat.y = logTime("latency", low, high)
	return []*chart{iops, lat}
}

// courses returns the plots over time.
func (w *Work) courses() []*chart {
	iops := &chart{Title: "IOPS over time", Note: fmt.Sprintf("One repeat of each, at %s.", w.mainDepth())}
	lat := &chart{Title: "Latency over time", Note: "Solid: p50 of each interval; dashed: its p99."}
	for path, name := range w.Paths {
		iops.lines = append(iops.lines, w.courseLine(path, name, func(s *loadgen.Sample) float64 { return s.IOPS() }))
		p99 := w.courseLine(path, name+" p99", func(s *loadgen.Sample) float64 { return float64(s.P99) })
		p99.dashed = true
		lat.lines = append(lat.lines, w.courseLine(path, name+" p50", func(s *loadgen.Sample) float64 { return float64(s.P50) }), p99)
	}
	end := 0.0
	for _, l := range iops.lines {
		for _, p := range l.points {
			end = max(end, p.x)
		}
	}
	// An interval in which nothing ended has a rate of 0, but no latency.
	for i := range lat.lines {
		l := &lat.lines[i]
		l.points = slices.DeleteFunc(l.points, func(p point) bool { return p.y == 0 })
	}
	iops.x = timeline("seconds of measuring", end)
	lat.x = iops.x
	return scaled(iops, lat)
}

func (w *Work) courseLine(path int, name string, of func(*loadgen.Sample) float64) line {
	l := line{name: name, colour: path}
	samples := w.Course[path]
	for i := range samples {
		s := &samples[i]
		began := samples[0].At - samples[0].Length
		l.points = append(l.points, point{x: (s.At - began - s.Length/2).Seconds(), y: of(s)})
	}
	return l
}

func (w *Work) mainDepth() string { return fmt.Sprintf("depth %d", w.Depths[w.Main].Depth) }
