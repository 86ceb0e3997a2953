package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
)

// load is one measurement.
type load struct {
	rw, bs string
	depth  int
}

var loads = []load{
	{"randread", "4k", 1},
	{"randread", "4k", 32},
	{"randwrite", "4k", 32},
	{"read", "128k", 16},
	{"write", "128k", 16},
}

// figures are the results of one measurement.
type figures struct {
	iops, bandwidth float64
	p50, p99, p999  time.Duration
	cpu             time.Duration // of both programs, per operation
}

// measureAll runs every load on every volume, with the transports one after the other each time.
func (d *demo) measureAll(ctx context.Context) error {
	step("Measuring: each line %v over RDMA, then as long over TCP", d.runtime)
	d.results = map[string]map[string]figures{}
	for i, volume := range volumes {
		for _, l := range loads {
			name := l.name(volume)
			d.results[name] = map[string]figures{}
			for _, transport := range transports {
				f, err := d.measure(ctx, transport, i+1, l)
				if err != nil {
					return fmt.Errorf("%s over %s: %w", name, transport, err)
				}
				d.results[name][transport] = f
			}
		}
	}
	return nil
}

func (l load) name(volume string) string {
	return fmt.Sprintf("%s %s %s ×%d", volume, l.rw, l.bs, l.depth)
}

func (d *demo) measure(ctx context.Context, transport string, nsid int, l load) (figures, error) {
	before := d.target.CPU()
	out, err := d.nvmeinit(ctx, transport, "bench", "--nsid", strconv.Itoa(nsid),
		"--rw", l.rw, "--bs", l.bs, "--iodepth", strconv.Itoa(l.depth),
		"--runtime", d.runtime.String(), "--time_based", "-o", "json")
	if err != nil {
		return figures{}, err
	}
	used := d.target.CPU() - before
	job, err := parseBench(out)
	if err != nil {
		return figures{}, err
	}
	side := job.Read
	if job.Write.IOs > 0 {
		side = job.Write
	}
	if side.IOs == 0 {
		return figures{}, fmt.Errorf("no operation was completed")
	}
	used += time.Duration((job.User + job.Sys) / 100 * side.Runtime * float64(time.Millisecond))
	at := func(p string) time.Duration { return time.Duration(side.Latency.Percentile[p]) }
	return figures{
		iops: side.IOPS, bandwidth: side.Bandwidth,
		p50: at("50.000000"), p99: at("99.000000"), p999: at("99.900000"),
		cpu: used / time.Duration(side.IOs),
	}, nil
}

// table prints the figures, RDMA next to TCP.
func (d *demo) table(w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("RDMA (software RNIC) beside NVMe/TCP, on this machine's loopback; processor time of both programs")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, AutoMerge: true}})
	t.AppendHeader(table.Row{"volume and load", "", "IOPS", "bandwidth", "p50", "p99", "p99.9", "processor/IO"})
	for _, volume := range volumes {
		for _, l := range loads {
			name := l.name(volume)
			for _, transport := range transports {
				t.AppendRow(row(name, transport, d.results[name][transport]))
			}
			t.AppendSeparator()
		}
	}
	fmt.Fprintln(w)
	t.Render()
}

func row(name, transport string, f figures) table.Row {
	return table.Row{
		name, transport, humanize.Comma(int64(f.iops)), humanize.IBytes(uint64(f.bandwidth)) + "/s",
		micro(f.p50), micro(f.p99), micro(f.p999), micro(f.cpu),
	}
}

func micro(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}
