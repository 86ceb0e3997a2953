package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/version"
)

// percentiles are those that fio reports unless told otherwise.
var percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// printResult shows the result for people.
func printResult(w io.Writer, r *loadgen.Result) {
	s := r.Spec
	fmt.Fprintf(w, "%s: rw=%s, bs=%s, iodepth=%d, numjobs=%d, ran %.2f s\n",
		s.Name, s.RW, humanize.IBytes(uint64(s.BS)), s.IODepth, s.NumJobs, r.Duration.Seconds())
	t := newTable(w, "", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "p99.99", "max")
	for op := range r.Ops {
		m := r.Ops[op]
		if m.IOs == 0 {
			continue
		}
		t.AppendRow([]any{
			loadgen.Op(op), humanize.Comma(int64(r.IOPS(m))), humanize.IBytes(uint64(r.Bandwidth(m))) + "/s",
			micros(time.Duration(m.Latency.Mean())), micros(m.Percentile(50)), micros(m.Percentile(99)),
			micros(m.Percentile(99.9)), micros(m.Percentile(99.99)), micros(time.Duration(m.Latency.Max())),
		})
	}
	t.Render()
	fmt.Fprintf(w, "processor of this side: %s an operation, %.0f%% of one\n", micros(r.CPUPerIO()),
		100*r.CPU().Seconds()/max(r.Duration.Seconds(), 1e-9))
	if r.Errors > 0 {
		fmt.Fprintf(w, "errors: %d\n", r.Errors)
	}
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }

// The JSON of fio --output-format=json, as far as it is measured here.
type (
	fioReport struct {
		Version string   `json:"fio version"`
		Time    int64    `json:"timestamp"`
		Options any      `json:"global options"`
		Jobs    []fioJob `json:"jobs"`
	}
	fioJob struct {
		Name       string            `json:"jobname"`
		GroupID    int               `json:"groupid"`
		Error      int               `json:"error"`
		Elapsed    int64             `json:"elapsed"` // s
		Options    map[string]string `json:"job options"`
		Read       fioSide           `json:"read"`
		Write      fioSide           `json:"write"`
		JobRuntime int64             `json:"job_runtime"` // ms
		User       float64           `json:"usr_cpu"`     // percent
		System     float64           `json:"sys_cpu"`
	}
	fioSide struct {
		IOBytes  uint64     `json:"io_bytes"`
		IOKBytes uint64     `json:"io_kbytes"`
		BWBytes  uint64     `json:"bw_bytes"`
		BW       uint64     `json:"bw"` // KiB/s
		IOPS     float64    `json:"iops"`
		Runtime  int64      `json:"runtime"` // ms
		TotalIOs uint64     `json:"total_ios"`
		Latency  fioLatency `json:"lat_ns"`
		CLatency fioLatency `json:"clat_ns"`
	}
	fioLatency struct {
		Min         int64            `json:"min"`
		Max         int64            `json:"max"`
		Mean        float64          `json:"mean"`
		StdDev      float64          `json:"stddev"`
		N           int64            `json:"N"`
		Percentiles map[string]int64 `json:"percentile,omitempty"`
	}
)

// fioJSON is the result with fio's names. Jobs are reported as a group, as with
// --group_reporting.
func fioJSON(r *loadgen.Result) fioReport {
	s := r.Spec
	ms := r.Duration.Milliseconds()
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / max(r.Duration.Seconds(), 1e-9) }
	job := fioJob{
		Name: s.Name, Elapsed: int64(r.Duration.Seconds() + 1), JobRuntime: ms,
		Read: fioDirection(r, r.Ops[loadgen.Read]), Write: fioDirection(r, r.Ops[loadgen.Write]),
		User: percent(r.User), System: percent(r.System),
		Options: map[string]string{
			"rw": s.RW, "bs": fmt.Sprint(s.BS), "iodepth": fmt.Sprint(s.IODepth), "numjobs": fmt.Sprint(s.NumJobs),
		},
	}
	if r.Errors > 0 {
		job.Error = 5 // EIO, as fio reports a failed operation
	}
	return fioReport{Version: "nvmeinit " + version.Version, Time: time.Now().Unix(), Options: struct{}{}, Jobs: []fioJob{job}}
}

func fioDirection(r *loadgen.Result, m loadgen.Measured) fioSide {
	lat := fioLatency{}
	if m.IOs > 0 {
		h := m.Latency
		lat = fioLatency{Min: h.Min(), Max: h.Max(), Mean: h.Mean(), StdDev: h.StdDev(), N: int64(m.IOs)}
	}
	clat := lat
	clat.Percentiles = map[string]int64{}
	for _, p := range percentiles {
		clat.Percentiles[fmt.Sprintf("%.6f", p)] = int64(m.Percentile(p))
	}
	return fioSide{
		IOBytes: m.Bytes, IOKBytes: m.Bytes >> 10, BWBytes: uint64(r.Bandwidth(m)), BW: uint64(r.Bandwidth(m)) >> 10,
		IOPS: r.IOPS(m), Runtime: r.Duration.Milliseconds(), TotalIOs: m.IOs, Latency: lat, CLatency: clat,
	}
}
