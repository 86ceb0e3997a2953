package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// shownPercentiles are the percentiles of the table by default.
var shownPercentiles = []float64{50, 99, 99.9, 99.99}

// printResult shows the results of jobs for people.
func printResult(w io.Writer, results []fio.Reported) {
	for i := range results {
		printJob(w, &results[i])
	}
}

func printJob(w io.Writer, r *fio.Reported) {
	s := r.Spec
	fmt.Fprintf(w, "%s: rw=%s, bs=%s, iodepth=%d, numjobs=%d, ran %.2f s\n",
		jobTitle(r), s.Pattern(), blockSizes(s), s.IODepth, r.Job.NumJobs, r.Duration.Seconds())
	if r.Job.Description != "" {
		fmt.Fprintln(w, "description:", r.Job.Description)
	}
	percentiles := r.Job.Percentiles
	if percentiles == nil {
		percentiles = shownPercentiles
	}
	head := []any{"", "IOPS", "bandwidth", "total", "mean"}
	for _, p := range percentiles {
		head = append(head, "p"+strconv.FormatFloat(p, 'f', -1, 64))
	}
	t := cli.NewTable(w, append(head, "max")...)
	add := func(name any, m *loadgen.Measured, bandwidth, total string) {
		if m.IOs == 0 {
			return
		}
		row := []any{name, humanize.Comma(int64(r.IOPS(m))), bandwidth, total, micros(m.Latency.Mean())}
		for _, p := range percentiles {
			row = append(row, micros(float64(m.Latency.Percentile(p))))
		}
		t.AppendRow(append(row, micros(float64(m.Latency.Max()))))
	}
	moved := func(name any, m *loadgen.Measured) {
		add(name, m, humanize.IBytes(uint64(r.Bandwidth(m)))+"/s", humanize.IBytes(m.Bytes))
	}
	if r.Job.Unified != fio.Mixed {
		for op := range r.Ops {
			moved(loadgen.Op(op), &r.Ops[op])
		}
	}
	if r.Job.Unified != fio.Apart {
		moved("mixed", r.Total())
	}
	add(loadgen.Flush, &r.Syncs, "-", "-")
	t.Render()
	fmt.Fprintf(w, "CPU time of nvmeinit: %s per operation, %.0f%% of one processor\n", micros(float64(r.CPUPerIO())),
		100*r.CPU().Seconds()/max(r.Duration.Seconds(), 1e-9))
	if s.LatencyTarget > 0 {
		fmt.Fprintln(w, soughtText(r))
	}
	if s.Verify {
		fmt.Fprintf(w, "verified: %s are as they were written\n", blockdev.FormatSize(r.Verified))
	}
	printUnstarted(w, r)
	if r.Errors > 0 {
		fmt.Fprintf(w, "errors: %d\n", r.Errors)
	}
}

// printUnstarted says if operations were due by a rate and never began.
func printUnstarted(w io.Writer, r *fio.Reported) {
	if r.Unstarted > 0 {
		fmt.Fprintln(w, "behind the rate:", unstartedText(r.Unstarted))
	}
}

// unstartedText says how many operations were due by a rate and had not begun at the end. How long they would have
// taken is unknown, so the latencies that are shown are too low.
func unstartedText(n uint64) string {
	return humanize.Comma(int64(n)) + " operations were due and had not begun at the end; latencies are of those that had"
}

// soughtText says which depth meets the latency target of a job.
func soughtText(r *fio.Reported) string {
	s := r.Spec
	text := fmt.Sprintf("latency_target %v, for %v%% within %v: ", s.LatencyTarget, cmp.Or(s.LatencyPercentile, 100), s.LatencyWindow)
	switch {
	case r.Sought && r.SoughtDepth == 0:
		return text + "kept to at no depth; figures are of depth 1"
	case r.Sought && r.Clones > 1:
		return text + fmt.Sprintf("kept to at depth %d by each job; figures are of the depth that each found", r.SoughtDepth)
	case r.Sought:
		return text + fmt.Sprintf("kept to up to depth %d; figures are of that", r.SoughtDepth)
	case r.SoughtDepth == 0:
		return text + "kept to at no depth before the job ended; figures are of all that were tried"
	}
	return text + fmt.Sprintf("kept to at depth %d, but the job ended before greater ones were tried; figures are of all that were", r.SoughtDepth)
}

// jobTitle returns the name of a job, and which clone it is if clones are shown separately.
func jobTitle(r *fio.Reported) string {
	if r.Job.NumJobs > r.Clones {
		return fmt.Sprintf("%s (job %d of %d)", r.Spec.Name, r.Clone+1, r.Job.NumJobs)
	}
	return r.Spec.Name
}

// blockSizes returns the block sizes of a spec, such as 4.0 KiB.
func blockSizes(s *loadgen.Spec) string {
	var text string
	for op := range s.BS {
		if !s.Draws(loadgen.Op(op)) {
			continue
		}
		if one := splitText(s.BS[op]); text == "" {
			text = one
		} else if one != text {
			text += " and " + one
		}
	}
	return text
}

func splitText(b loadgen.Split) string {
	if len(b) == 1 {
		text := humanize.IBytes(uint64(b[0].Bytes))
		if b[0].UpTo > 0 {
			text += " to " + humanize.IBytes(uint64(b[0].UpTo))
		}
		return text
	}
	text := ""
	for i, sh := range b {
		if i > 0 {
			text += ":"
		}
		text += fmt.Sprintf("%s/%d%%", humanize.IBytes(uint64(sh.Bytes)), sh.Percent)
	}
	return text
}

// micros formats a number of nanoseconds in microseconds.
func micros(ns float64) string { return fmt.Sprintf("%.1f µs", ns/1e3) }
