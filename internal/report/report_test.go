package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// sampleWork is made-up data: two paths, some depths, three repeats.
func sampleWork(paths ...string) *Work {
	rng := rand.New(rand.NewPCG(1, 2))
	w := &Work{Name: "randread 4.0 KiB", Paths: paths, Main: 2}
	for _, depth := range []int{1, 4, 16, 64} {
		d := Depth{Depth: depth}
		for path := range paths {
			var runs []Figures
			for range 3 {
				iops := 25_000 * math.Pow(float64(depth), 0.6) * (1 + 0.3*float64(path)) * (0.95 + 0.1*rng.Float64())
				lat := float64(depth) / iops * 1e9
				runs = append(runs, Figures{
					IOPS: iops, Bandwidth: iops * 4096, Mean: lat, P50: lat * 0.9, P99: lat * 3, P999: lat * 9, CPU: 2500,
				})
			}
			d.Runs = append(d.Runs, runs)
		}
		w.Depths = append(w.Depths, d)
	}
	for path := range paths {
		var h loadgen.Histogram
		for range 200_000 {
			h.Record(int64(50_000 * math.Exp(rng.NormFloat64()*0.4) * (1 + 0.2*float64(path))))
		}
		w.Tails = append(w.Tails, TailOf(&h))
		var c Course
		for i := range 40 {
			s := loadgen.Sample{At: time.Duration(i+1) * 50 * time.Millisecond, Length: 50 * time.Millisecond}
			s.IOs[loadgen.Read] = uint64(5000 + 500*rng.NormFloat64())
			s.P50, s.P99 = 100_000, int64(300_000+50_000*rng.Float64())
			c = append(c, s)
		}
		w.Course = append(w.Course, c)
	}
	return w
}

func samplePage(works ...*Work) *Page {
	return &Page{
		Title: "rdma and tcp: randread 4.0 KiB", Command: `nvmeinit bench --name '<b>&"x"'`, Made: time.Unix(1795242250, 0),
		Facts: []Fact{{"machine", "two <processors>"}}, Works: works,
	}
}

var sampleFile = flag.String("sample", "", "file to write a page of made-up figures to")

// The page is complete, escapes its input, and loads nothing from elsewhere.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := samplePage(sampleWork("rdma", "tcp"), sampleWork("rdma", "tcp")).Write(&b); err != nil {
		t.Fatal(err)
	}
	if *sampleFile != "" {
		if err := os.WriteFile(*sampleFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page := b.String()
	if n := strings.Count(page, "<svg"); n != 10 {
		t.Errorf("%d plots, want five of each of two loads", n)
	}
	for _, want := range []string{
		"&lt;b&gt;&amp;", "two &lt;processors&gt;", "IOPS over depth", "Latency over depth", "Latency percentiles at depth 16",
		"IOPS over time", "Latency over time", "rdma / tcp", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, outside := range []string{`https?://`, `<link`, `@import`, `\bsrc=`, `\bhref=`, `url\(`, `fetch\(`, `NaN`, `[+-]Inf`, `ZgotmplZ`} {
		if at := regexp.MustCompile(outside).FindString(page); at != "" {
			t.Errorf("the page has %q", at)
		}
	}
}

// Pages with one path, one depth and one repeat, with only zeroes, or without samples.
func TestSparsePages(t *testing.T) {
	one := sampleWork("tcp")
	one.Depths, one.Main = one.Depths[:1], 0
	one.Depths[0].Runs[0] = one.Depths[0].Runs[0][:1]
	none := &Work{
		Name: "nothing", Paths: []string{"a", "b"}, Depths: []Depth{{1, [][]Figures{{{}}, {{}}}}},
		Tails: make([]Tail, 2), Course: make([]Course, 2),
	}
	for _, w := range []*Work{one, none} {
		var b bytes.Buffer
		if err := samplePage(w).Write(&b); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") || strings.Contains(s, "IOPS over depth") {
			t.Errorf("the page of %s: %.2000s", w.Name, s)
		}
	}
}

// Every plot is well-formed, lies inside its frame, and has its values for the pointer.
func TestCharts(t *testing.T) {
	w := sampleWork("rdma", "tcp", "other")
	charts := append(w.overDepth(), append(w.courses(), w.tails())...)
	for _, c := range charts {
		svg := string(c.SVG())
		dec := xml.NewDecoder(strings.NewReader(svg))
		lines := 0
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c.Title, err)
			}
			if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "path" && strings.HasPrefix(e.Attr[0].Value, "line") {
				lines++
			}
		}
		if lines != len(c.lines) {
			t.Errorf("%s: %d lines are drawn, of %d", c.Title, lines, len(c.lines))
		}
		for _, l := range c.lines {
			for _, p := range l.points {
				if x, y := c.px(p.x), c.py(p.y); x < plotLeft || x > float64(c.right())+1 || y < plotTop || y > plotBottom {
					t.Errorf("%s: %s: %v, %v is drawn at %v, %v", c.Title, l.name, p.x, p.y, x, y)
				}
				if !strings.Contains(html.UnescapeString(svg), c.y.text(p.y)) {
					t.Errorf("%s: %s has no value %s to show", c.Title, l.name, c.y.text(p.y))
				}
			}
		}
		for _, a := range []axis{c.x, c.y} {
			if len(a.ticks) < 2 || len(a.ticks) > 12 || a.label == "" {
				t.Errorf("%s: %d ticks of %q", c.Title, len(a.ticks), a.label)
			}
		}
	}
}

