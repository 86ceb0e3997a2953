package report

import (
	"bytes"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// knownWork has three repeats over two paths, of which the first has more IOPS, and the same latencies in one of them.
func knownWork() *Work {
	run := func(iops, micros float64) Figures {
		return Figures{
			IOPS: iops, Bandwidth: iops * 4096, Mean: micros * 1e3, P50: micros * 900, P99: micros * 3e3, P999: micros * 5e3, CPU: 2500,
		}
	}
	return &Work{
		Name: "randread 4.0 KiB", Paths: []string{"rdma", "tcp"}, Main: 1,
		Depths: []Depth{
			{Depth: 1, Runs: [][]Figures{{run(100, 20), run(100, 20), run(100, 20)}, {run(100, 20), run(100, 20), run(100, 20)}}},
			{Depth: 16, Runs: [][]Figures{{run(3000, 10), run(2000, 10), run(2500, 10)}, {run(1000, 20), run(1000, 10), run(1000, 20)}}},
		},
		Tails: make([]Tail, 2), Course: make([]Course, 2),
	}
}

// textOf returns what elements of a page say, as a text for each.
func textOf(page, element string) (texts []string) {
	tags := regexp.MustCompile(`(<[^>]*>)+`)
	for _, m := range regexp.MustCompile(`(?s)<`+element+`[ >].*?</`+element+`>`).FindAllString(page, -1) {
		texts = append(texts, strings.Trim(html.UnescapeString(tags.ReplaceAllString(m, "|")), "|"))
	}
	return texts
}

func pageOf(t *testing.T, w *Work) string {
	t.Helper()
	var b bytes.Buffer
	if err := samplePage(w).Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageTable: the table has the median of each figure for each path and depth, and the ratios of the paths with
// their ranges.
func TestPageTable(t *testing.T) {
	rows := textOf(pageOf(t, knownWork()), "tr")
	want := []string{
		"depth|figure|rdma|tcp|rdma / tcp|range",
		"1|IOPS|100|100|1.00×",
		"bandwidth|400 KiB/s|400 KiB/s|1.00×",
		"latency mean|20 µs|20 µs|1.00×",
		"latency p50|18 µs|18 µs|1.00×",
		"latency p99|60 µs|60 µs|1.00×",
		"latency p99.9|100 µs|100 µs|1.00×",
		"processor an I/O|2.5 µs|2.5 µs|1.00×",
		"16|IOPS|2,500|1,000|2.50×|2.00× – 3.00×",
		"bandwidth|9.8 MiB/s|3.9 MiB/s|2.50×|2.00× – 3.00×",
		"latency mean|10 µs|20 µs|0.50×|0.50× – 1.00×",
		"latency p50|9 µs|18 µs|0.50×|0.50× – 1.00×",
		"latency p99|30 µs|60 µs|0.50×|0.50× – 1.00×",
		"latency p99.9|50 µs|100 µs|0.50×|0.50× – 1.00×",
		"processor an I/O|2.5 µs|2.5 µs|1.00×",
	}
	at := slices.Index(rows, want[0])
	if at < 0 || !slices.Equal(rows[at:], want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// TestPageCards: the main figures are those of the main depth: as ratios if paths are compared, or else with the range
// of the repeats.
func TestPageCards(t *testing.T) {
	w := knownWork()
	page := pageOf(t, w)
	for _, want := range []string{
		`<div class="card good"><div class="name">IOPS, rdma / tcp</div><div class="value">2.50×</div><div class="detail">2,500 against 1,000</div><div class="detail">2.00× – 3.00×</div>`,
		`<div class="card"><div class="name">latency p99, rdma / tcp</div><div class="value">0.50×</div><div class="detail">30 µs against 60 µs</div><div class="detail">0.50× – 1.00×</div>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page doesn't have %s", want)
		}
	}
	if legend := textOf(page, "ul"); len(legend) != 1 || strings.ReplaceAll(legend[0], "\n", "") != "rdma|tcp" {
		t.Errorf("the legend is %q, want both paths", legend)
	}
	w.Paths, w.Tails, w.Course = w.Paths[:1], w.Tails[:1], w.Course[:1]
	page = pageOf(t, w)
	for _, want := range []string{
		`<div class="card"><div class="name">IOPS</div><div class="value">2,500</div><div class="detail">2,000 – 3,000</div>`,
		`<div class="card"><div class="name">latency p50</div><div class="value">9 µs</div><div class="detail"></div>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of one path doesn't have %s", want)
		}
	}
	if n := strings.Count(page, `<div class="name">`); n != 4 {
		t.Errorf("the page of one path has %d main figures, want 4", n)
	}
}

// TestRatioMarks: a ratio is marked only if all repeats agree, by whether more is better.
func TestRatioMarks(t *testing.T) {
	more, less := metric("IOPS"), metric("latency p50")
	for _, x := range []struct {
		s         Spread
		m         Metric
		good, bad bool
	}{
		{Spread{1.2, 1.1, 1.3}, more, true, false}, {Spread{0.8, 0.7, 0.9}, more, false, true},
		{Spread{1.2, 1.1, 1.3}, less, false, true}, {Spread{0.8, 0.7, 0.9}, less, true, false},
		{Spread{1, 0.9, 1.1}, more, false, false}, {Spread{1.2, 1, 1.3}, more, false, false}, {Spread{0.8, 0.7, 1}, less, false, false},
	} {
		if r := newRatio(x.s, x.m); r.Good != x.good || r.Bad != x.bad {
			t.Errorf("%s: %+v is good %v, bad %v", x.m.Name, x.s, r.Good, r.Bad)
		}
	}
}

// TestTailOf: a percentile is drawn if at least five latencies are above it.
func TestTailOf(t *testing.T) {
	var h loadgen.Histogram
	for i := range 1000 {
		h.Record(int64(i+1) * 1000)
	}
	tail := TailOf(&h)
	if last := tail[len(tail)-1].Percentile; tail[0].Percentile != 0 || last != 99.5 {
		t.Errorf("1000 latencies are drawn from %v to %v, want 0 to 99.5", tail[0].Percentile, last)
	}
	for _, p := range tail {
		if p.Nanos < 10_000*p.Percentile*0.99 || p.Nanos > 10_000*p.Percentile*1.01+2000 {
			t.Errorf("percentile %v is %v", p.Percentile, p.Nanos)
		}
	}
	if tail := TailOf(new(loadgen.Histogram)); len(tail) != 0 {
		t.Errorf("no latencies have %v", tail)
	}
}

// TestFiguresOf: figures are over all directions.
func TestFiguresOf(t *testing.T) {
	g := loadgen.JobResult{Duration: 2 * time.Second, User: 3 * time.Millisecond, System: time.Millisecond}
	for i := range 1000 {
		g.Ops[loadgen.Read].Latency.Record(int64(i+1) * 1000)
		g.Ops[loadgen.Write].Latency.Record(int64(i+1001) * 1000)
	}
	g.Ops[loadgen.Write].Latency.Record(5_000_000) // which no percentile is about
	g.Ops[loadgen.Read].IOs, g.Ops[loadgen.Read].Bytes = 1000, 1000*4096
	g.Ops[loadgen.Write].IOs, g.Ops[loadgen.Write].Bytes = 1000, 1000*8192
	f := FiguresOf(&g)
	near := func(name string, got, want float64) {
		if got < want*0.995 || got > want*1.005 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	near("IOPS", f.IOPS, 1000)
	near("bandwidth", f.Bandwidth, 500*(4096+8192))
	near("mean", f.Mean, 1_000_500)
	near("p50", f.P50, 1_000_000)
	near("p99", f.P99, 1_980_000)
	near("p99.9", f.P999, 1_998_000)
	near("processor", f.CPU, 2000)
}
