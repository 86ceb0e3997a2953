package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// pmemVolumes are what TestPmemSpeed compares, the first being what the others are held
// against: a name, the specification in a directory, and the namespace.
var pmemVolumes = []struct {
	name string
	spec func(dir string) string
}{
	{"memory", func(string) string { return "mem:256MiB" }},
	{"pmem", func(d string) string { return "pmem:" + filepath.Join(d, "pmem.img") }},
	{"pmem in place", func(d string) string { return "pmem:" + filepath.Join(d, "inplace.img") + ",mode=inplace" }},
}

// TestPmemSpeed compares persistent memory, written out of place and in place, with a memory
// volume over RDMA, in one run of short measurements that take turns. The volumes' files are
// in NVMEOF_PMEM_DIR, which may be on a DAX file system, or in a temporary directory.
//
// It wants both processors for itself, so it runs only when asked for: make speed-pmem.
func TestPmemSpeed(t *testing.T) {
	needSpeed(t, "NVMEOF_SPEED_PMEM", "speed-pmem")
	dir := os.Getenv("NVMEOF_PMEM_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	args := []string{"--size", "256MiB"}
	for _, v := range pmemVolumes {
		args = append(args, "--volume", v.spec(dir))
	}
	p := startTarget(t, args...)
	for i := range pmemVolumes { // every page is there before anything is measured
		p.must(t, 60*time.Second, "rdma", "bench", "--nsid", strconv.Itoa(i+1), "--rw", "write", "--bs", "128k", "--iodepth", "8", "--size", "256MiB")
	}
	for _, x := range []struct {
		rw   string
		want float64
	}{{"randread", 0.9}, {"randwrite", 0.8}} {
		for _, bs := range []string{"4k", "128k"} {
			for _, depth := range []int{1, 32} {
				t.Run(fmt.Sprintf("%s/%s/%d", x.rw, bs, depth), func(t *testing.T) {
					comparePmem(t, p, x.rw, bs, depth, x.want)
				})
			}
		}
	}
}

// comparePmem measures all volumes in turns. The median of the rounds' ratios forgives a
// disturbance that hits fewer than half of them.
func comparePmem(t *testing.T, p *targetProgram, rw, bs string, depth int, want float64) {
	const rounds = 7
	iops := make([][]float64, len(pmemVolumes))
	ratios := make([][]float64, len(pmemVolumes))
	for round := range rounds {
		for k := range pmemVolumes {
			i := (k + round) % len(pmemVolumes)
			iops[i] = append(iops[i], p.measure(t, i+1, rw, bs, depth))
		}
		for i := range pmemVolumes {
			ratios[i] = append(ratios[i], iops[i][round]/iops[0][round])
		}
	}
	for i, v := range pmemVolumes {
		slices.Sort(iops[i])
		slices.Sort(ratios[i])
		t.Logf("%-14s %9.0f IOPS, %.2f of memory", v.name, iops[i][rounds/2], ratios[i][rounds/2])
	}
	if got := ratios[1][rounds/2]; got < want {
		t.Errorf("%s does %.2f of what memory does, want %.2f (ratios %.2f)", pmemVolumes[1].name, got, want, ratios[1])
	}
}

// measure gives the IOPS of one short run. The end of each flushes the volumes, and after that the
// first store to each page of a file faults: writes are measured when most have.
func (p *targetProgram) measure(t *testing.T, nsid int, rw, bs string, depth int) float64 {
	t.Helper()
	ramp := "100ms"
	if rw == "randwrite" {
		ramp = "1500ms"
	}
	out := p.must(t, 20*time.Second, "rdma", "bench", "--nsid", strconv.Itoa(nsid), "--rw", rw, "--bs", bs,
		"--iodepth", strconv.Itoa(depth), "--ramp_time", ramp, "--runtime", "600ms", "-o", "json")
	var report struct {
		Jobs []struct {
			Read, Write struct{ IOPS float64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if len(report.Jobs) != 1 || report.Jobs[0].Read.IOPS+report.Jobs[0].Write.IOPS == 0 {
		t.Fatalf("nothing was measured: %s", out)
	}
	return report.Jobs[0].Read.IOPS + report.Jobs[0].Write.IOPS
}