func TestAxes(t *testing.T) {
	labels := func(a axis) string {
		var s []string
		for _, t := range a.ticks {
			s = append(s, t.label)
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct {
		a    axis
		want string
	}{
		{linear("", 93_000, short), "0 20k 40k 60k 80k 100k"},
		{linear("", 1_200_000, short), "0 250k 500k 750k 1M 1.25M"},
		{linear("", 0, short), ""},
		{logTime("", 30_000, 400_000), "20 µs 50 µs 100 µs 200 µs 500 µs"},
		{logTime("", 900, 2e9), "100 ns 1 µs 10 µs 100 µs 1 ms 10 ms 100 ms 1 s 10 s"},
		{timeline("", 1.01), "0 0.25 0.5 0.75 1"},
		{depths("", []int{1, 4, 16}), "1 4 16"},
		{percentiles("", 99.99), "min p50 p90 p99 p99.9 p99.99"},
	} {
		got := labels(c.a)
		if c.want != "" && got != c.want {
			t.Errorf("ticks %q, want %q", got, c.want)
		}
		for _, k := range c.a.ticks {
			if at := c.a.at(k.value); !(at > -1e-6 && at < 1+1e-6) {
				t.Errorf("%s lies at %v", k.label, at)
			}
		}
	}
}

func TestRatios(t *testing.T) {
	d := Depth{Depth: 1, Runs: [][]Figures{
		{{IOPS: 130, P99: 5}, {IOPS: 110, P99: 9}, {IOPS: 300, P99: 7}},
		{{IOPS: 100, P99: 10}, {IOPS: 100, P99: 10}, {IOPS: 200, P99: 10}},
	}}
	if r := d.Ratio(0, 1, metric("IOPS")); math.Abs(r.Median-1.3) > 1e-9 || r.Min != 1.1 || r.Max != 1.5 {
		t.Errorf("%+v, want 1.3 of 1.1 to 1.5: a ratio of each repeat", r)
	}
	if r := newRatio(d.Ratio(0, 1, metric("IOPS")), metric("IOPS")); !r.Good || r.Bad {
		t.Errorf("more IOPS in every repeat: %+v", r)
	}
	if r := newRatio(d.Ratio(0, 1, metric("latency p99")), metric("latency p99")); !r.Good {
		t.Errorf("less latency in every repeat: %+v", r)
	}
	if r := newRatio(Spread{1.1, 0.9, 1.2}, metric("IOPS")); r.Good || r.Bad {
		t.Errorf("nobody knows: %+v", r)
	}
	if s := spreadOf([]float64{4, 1, 3, 2}); s.Median != 2.5 || s.Min != 1 || s.Max != 4 {
		t.Errorf("%+v", s)
	}
}

func TestFormat(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0 ns", 740: "740 ns", 1000: "1 µs", 9999: "10 µs", 12_345: "12.3 µs", 123_456: "123 µs", 999_900: "1 ms", 1.5e6: "1.5 ms", 2e9: "2 s",
		1234.5e9: "1234 s",
	} {
		if got := TimeText(ns); got != want {
			t.Errorf("%v ns is %q, want %q", ns, got, want)
		}
	}
	if got := short(1_250_000) + short(50_000) + short(1000) + short(999) + short(0.5); got != "1.25M50k1k9990.5" {
		t.Error(got)
	}
}
