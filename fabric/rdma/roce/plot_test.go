package roce

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Geometry of a plot: two panels, the rate of each flow above the queue.
const (
	plotWidth, plotHeight = 760, 460
	plotLeft, plotRight   = 64, 16
	panelHeight           = 170
	ratesTop, queueTop    = 48, 260
	rateWindow            = 10 // samples that a rate is the mean of
)

var flowColours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"}

// plot draws the run as SVG.
func (r *congestionRun) plot(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	what := "the port marks from 100 KiB on"
	if !r.mark {
		what = fmt.Sprintf("the port doesn't mark; %d packets dropped", r.stats.QueueFull)
	}
	kind := "WRITEs into"
	if r.op == verbs.WRRDMARead {
		kind = "READs through"
	}
	fmt.Fprintf(&b, `<text x="16" y="20" font-size="13">%d flows of %s one port of 10.5 Gb/s, round trip 100 µs: %s</text>`+"\n", r.flows, kind, what)
	rates := panel{&b, ratesTop, 1400, "MB/s", len(r.moved)}
	rates.frame(0, 350, 700, 1050, 1400)
	for i := range r.flows {
		rates.line(flowColours[i%len(flowColours)], func(k int) (float64, bool) {
			if k < rateWindow {
				return 0, false
			}
			n := r.moved[k][i] - r.moved[k-rateWindow][i]
			return float64(n) / (rateWindow * sampleEvery).Seconds() / 1e6, true
		})
	}
	queue := panel{&b, queueTop, 512, "KiB queued", len(r.queued)}
	queue.frame(0, 128, 256, 384, 512)
	queue.line("#444444", func(k int) (float64, bool) { return float64(r.queued[k]) / 1024, true })
	step := 10 // ms
	if r.until > 100*time.Millisecond {
		step = 25
	}
	for ms := 0; ms <= int(r.until/time.Millisecond); ms += step {
		anchor := "middle"
		if ms == int(r.until/time.Millisecond) {
			anchor = "end"
		}
		x := queue.x(ms * int(time.Millisecond/sampleEvery))
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="%s">%d ms</text>`+"\n", x, queueTop+panelHeight+18, anchor, ms)
	}
	fmt.Fprintln(&b, `</svg>`)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// panel is a diagram over time.
type panel struct {
	b       *strings.Builder
	top     int
	most    float64
	unit    string
	samples int
}

func (p panel) x(sample int) float64 {
	return plotLeft + float64(sample)*(plotWidth-plotLeft-plotRight)/float64(p.samples)
}

func (p panel) y(v float64) float64 {
	return float64(p.top) + panelHeight*(1-min(v, p.most)/p.most)
}

func (p panel) frame(ticks ...float64) {
	for _, v := range ticks {
		fmt.Fprintf(p.b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>`, plotLeft, plotWidth-plotRight, p.y(v), p.y(v))
		fmt.Fprintf(p.b, `<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", plotLeft-6, p.y(v)+4, v)
	}
	fmt.Fprintf(p.b, `<text x="%d" y="%d">%s</text>`+"\n", plotLeft+4, p.top-6, p.unit)
}

func (p panel) line(colour string, value func(sample int) (float64, bool)) {
	fmt.Fprintf(p.b, `<polyline fill="none" stroke="%s" points="`, colour)
	for k := range p.samples {
		if v, ok := value(k); ok {
			fmt.Fprintf(p.b, "%.1f,%.1f ", p.x(k), p.y(v))
		}
	}
	fmt.Fprintln(p.b, `"/>`)
}
