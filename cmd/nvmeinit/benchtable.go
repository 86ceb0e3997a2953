package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/report"
)

// printComparison prints one table: every figure of every load at every depth, for each path, and the ratio of each
// path to the last one.
func printComparison(w io.Writer, works []*report.Work) {
	paths := works[0].Paths
	base := len(paths) - 1
	head := []any{"load", "depth", "figure"}
	for _, p := range paths {
		head = append(head, p)
	}
	for path := range base {
		head = append(head, paths[path]+" / "+paths[base], "range")
	}
	t := cli.NewTable(w, head...)
	var columns []table.ColumnConfig
	for i := range head[3:] {
		columns = append(columns, table.ColumnConfig{Number: 4 + i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	for _, k := range works {
		for i := range k.Depths {
			d := &k.Depths[i]
			for n, m := range report.Metrics {
				row := []any{k.Name, d.Depth, m.Name}
				if n > 0 {
					row[0], row[1] = "", ""
				}
				for path := range paths {
					row = append(row, m.Text(d.Spread(path, m).Median))
				}
				for path := range base {
					r := d.Ratio(path, base, m)
					row = append(row, report.Times(r.Median), fmt.Sprintf("%.2f–%.2f", r.Min, r.Max))
				}
				t.AppendRow(row)
			}
			t.AppendSeparator()
		}
	}
	t.Render()
	if n := len(works[0].Depths[0].Runs[0]); n > 1 {
		fmt.Fprintf(w, "medians of %d repeats", n)
		if base > 0 {
			fmt.Fprint(w, ", run in turns; each repeat gives a ratio, of which the median and the range are shown")
		}
		fmt.Fprintln(w)
	}
	for _, late := range behind(works) {
		fmt.Fprintln(w, "behind the rate: "+late)
	}
}

// behind says for each load and path whether operations were due by a rate and had not begun at the end.
func behind(works []*report.Work) []string {
	var lines []string
	for _, k := range works {
		for path, n := range k.Late {
			if n > 0 {
				lines = append(lines, fmt.Sprintf("%s, %s: %s", k.Name, k.Paths[path], unstartedText(n)))
			}
		}
	}
	return lines
}

// compared is one row of the comparison in JSON.
type compared struct {
	Load   string             `json:"load"`
	Depth  int                `json:"iodepth"`
	Figure string             `json:"figure"`
	Unit   string             `json:"unit"`
	Median map[string]float64 `json:"median"`
	Ratios []comparedRatio    `json:"ratios"`
}

type comparedRatio struct {
	Of     string  `json:"of"`
	To     string  `json:"to"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// comparison returns what printComparison prints, for programs.
func comparison(works []*report.Work) []compared {
	all := []compared{}
	for _, k := range works {
		base := len(k.Paths) - 1
		for i := range k.Depths {
			d := &k.Depths[i]
			for _, m := range report.Metrics {
				c := compared{
					Load: k.Name, Depth: d.Depth, Figure: m.Name, Unit: m.Unit,
					Median: map[string]float64{}, Ratios: []comparedRatio{},
				}
				for path, name := range k.Paths {
					c.Median[name] = d.Spread(path, m).Median
				}
				for path := range base {
					r := d.Ratio(path, base, m)
					c.Ratios = append(c.Ratios, comparedRatio{k.Paths[path], k.Paths[base], r.Median, r.Min, r.Max})
				}
				all = append(all, c)
			}
		}
	}
	return all
}
