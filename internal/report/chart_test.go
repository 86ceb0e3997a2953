package report

import (
	"html"
	"strings"
	"testing"
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
