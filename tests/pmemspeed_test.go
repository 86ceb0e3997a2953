package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// pmemVolumes are what TestPmemSpeed compares, the first being the baseline: a name, the specification up to a file's
// name, and what follows that.
var pmemVolumes = []struct{ name, kind, file, options string }{
	{"memory", "mem:256MiB", "", ""},
	{"pmem", "pmem:", "nvmeof-speed.img", ""},
	{"pmem in place", "pmem:", "nvmeof-speed-inplace.img", ",mode=inplace"},
}

// pmemLoad is a load to measure with: want is the share of memory's throughput that persistent memory must reach.
type pmemLoad struct {
	rw, bs string
	depth  int
	want   float64
	iops   [][]float64 // by volume, in the order of the rounds
}

func (l *pmemLoad) String() string { return fmt.Sprintf("%s/%s/%d", l.rw, l.bs, l.depth) }

// TestPmemSpeed compares persistent memory, written out of place and in place, with a memory volume over RDMA, in one
// run of alternating short measurements. The volumes' files are in NVMEOF_PMEM_DIR, which may be on a DAX file system,
// or in a temporary directory.
//
// It needs both processors for itself, so it runs only when asked for: make speed-pmem.
func TestPmemSpeed(t *testing.T) {
	alone(t)
	needSpeed(t, "NVMEOF_SPEED_PMEM", "speed-pmem")
	var loads []*pmemLoad
	for _, rw := range []string{"randread", "randwrite"} {
		for _, bs := range []string{"4k", "128k"} {
			for _, depth := range []int{1, 32} {
				l := &pmemLoad{rw: rw, bs: bs, depth: depth, iops: make([][]float64, len(pmemVolumes))}
				l.want = map[string]float64{"randread": 0.9, "randwrite": 0.8}[rw]
				loads = append(loads, l)
			}
		}
	}
	for round := range 7 {
		t.Run(fmt.Sprintf("round-%d", round+1), func(t *testing.T) { measurePmem(t, round, loads) })
	}
	for _, l := range loads {
		t.Run(l.String(), l.compare)
	}
}

// measurePmem measures all loads on a target and volumes of the round's own: which pages of the machine's memory they
// got changes everything that is measured on them by a tenth.
func measurePmem(t *testing.T, round int, loads []*pmemLoad) {
	dir := os.Getenv("NVMEOF_PMEM_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	args := []string{"--size", "256MiB"}
	for _, v := range pmemVolumes {
		spec := v.kind
		if v.file != "" {
			path := filepath.Join(dir, v.file)
			t.Cleanup(func() { os.Remove(path) })
			spec += path + v.options
		}
		args = append(args, "--volume", spec)
	}
	p := startTarget(t, args...)
	for i := range pmemVolumes { // so that every page exists before anything is measured
		p.must(t, 60*time.Second, "rdma", "bench", "--nsid", strconv.Itoa(i+1), "--rw", "write", "--bs", "128k", "--iodepth", "8", "--size", "256MiB")
	}
	for _, l := range loads {
		for k := range pmemVolumes {
			i := (k + round) % len(pmemVolumes)
			l.iops[i] = append(l.iops[i], p.measure(t, i+1, l.rw, l.bs, l.depth))
		}
	}
}

// compare reports each volume's throughput as a share of memory's. The median of the rounds' ratios tolerates a
// disturbance that hits fewer than half of them.
func (l *pmemLoad) compare(t *testing.T) {
	for i, v := range pmemVolumes {
		ratios := make([]float64, 0, len(l.iops[i]))
		for round, iops := range l.iops[i] {
			ratios = append(ratios, iops/l.iops[0][round])
		}
		slices.Sort(ratios)
		got, iops := ratios[len(ratios)/2], slices.Sorted(slices.Values(l.iops[i]))
		t.Logf("%-14s %9.0f IOPS, %.2f of memory (%.2f–%.2f)", v.name, iops[len(iops)/2], got, ratios[0], ratios[len(ratios)-1])
		if i == 1 && got < l.want {
			t.Errorf("%s does %.2f of what memory does, want %.2f", v.name, got, l.want)
		}
	}
}

// measure returns the IOPS of one short run. The end of each run flushes the volumes, after which the first store to
// each page of a file faults: writes are measured when most pages have been stored to.
func (p *targetProgram) measure(t *testing.T, nsid int, rw, bs string, depth int) float64 {
	t.Helper()
	ramp := "100ms"
	if rw == "randwrite" {
		ramp = "1500ms"
	}
	out := p.must(t, 20*time.Second, "rdma", "bench", "--nsid", strconv.Itoa(nsid), "--rw", rw, "--bs", bs,
		"--iodepth", strconv.Itoa(depth), "--ramp_time", ramp, "--runtime", "600ms", "-o", "json")
	return iops(t, out)
}
