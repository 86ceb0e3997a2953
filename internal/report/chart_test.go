package report

import (
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// TestDrawn: a chart has its lines, marks, ranges and ticks where their values are, and what the page shows at the
// pointer.
func TestDrawn(t *testing.T) {
	c := &chart{Title: "rate", x: timeline("seconds", 10), y: linear("operations", 100, short)}
	c.lines = []line{
		{name: "a", colour: 0, marks: true, points: []point{{10, 100, 100, 100}, {0, 0, 0, 0}, {5, 50, 40, 60}}},
		{name: "b", colour: 1, dashed: true, points: []point{{0, 25, 25, 25}, {10, 75, 75, 75}}},
	}
	svg := html.UnescapeString(string(c.SVG()))
	for _, want := range []string{
		`<path class="line c0" d="M572.0 14.0L80.0 272.0L326.0 143.0"/>`,
		`<path class="range c0" d="M572.0 14.0L80.0 272.0L326.0 117.2L326.0 168.8L80.0 272.0L572.0 14.0Z"/>`,
		`<path class="line c1 dashed" d="M80.0 207.5L572.0 78.5"/>`,
		`<circle class="mark c0" cx="326.0" cy="143.0" r="3.5"/>`,
		`y1="117.2" y2="117.2"/><text class="tick" x="72" y="121.2" text-anchor="end">60</text>`,
		`x1="375.2" x2="375.2" y1="14" y2="272"/><text class="tick" x="375.2" y="290" text-anchor="middle">6</text>`,
		`>operations</text>`, `>seconds</text>`,
		`[{"x":80,"n":"0 s","r":[{"n":"a","v":"0","c":0,"y":272},{"n":"b","v":"25","c":1,"y":207.5}]},` +
			`{"x":326,"n":"5 s","r":[{"n":"a","v":"50 (40 – 60)","c":0,"y":143}]},` +
			`{"x":572,"n":"10 s","r":[{"n":"a","v":"100","c":0,"y":14},{"n":"b","v":"75","c":1,"y":78.5}]}]`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart doesn't have %s", want)
		}
	}
	if n := strings.Count(svg, `class="range`); n != 1 {
		t.Errorf("%d lines have a range, want one", n)
	}
	if n := strings.Count(svg, "<circle"); n != 3 {
		t.Errorf("%d marks, want those of one line", n)
	}
}

// drawnLines says what the lines of charts are: their colours, and their points with the ranges around them.
func drawnLines(charts ...*chart) (all []string) {
	for _, c := range charts {
		for _, l := range c.lines {
			text := fmt.Sprintf("%s, %s: %d", c.Title, l.name, l.colour)
			if l.dashed {
				text += " dashed"
			}
			for _, p := range l.points {
				text += fmt.Sprintf(" %g:%g", p.x, p.y)
				if p.high > p.low {
					text += fmt.Sprintf("(%g-%g)", p.low, p.high)
				}
			}
			all = append(all, text)
		}
	}
	return all
}

// TestPlots: each plot has the figures of each path. Over depth, rates and medians have the range of the repeats; over
// time, an interval in which nothing ended has no latency.
func TestPlots(t *testing.T) {
	w := knownWork()
	w.Tails = []Tail{{{0, 1000}, {50, 2000}, {99, 9000}}, {{0, 3000}, {90, 5000}}}
	for path := range w.Paths {
		var c Course
		for i, ios := range [][]uint64{{100, 0, 300, 200}, {100, 0, 300}}[path] {
			s := loadgen.Sample{At: time.Duration(i+2) * time.Second, Length: time.Second}
			s.IOs[loadgen.Write] = ios
			if ios > 0 {
				s.P50, s.P99 = int64(path+1)*1000, int64(path+1)*5000
			}
			c = append(c, s)
		}
		w.Course[path] = c
	}
	charts := append(w.overDepth(), append(w.courses(), w.tails())...)
	want := []string{
		"IOPS over depth, rdma: 0 1:100 16:2500(2000-3000)", "IOPS over depth, tcp: 1 1:100 16:1000",
		"Latency over depth, rdma p50: 0 1:18000 16:9000", "Latency over depth, rdma p99: 0 dashed 1:60000 16:30000",
		"Latency over depth, tcp p50: 1 1:18000 16:18000(9000-18000)", "Latency over depth, tcp p99: 1 dashed 1:60000 16:60000",
		"IOPS over time, rdma: 0 0.5:100 1.5:0 2.5:300 3.5:200", "IOPS over time, tcp: 1 0.5:100 1.5:0 2.5:300",
		"Latency over time, rdma p50: 0 0.5:1000 2.5:1000 3.5:1000", "Latency over time, rdma p99: 0 dashed 0.5:5000 2.5:5000 3.5:5000",
		"Latency over time, tcp p50: 1 0.5:2000 2.5:2000", "Latency over time, tcp p99: 1 dashed 0.5:10000 2.5:10000",
		"Latency percentiles at depth 16, rdma: 0 0:1000 50:2000 99:9000", "Latency percentiles at depth 16, tcp: 1 0:3000 90:5000",
	}
	if got := drawnLines(charts...); !slices.Equal(got, want) {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// What the axes reach to, with the ranges.
	for i, c := range []struct {
		x    float64
		low  string
		high string
	}{{16, "0", "3k"}, {16, "5 µs", "100 µs"}, {3.5, "0", "300"}, {3.5, "500 ns", "20 µs"}, {99, "500 ns", "10 µs"}} {
		ticks := charts[i].y.ticks
		if low, high := ticks[0].label, ticks[len(ticks)-1].label; charts[i].x.at(c.x) != 1 || low != c.low || high != c.high {
			t.Errorf("%s: %v is at %v, from %s to %s, want 1, %s, %s", charts[i].Title, c.x, charts[i].x.at(c.x), low, high, c.low, c.high)
		}
	}
	if note := charts[0].Note; !strings.Contains(note, "the range of all repeats") {
		t.Errorf("the note about ranges is %q", note)
	}
	if got := charts[0].y.text(2500); got != "2,500" {
		t.Errorf("the pointer shows a rate as %s", got)
	}
	w.Depths = w.Depths[1:]
	if w.Main = 0; len(w.overDepth()) != 0 {
		t.Error("there is a plot over one depth")
	}
	one := knownWork()
	for i := range one.Depths {
		for path := range one.Paths {
			one.Depths[i].Runs[path] = one.Depths[i].Runs[path][:1]
		}
	}
	if note := one.overDepth()[0].Note; note != "" {
		t.Errorf("one repeat has the note %q", note)
	}
}

// TestBounds: an axis reaches around all values and the ranges around them, whichever comes first.
func TestBounds(t *testing.T) {
	ranged := line{points: []point{{1, 6, 4, 7}, {2, 5, 2, 9}, {3, 6, 4, 7}}}
	plain := line{points: []point{{1, 1, 1, 1}, {2, 3, 3, 3}, {3, 12, 12, 12}}}
	for _, c := range []struct {
		lines     []line
		low, high float64
	}{
		{[]line{ranged}, 2, 9},
		{[]line{ranged, plain}, 1, 12},
		{[]line{plain, ranged}, 1, 12},
		{[]line{{}}, 0, 1},
	} {
		if low, high := bounds(c.lines); low != c.low || high != c.high {
			t.Errorf("%+v: from %v to %v, want from %v to %v", c.lines, low, high, c.low, c.high)
		}
	}
}

// TestWriteFails: a page that can't be written is an error.
func TestWriteFails(t *testing.T) {
	if err := samplePage(knownWork()).Write(full{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v of a page for which there is no room", err)
	}
}

// full is a file on a file system without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }
