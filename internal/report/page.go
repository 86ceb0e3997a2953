package report

import (
	_ "embed" // the page's parts
	"html/template"
	"io"
	"time"
)

// Page is the content of a page.
type Page struct {
	Title   string
	Command string // that made the page
	Made    time.Time
	Facts   []Fact // about the machine and the run
	Works   []*Work
}

// Fact is one fact about a run.
type Fact struct{ Name, Value string }

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Write writes the page, which is self-contained.
func (p *Page) Write(w io.Writer) error {
	type view struct {
		*Page
		Date   string
		Style  template.CSS
		Script template.JS
		Works  []workView
		Paths  []string // the same for all works
	}
	v := view{
		Page: p, Date: p.Made.Format("2 January 2006, 15:04 MST"),
		Style:  template.CSS(pageStyle), //nolint:gosec // our own
		Script: template.JS(pageScript), //nolint:gosec // our own
	}
	for _, k := range p.Works {
		v.Works = append(v.Works, newView(k))
		v.Paths = k.Paths
	}
	return pageTemplate.Execute(w, v)
}

// workView is a work as the page shows it.
type workView struct {
	Name   string
	Depth  string
	Paths  []string
	Cards  []card
	Charts []*chart
	Rows   []tableRow
	Heads  []string // for the ratios
}

// card is one figure, large.
type card struct {
	Name, Value, Detail, Range string
	Good, Bad                  bool
}

type tableRow struct {
	Depth  int
	First  int // how many rows the depth spans; 0 for all but the first
	Metric string
	Values []string
	Ratios []ratio
}

type ratio struct {
	Value, Range string
	Good, Bad    bool
}

func newView(w *Work) workView {
	v := workView{Name: w.Name, Depth: w.mainDepth(), Paths: w.Paths, Cards: w.cards()}
	v.Charts = append(v.Charts, w.overDepth()...)
	v.Charts = append(v.Charts, w.tails())
	v.Charts = append(v.Charts, w.courses()...)
	base := len(w.Paths) - 1
	for path := range base {
		v.Heads = append(v.Heads, w.Paths[path]+" / "+w.Paths[base])
	}
	for i := range w.Depths {
		d := &w.Depths[i]
		for k, m := range Metrics {
			row := tableRow{Depth: d.Depth, Metric: m.Name}
			if k == 0 {
				row.First = len(Metrics)
			}
			for path := range w.Paths {
				row.Values = append(row.Values, m.Text(d.Spread(path, m).Median))
			}
			for path := range base {
				row.Ratios = append(row.Ratios, newRatio(d.Ratio(path, base, m), m))
			}
			v.Rows = append(v.Rows, row)
		}
	}
	return v
}

// newRatio marks a ratio as good or bad only if its whole range is on one side of 1.
func newRatio(s Spread, m Metric) ratio {
	r := ratio{Value: Times(s.Median)}
	if s.Max > s.Min {
		r.Range = Times(s.Min) + " – " + Times(s.Max)
	}
	above, below := s.Min > 1, s.Max < 1
	r.Good, r.Bad = above && !m.Less || below && m.Less, below && !m.Less || above && m.Less
	return r
}

// cards returns the figures that a reader wants first: ratios if paths are compared.
func (w *Work) cards() []card {
	d := &w.Depths[w.Main]
	base := len(w.Paths) - 1
	var cards []card
	for _, name := range []string{"IOPS", "bandwidth", "latency p50", "latency p99"} {
		m := metric(name)
		if base == 0 {
			s := d.Spread(0, m)
			k := card{Name: m.Name, Value: m.Text(s.Median)}
			if s.Max > s.Min {
				k.Detail = m.Text(s.Min) + " – " + m.Text(s.Max)
			}
			cards = append(cards, k)
			continue
		}
		r := newRatio(d.Ratio(0, base, m), m)
		cards = append(cards, card{
			Name: m.Name + ", " + w.Paths[0] + " / " + w.Paths[base], Value: r.Value, Good: r.Good, Bad: r.Bad,
			Detail: m.Text(d.Spread(0, m).Median) + " against " + m.Text(d.Spread(base, m).Median), Range: r.Range,
		})
	}
	return cards
}
