package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/report"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// live is the status line of a run on a terminal. A nil live shows nothing.
type live struct {
	w     io.Writer
	name  string
	shown time.Time
	paths *multipath.Subsystem // nil if there is one connection
}

// liveInterval is how often the line is updated.
const liveInterval = 450 * time.Millisecond

func newLive(w io.Writer, wanted bool) *live {
	if !wanted || !rewrites(w) {
		return nil
	}
	return &live{w: cli.Transient(w)}
}

// begin sets the name of what follows.
func (l *live) begin(name string) {
	if l != nil {
		l.name = name
	}
}

func (l *live) clear() {
	if l != nil {
		fmt.Fprint(l.w, "\r\033[K")
	}
}

// show writes the line: the figures of the last interval, and the time left.
func (l *live) show(p *loadgen.Progress) {
	if l == nil || time.Since(l.shown) < liveInterval {
		return
	}
	l.shown = time.Now()
	text := liveText(p)
	if l.paths != nil {
		text += "  " + pathsText(l.paths.Paths(), l.paths.Waiting())
	}
	fmt.Fprint(l.w, "\r\033[K", fitted(l.name+": "+text, columns(l.w)))
}

func liveText(p *loadgen.Progress) string {
	if p.Verifying {
		return "verifying what was written"
	}
	var parts []string
	if p.Ramping {
		parts = append(parts, "ramping")
	} else if p.Left >= 0 && p.Elapsed > 0 {
		parts = append(parts, fmt.Sprintf("%2.0f%%", 100*p.Elapsed.Seconds()/(p.Elapsed+p.Left).Seconds()))
	}
	s := &p.Last
	parts = append(parts, strings.TrimSpace(humanize.SIWithDigits(s.IOPS(), 1, ""))+" IOPS", humanize.IBytes(uint64(s.Bandwidth()))+"/s")
	if s.P99 > 0 {
		parts = append(parts, "p50 "+report.TimeText(float64(s.P50)), "p99 "+report.TimeText(float64(s.P99)))
	}
	if !p.Ramping && p.Left >= 0 {
		parts = append(parts, "ETA "+p.Left.Round(time.Second).String())
	}
	return strings.Join(parts, "  ")
}
