package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// countText formats a number for people: 166,350.
func countText(v float64) string { return humanize.Comma(int64(v + 0.5)) }

// bandwidthText formats bytes per second: 446 MiB/s.
func bandwidthText(v float64) string { return humanize.IBytes(uint64(v)) + "/s" }

// TimeText formats a number of nanoseconds with three digits: 1.25 ms.
func TimeText(ns float64) string { return roundedTime(ns, 3) }

// roundedTime formats a number of nanoseconds with that many digits.
func roundedTime(ns float64, digits int) string {
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if ns >= u.ns*0.9995 {
			return significant(ns/u.ns, digits) + " " + u.name
		}
	}
	return significant(ns, digits) + " ns"
}

// significant formats v with that many significant digits, without trailing zeros.
func significant(v float64, digits int) string {
	decimals := digits
	for x := v; x >= 1; x /= 10 {
		decimals--
	}
	s := strconv.FormatFloat(v, 'f', max(decimals, 0), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// short formats a count for an axis: 250k.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return significant(v/1e6, 3) + "M"
	case v >= 1e3:
		return significant(v/1e3, 3) + "k"
	}
	return significant(v, 3)
}

// Times formats a ratio: 1.32×.
func Times(v float64) string { return fmt.Sprintf("%.2f×", v) }

// percentile formats 99.9 as p99.9.
func percentile(p float64) string {
	if p == 0 {
		return "min"
	}
	return "p" + strconv.FormatFloat(p, 'f', -1, 64)
}
