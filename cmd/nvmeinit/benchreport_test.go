package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// TestJobTable: the table of a job has a line for each direction in which it had operations, with the total that it
// moved, as in fio, and one for its flushes.
func TestJobTable(t *testing.T) {
	job := fio.NewJob("test")
	if err := job.Set("rw", "write:8k"); err != nil {
		t.Fatal(err)
	}
	r := fio.Reported{Job: job, Clones: 1, JobResult: loadgen.JobResult{Spec: &job.Spec, Duration: 2 * time.Second}}
	for range 512 {
		r.Ops[loadgen.Write].Latency.Record(50_000)
		r.Syncs.Latency.Record(70_000)
	}
	r.Ops[loadgen.Write].IOs, r.Ops[loadgen.Write].Bytes, r.Syncs.IOs = 512, 64<<20, 512
	var b strings.Builder
	printJob(&b, &r)
	for _, line := range []string{
		`^test: rw=write:8k, bs=4.0 KiB, iodepth=1,`,
		`IOPS +bandwidth +total +mean +p50`,
		`write +256 +32 MiB/s +64 MiB +50\.0 µs`,
		`sync +256 +- +- +70\.0 µs`,
	} {
		if !regexp.MustCompile(line).MatchString(b.String()) {
			t.Errorf("no %s in\n%s", line, b.String())
		}
	}
	if strings.Contains(b.String(), "read") {
		t.Errorf("it read nothing:\n%s", b.String())
	}
	if strings.Contains(b.String(), "mixed") {
		t.Errorf("nobody asked for all together:\n%s", b.String())
	}
	for value, apart := range map[string]bool{"mixed": false, "both": true} {
		if err := job.Set("unified_rw_reporting", value); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		printJob(&b, &r)
		if !regexp.MustCompile(`mixed +256 +32 MiB/s +64 MiB +50\.0 µs`).MatchString(b.String()) || regexp.MustCompile(`write +256`).MatchString(b.String()) != apart {
			t.Errorf("unified_rw_reporting=%s:\n%s", value, b.String())
		}
	}
}

// TestSoughtText: the result of a latency_target is shown to people.
func TestSoughtText(t *testing.T) {
	job := fio.NewJob("test")
	for name, value := range map[string]string{"latency_target": "200", "latency_window": "1s", "latency_percentile": "99.9"} {
		if err := job.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for want, r := range map[string]fio.Reported{
		"kept to up to depth 12; figures are of that":                 {Clones: 1, JobResult: loadgen.JobResult{SoughtDepth: 12, Sought: true}},
		"kept to at no depth; figures are of depth 1":                 {Clones: 1, JobResult: loadgen.JobResult{Sought: true}},
		"kept to at no depth before the job ended; figures are of a":  {Clones: 1},
		"kept to at depth 4, but the job ended before greater ones":   {Clones: 1, JobResult: loadgen.JobResult{SoughtDepth: 4}},
		"kept to at depth 3 by each job; figures are of the depth th": {Clones: 2, JobResult: loadgen.JobResult{SoughtDepth: 3, Sought: true}},
	} {
		r.Job, r.Spec = job, &job.Spec
		var b strings.Builder
		printJob(&b, &r)
		if want = "latency_target 200µs, for 99.9% within 1s: " + want; !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

// TestTablePercentiles: the table has the percentiles that the job asks for, also where it does so in a section
// [global].
func TestTablePercentiles(t *testing.T) {
	for text, want := range map[string]string{
		"[a]\nrw=read\n":                                "p50 +p99 +p99.9 +p99.99 +max",
		"[a]\nrw=read\npercentile_list=10:95\n":         "mean +p10 +p95 +max",
		"[global]\npercentile_list=10:95\n[a]\nrw=read": "mean +p10 +p95 +max",
	} {
		file, err := fio.Parse("test.fio", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		job := file.Jobs[0]
		r := fio.Reported{Job: job, Clones: 1, JobResult: loadgen.JobResult{Spec: &job.Spec}}
		r.Ops[loadgen.Read].IOs = 1
		var b strings.Builder
		printJob(&b, &r)
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("%q: no %s in\n%s", text, want, b.String())
		}
	}
}
