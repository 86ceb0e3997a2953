package main

import (
	"cmp"
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/report"
)

// measured collects the runs of one depth.
type measured struct {
	runs   [][]report.Figures // by path
	lat    []*loadgen.Histogram
	series [][]report.Course // by path, by repeat
	late   []uint64          // by path: operations that were due and never began
}

func newMeasured(paths int) *measured {
	m := &measured{runs: make([][]report.Figures, paths), series: make([][]report.Course, paths), late: make([]uint64, paths)}
	for range paths {
		m.lat = append(m.lat, new(loadgen.Histogram))
	}
	return m
}

// add adds a repeat: a run over each path.
func (m *measured) add(all []*loadgen.Result) {
	for path, res := range all {
		g := loadgen.Group(res.Jobs)
		m.runs[path] = append(m.runs[path], report.FiguresOf(&g))
		m.lat[path].Merge(&g.Total().Latency)
		m.series[path] = append(m.series[path], res.Series)
		m.late[path] += g.Unstarted
	}
}

func (m *measured) tails() []report.Tail {
	var t []report.Tail
	for _, h := range m.lat {
		t = append(t, report.TailOf(h))
	}
	return t
}

// courses returns, for each path, the course of the repeat with the median IOPS.
func (m *measured) courses() []report.Course {
	var c []report.Course
	for path, runs := range m.runs {
		order := make([]int, len(runs))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(runs[a].IOPS, runs[b].IOPS) })
		c = append(c, m.series[path][order[len(order)/2]])
	}
	return c
}
