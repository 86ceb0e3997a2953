package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/report"
)

// TestSamePathTwice: a path that is compared with itself has separate figures each time that it is listed.
func TestSamePathTwice(t *testing.T) {
	f := &benchFlags{campaign: campaignFlags{compare: []string{"rdma", "tcp", "rdma", "rdma"}}}
	names, _, err := f.ofEach()
	if err != nil {
		t.Fatal(err)
	}
	w := &report.Work{Paths: names}
	d := report.Depth{Depth: 1}
	for i := range names {
		d.Runs = append(d.Runs, []report.Figures{{IOPS: float64(i + 1)}})
	}
	w.Depths = append(w.Depths, d)
	iops := comparison([]*report.Work{w})[0]
	for name, want := range map[string]float64{"rdma": 1, "tcp": 2, "rdma (2)": 3, "rdma (3)": 4} {
		if got := iops.Median[name]; got != want {
			t.Errorf("%s has %v, want %v: %v", name, got, want, iops.Median)
		}
	}
}

// TestCampaignCutShort: runs of a repeat that was interrupted are in the JSON, though they can't be compared.
func TestCampaignCutShort(t *testing.T) {
	for output, want := range map[cli.Format]bool{cli.Normal: false, cli.JSON: true} {
		k := &campaign{f: &benchFlags{output: formats{output}}, done: 1, json: &fio.Report{Jobs: []fio.JobReport{{Name: "first"}}}}
		var b strings.Builder
		if err := k.print(&b, nil); err != nil {
			t.Error(err)
		}
		if said := b.String(); strings.Contains(said, `"first"`) != want || strings.Contains(said, `"nvmeinit_compare": []`) != want {
			t.Errorf("%v: it prints %q", output, said)
		}
	}
}

// TestCampaignTold: how many runs there are and how long they take is told before the first, and a section of a job
// file keeps its name.
func TestCampaignTold(t *testing.T) {
	file, err := fio.Parse("x.fio", strings.NewReader("[global]\nruntime=2\n[a]\nramp_time=1\n[b]\n[scan]\nstonewall\niodepth=4\nrw=read\nbs=128k\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := &campaign{f: &benchFlags{jobs: file.Jobs, campaign: campaignFlags{repeats: 5, report: "out.html"}}, paths: make([]*benchDevice, 2)}
	var said strings.Builder
	if k.count(&said); k.all != 80 || said.String() != "80 runs, about 3m20s\n" { // 4 depths of 3 s, then 4 of 2 s
		t.Errorf("%d runs, said as %q", k.all, said.String())
	}
	synctest.Test(t, func(t *testing.T) {
		k.done, k.began = 20, time.Now().Add(-10*time.Second)
		if got := k.left(); got != ", 30s left" {
			t.Errorf("after a quarter of the runs, in 10 s, it says %q", got)
		}
	})
	if got, want := workName(file.Jobs[2:]), "scan: read 128 KiB"; got != want {
		t.Errorf("a section is called %q, want %q", got, want)
	}
	for _, pattern := range []string{"randread:8", "read:28k", "rw:-2m", "trim:512", "randwrite"} {
		j := fio.NewJob(defaultName)
		if err := j.Set("rw", pattern); err != nil {
			t.Fatal(err)
		}
		if got, want := workName([]*fio.Job{j}), pattern+" 4.0 KiB"; got != want {
			t.Errorf("a job of the command line is called %q, want %q", got, want)
		}
	}
	if got, want := workName([]*fio.Job{fio.NewJob(defaultName)}), "read 4.0 KiB"; got != want {
		t.Errorf("the job of the command line is called %q, want %q", got, want)
	}
}
