package report

import (
	"math"
	"slices"
)

// axis is the scale of a plot in one direction.
type axis struct {
	label string
	ticks []tick
	// at returns the position of a value, from 0 to 1.
	at func(v float64) float64
	// text formats a value for people, in full.
	text func(v float64) string
}

type tick struct {
	value float64
	label string
}

// linear returns an axis from 0 to at least top, with ticks at round values.
func linear(label string, top float64, text func(float64) string) axis {
	const ticks = 5
	step := roundStep(max(top, 1e-9) / ticks)
	end := math.Ceil(top/step*0.999) * step
	end = max(end, step)
	a := axis{label: label, text: text, at: func(v float64) float64 { return v / end }}
	for v := 0.0; v <= end*1.001; v += step {
		a.ticks = append(a.ticks, tick{v, text(v)})
	}
	return a
}

// timeline returns an axis of seconds that ends where the data does.
func timeline(label string, end float64) axis {
	a := linear(label, end, func(v float64) string { return significant(v, 3) })
	a.text = func(v float64) string { return significant(v, 3) + " s" }
	if end > 0 {
		a.at = func(v float64) float64 { return v / end }
		a.ticks = slices.DeleteFunc(a.ticks, func(t tick) bool { return t.value > end*1.001 })
	}
	return a
}

// roundStep returns the smallest of 1, 2, 2.5 and 5 times a power of ten that isn't below v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if v <= power*m*1.0001 {
			return power * m
		}
	}
	return power * 10
}

// logTime returns a logarithmic axis of times, from at most low to at least high nanoseconds, with ticks at 1, 2
// and 5 in each decade, or only at decades if there are many.
func logTime(label string, low, high float64) axis {
	low, high = max(low, 1), max(high, 2)
	marks := []float64{1, 2, 5}
	if high/low > 1e3 {
		marks = []float64{1}
	}
	var values []float64
	for e := math.Floor(math.Log10(low)) - 1; e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range marks {
			values = append(values, m*math.Pow(10, e))
		}
	}
	first, last := 0, len(values)-1
	for first < last-1 && values[first+1] <= low*0.93 {
		first++
	}
	for last > first+1 && values[last-1] >= high*1.03 {
		last--
	}
	values = values[first : last+1]
	from, to := math.Log(values[0]), math.Log(values[len(values)-1])
	a := axis{label: label, text: TimeText, at: func(v float64) float64 { return (math.Log(max(v, 1)) - from) / (to - from) }}
	for _, v := range values {
		a.ticks = append(a.ticks, tick{v, roundedTime(v, 1)})
	}
	return a
}

// depths returns a logarithmic axis with a tick at each depth.
func depths(label string, values []int) axis {
	from, to := math.Log(float64(values[0])), math.Log(float64(values[len(values)-1]))
	a := axis{label: label, text: func(v float64) string { return "depth " + countText(v) }}
	a.at = func(v float64) float64 {
		if to == from {
			return 0.5
		}
		return (math.Log(v) - from) / (to - from)
	}
	for _, v := range values {
		a.ticks = append(a.ticks, tick{float64(v), countText(float64(v))})
	}
	return a
}

// percentiles returns an axis on which 90%, 99%, 99.9% … are equally far apart, up to last.
func percentiles(label string, last float64) axis {
	place := func(p float64) float64 { return -math.Log10(1 - min(p, 99.99999)/100) }
	end := max(place(last), 1)
	a := axis{label: label, text: percentile, at: func(p float64) float64 { return place(p) / end }}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999} {
		if place(p) <= end*1.001 {
			a.ticks = append(a.ticks, tick{p, a.text(p)})
		}
	}
	return a
}
