package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/report"
)

// comparedWorks returns two loads with known figures over two paths: the first path has more IOPS in each repeat.
func comparedWorks() []*report.Work {
	run := func(iops, micros float64) report.Figures {
		return report.Figures{
			IOPS: iops, Bandwidth: iops * 4096, Mean: micros * 1e3, P50: micros * 900, P99: micros * 3e3, P999: micros * 5e3, CPU: 2500,
		}
	}
	paths := []string{"rdma", "tcp"}
	return []*report.Work{{
		Name: "randread", Paths: paths, Late: []uint64{0, 12345},
		Depths: []report.Depth{
			{Depth: 1, Runs: [][]report.Figures{{run(200, 10), run(200, 10), run(200, 10)}, {run(100, 20), run(100, 20), run(100, 20)}}},
			{Depth: 16, Runs: [][]report.Figures{{run(3000, 10), run(2000, 10), run(2500, 10)}, {run(1000, 20), run(1000, 10), run(1000, 20)}}},
		},
	}, {
		Name: "write", Paths: paths, Late: make([]uint64, 2),
		Depths: []report.Depth{{Depth: 4, Runs: [][]report.Figures{{run(50, 80), run(50, 80), run(50, 80)}, {run(100, 40), run(100, 40), run(100, 40)}}}},
	}}
}

// TestPrintComparison: each figure of each load and depth has a row with the medians and the ratio.
func TestPrintComparison(t *testing.T) {
	var b strings.Builder
	printComparison(&b, comparedWorks())
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.Join(strings.Fields(line), " "); strings.Trim(line, "─-+ ") != "" {
			lines = append(lines, line)
		}
	}
	want := []string{
		"load depth figure rdma tcp rdma / tcp range",
		"randread 1 IOPS 200 100 2.00× 2.00–2.00",
		"bandwidth 800 KiB/s 400 KiB/s 2.00× 2.00–2.00",
		"latency mean 10 µs 20 µs 0.50× 0.50–0.50",
		"latency p50 9 µs 18 µs 0.50× 0.50–0.50",
		"latency p99 30 µs 60 µs 0.50× 0.50–0.50",
		"latency p99.9 50 µs 100 µs 0.50× 0.50–0.50",
		"processor an I/O 2.5 µs 2.5 µs 1.00× 1.00–1.00",
		"randread 16 IOPS 2,500 1,000 2.50× 2.00–3.00",
		"bandwidth 9.8 MiB/s 3.9 MiB/s 2.50× 2.00–3.00",
		"latency mean 10 µs 20 µs 0.50× 0.50–1.00",
		"latency p50 9 µs 18 µs 0.50× 0.50–1.00",
		"latency p99 30 µs 60 µs 0.50× 0.50–1.00",
		"latency p99.9 50 µs 100 µs 0.50× 0.50–1.00",
		"processor an I/O 2.5 µs 2.5 µs 1.00× 1.00–1.00",
		"write 4 IOPS 50 100 0.50× 0.50–0.50",
		"bandwidth 200 KiB/s 400 KiB/s 0.50× 0.50–0.50",
		"latency mean 80 µs 40 µs 2.00× 2.00–2.00",
		"latency p50 72 µs 36 µs 2.00× 2.00–2.00",
		"latency p99 240 µs 120 µs 2.00× 2.00–2.00",
		"latency p99.9 400 µs 200 µs 2.00× 2.00–2.00",
		"processor an I/O 2.5 µs 2.5 µs 1.00× 1.00–1.00",
		"medians of 3 repeats, run in turns; each repeat gives a ratio, of which the median and the range are shown",
		"behind the rate: randread, tcp: 12,345 operations were due and had not begun at the end; latencies are of those that had",
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("it prints\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	one := comparedWorks()[1:]
	one[0].Paths, one[0].Depths[0].Runs = one[0].Paths[:1], [][]report.Figures{one[0].Depths[0].Runs[0][:1]}
	b.Reset()
	printComparison(&b, one)
	if s := b.String(); strings.Contains(s, "medians") || strings.Contains(s, "range") || strings.Contains(s, "behind") {
		t.Errorf("of one run it prints\n%s", s)
	}
}

// TestComparison: programs get what people see, each ratio with the paths that it is of.
func TestComparison(t *testing.T) {
	all := comparison(comparedWorks())
	if len(all) != 3*len(report.Metrics) {
		t.Fatalf("%d figures are compared", len(all))
	}
	for i, want := range map[int]compared{
		7: {
			Load: "randread", Depth: 16, Figure: "IOPS", Unit: "1/s", Median: map[string]float64{"rdma": 2500, "tcp": 1000},
			Ratios: []comparedRatio{{Of: "rdma", To: "tcp", Median: 2.5, Min: 2, Max: 3}},
		},
		17: {
			Load: "write", Depth: 4, Figure: "latency p50", Unit: "ns", Median: map[string]float64{"rdma": 72_000, "tcp": 36_000},
			Ratios: []comparedRatio{{Of: "rdma", To: "tcp", Median: 2, Min: 2, Max: 2}},
		},
	} {
		if !reflect.DeepEqual(all[i], want) {
			t.Errorf("figure %d is %+v, want %+v", i, all[i], want)
		}
	}
}
