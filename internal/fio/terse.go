package fio

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// terseVersion is the version of fio's terse format that fio prints by default, and the only one here.
const terseVersion = 3

// Terse writes what fio prints with --output-format=terse: a line for each job, of fields separated by semicolons,
// without those that fio adds for disks.
func (r *Report) Terse(w io.Writer) error {
	for i := range r.Jobs {
		j := &r.Jobs[i]
		l := terse{strconv.Itoa(terseVersion), r.Version, j.Name}
		l.add("%d", j.GroupID)
		l.add("%d", j.Error)
		if j.unified != Mixed {
			l.side(&j.Read, j.percentiles)
			l.side(&j.Write, j.percentiles)
		}
		if j.unified != Apart {
			l.side(&j.Mixed, j.percentiles)
		}
		l.add("%f%%", j.User)
		l.add("%f%%", j.System)
		for _, n := range []int64{j.Switches, j.MajFlt, j.MinFlt} {
			l.add("%d", n)
		}
		for _, s := range j.Level {
			l.add("%3.1f%%", visible(s.value, 0.1))
		}
		for k, s := range j.Micros {
			if k == 0 {
				for _, ns := range j.Nanos {
					s.value += ns.value
				}
			}
			l.add("%3.2f%%", visible(s.value, 0.01))
		}
		for _, s := range j.Millis {
			l.add("%3.2f%%", visible(s.value, 0.01))
		}
		if j.Desc != "" {
			l = append(l, j.Desc)
		}
		if _, err := fmt.Fprintln(w, strings.Join(l, ";")); err != nil {
			return err
		}
	}
	return nil
}

// visible returns a share as it is shown: as in fio, one above 0 isn't rounded down to that.
func visible(percent, least float64) float64 {
	if percent > 0 {
		return max(percent, least)
	}
	return 0
}

// terse holds the fields of a line.
type terse []string

func (l *terse) add(format string, a ...any) { *l = append(*l, fmt.Sprintf(format, a...)) }

// side adds the fields of reads or of writes, whose percentiles are those of list.
func (l *terse) side(s *Side, list []float64) {
	for _, n := range []uint64{s.IOKBytes, s.BW, uint64(s.IOPS), uint64(s.Runtime)} {
		l.add("%d", n)
	}
	l.latency(&s.SLat)
	l.latency(&s.CLat)
	values := s.CLat.Percentiles
	if s.Lat.Percentiles != nil {
		values = s.Lat.Percentiles
	}
	for i := range maxPercentiles {
		switch {
		case i >= len(list):
			l.add("0%%=0")
		case i >= len(values): // nothing was measured
			l.add("%f%%=0", list[i])
		default:
			l.add("%f%%=%d", list[i], int64(values[i].value)/1000)
		}
	}
	l.latency(&s.Lat)
	l.add("%d", s.BWMin)
	l.add("%d", s.BWMax)
	l.add("%f%%", s.BWAgg)
	l.add("%f", s.BWMean)
	l.add("%f", s.BWDev)
}

// latency adds figures in microseconds.
func (l *terse) latency(t *Latency) {
	l.add("%d", t.Min/1000)
	l.add("%d", t.Max/1000)
	l.add("%f", t.Mean/1000)
	l.add("%f", t.StdDev/1000)
}
