package main

import (
	"testing"

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
