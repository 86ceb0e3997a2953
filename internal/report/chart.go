package report

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
)

// chart is a plot of lines.
type chart struct {
	Title string
	Note  string // what the marks mean, below the title
	Wide  bool   // it takes the whole width of the page
	x, y  axis
	lines []line
}

// line is one line of a plot. Lines of one path have one colour.
type line struct {
	name   string
	colour int
	dashed bool
	marks  bool // a dot at each point
	points []point
}

// point is a point of a line, which may have a range around it.
type point struct{ x, y, low, high float64 }

// The picture, in its own coordinates.
const (
	chartWidth  = 600
	wideWidth   = 1232
	chartHeight = 320
	plotLeft    = 80
	rightMargin = 28
	plotTop     = 14
	plotBottom  = chartHeight - 48
)

func (c *chart) width() int {
	if c.Wide {
		return wideWidth
	}
	return chartWidth
}

func (c *chart) right() int { return c.width() - rightMargin }

func (c *chart) px(x float64) float64 { return plotLeft + c.x.at(x)*float64(c.right()-plotLeft) }

func (c *chart) py(y float64) float64 {
	return plotBottom - min(max(c.y.at(y), 0), 1)*(plotBottom-plotTop)
}

// SVG returns the picture. Colours and fonts are those of the page's style.
func (c *chart) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s" data-hover="%s">`,
		c.width(), chartHeight, html.EscapeString(c.Title), html.EscapeString(c.hover()))
	c.drawAxes(&b)
	for i := range c.lines {
		c.drawRange(&b, &c.lines[i])
	}
	for i := range c.lines {
		c.drawLine(&b, &c.lines[i])
	}
	fmt.Fprintf(&b, `<line class="cursor" y1="%d" y2="%d"/></svg>`, plotTop, plotBottom)
	return template.HTML(b.String()) //nolint:gosec // every text in it was escaped
}

func (c *chart) drawAxes(b *strings.Builder) {
	for _, t := range c.y.ticks {
		y := c.py(t.value)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plotLeft, c.right(), y, y)
		fmt.Fprintf(b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, y+4, html.EscapeString(t.label))
	}
	for _, t := range c.x.ticks {
		x := c.px(t.value)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x, x, plotTop, plotBottom)
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, plotBottom+18, html.EscapeString(t.label))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`, plotLeft, c.right(), plotBottom, plotBottom)
	fmt.Fprintf(b, `<text class="label" x="%d" y="%d" text-anchor="middle">%s</text>`,
		(plotLeft+c.right())/2, chartHeight-8, html.EscapeString(c.x.label))
	mid := (plotTop + plotBottom) / 2
	fmt.Fprintf(b, `<text class="label" x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">%s</text>`,
		mid, mid, html.EscapeString(c.y.label))
}

// drawRange shades the range of the repeats.
func (c *chart) drawRange(b *strings.Builder, l *line) {
	if !slices.ContainsFunc(l.points, func(p point) bool { return p.high > p.low }) {
		return
	}
	var path strings.Builder
	for i, p := range l.points {
		fmt.Fprintf(&path, "%s%.1f %.1f", moveOrLine(i), c.px(p.x), c.py(p.high))
	}
	for _, p := range slices.Backward(l.points) {
		fmt.Fprintf(&path, "L%.1f %.1f", c.px(p.x), c.py(p.low))
	}
	fmt.Fprintf(b, `<path class="range c%d" d="%sZ"/>`, l.colour, path.String())
}

func (c *chart) drawLine(b *strings.Builder, l *line) {
	var path strings.Builder
	for i, p := range l.points {
		fmt.Fprintf(&path, "%s%.1f %.1f", moveOrLine(i), c.px(p.x), c.py(p.y))
	}
	class := ""
	if l.dashed {
		class = " dashed"
	}
	fmt.Fprintf(b, `<path class="line c%d%s" d="%s"/>`, l.colour, class, path.String())
	if !l.marks {
		return
	}
	for _, p := range l.points {
		fmt.Fprintf(b, `<circle class="mark c%d" cx="%.1f" cy="%.1f" r="3.5"/>`, l.colour, c.px(p.x), c.py(p.y))
	}
}

func moveOrLine(i int) string {
	if i == 0 {
		return "M"
	}
	return "L"
}

// hoverColumn is what the page shows at the pointer: the values at one x.
type hoverColumn struct {
	X    float64    `json:"x"` // in the picture's coordinates
	Name string     `json:"n"`
	Rows []hoverRow `json:"r"`
}

type hoverRow struct {
	Name   string  `json:"n"`
	Value  string  `json:"v"`
	Colour int     `json:"c"`
	Y      float64 `json:"y"`
}

// hover returns the columns of all points, as JSON.
func (c *chart) hover() string {
	columns := map[float64]*hoverColumn{}
	var xs []float64
	for _, l := range c.lines {
		for _, p := range l.points {
			k := columns[p.x]
			if k == nil {
				k = &hoverColumn{X: round1(c.px(p.x)), Name: c.x.text(p.x)}
				columns[p.x] = k
				xs = append(xs, p.x)
			}
			value := c.y.text(p.y)
			if p.high > p.low {
				value += " (" + c.y.text(p.low) + " – " + c.y.text(p.high) + ")"
			}
			k.Rows = append(k.Rows, hoverRow{l.name, value, l.colour, round1(c.py(p.y))})
		}
	}
	slices.Sort(xs)
	list := make([]*hoverColumn, len(xs))
	for i, x := range xs {
		list[i] = columns[x]
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "[]" // numbers that JSON can't represent; the picture shows them as well as it can
	}
	return string(b)
}

func round1(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
