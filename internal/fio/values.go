package fio

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

var (
	errNumber = errors.New("want a number")
	errSize   = errors.New("want a size, as 4096, 64k or 1g")
)

// parseSeed parses any 64-bit number.
func parseSeed(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 0, 64)
	if err != nil {
		return 0, errNumber
	}
	return n, nil
}

// number parses a number, which may be written like a size: 4k is 4096.
func number(to *int, v string) error {
	n, err := parseCount(v)
	*to = int(n)
	return err
}

func boolean(to *bool, v string) error {
	switch v {
	case "", "1", "true":
		*to = true
	case "0", "false":
		*to = false
	default:
		return errors.New("want 1 or 0, or nothing")
	}
	return nil
}

// unless sets *to if v is false.
func unless(to *bool, v string) error {
	err := boolean(to, v)
	*to = !*to
	return err
}

// parseSize parses a number of bytes, or a count: 4k is 4096, and so are 0x1000 and (4*1024). As in fio, and unlike
// anywhere else, 4kb means the same; 4KiB is 4096 too.
func parseSize(v string) (int64, error) {
	if v = strings.TrimSpace(v); expressed(v) {
		return unsigned(v, parseNumber)
	}
	return parseNumber(v)
}

func parseNumber(v string) (int64, error) {
	t := strings.ToLower(v)
	if hex, ok := strings.CutPrefix(t, "0x"); ok {
		digits := len(hex) - len(strings.TrimLeft(hex, "0123456789abcdef"))
		n, err := strconv.ParseInt(hex[:digits], 16, 64)
		if err != nil {
			return 0, errSize
		}
		t = strconv.FormatInt(n, 10) + hex[digits:]
	}
	if n := len(t); n > 2 && t[n-1] == 'b' && strings.ContainsRune("kmgtpe", rune(t[n-2])) {
		t = t[:n-1]
	}
	n, err := blockdev.ParseSize(t)
	switch {
	case errors.Is(err, blockdev.ErrTooLarge):
		return 0, blockdev.ErrTooLarge
	case err != nil:
		return 0, errSize
	}
	return n, nil
}

// parseCount is parseSize for values that aren't bytes.
func parseCount(v string) (int64, error) {
	n, err := parseSize(v)
	if err != nil {
		err = errNumber
	}
	return n, err
}

// parseMicros parses a time whose default unit is microseconds.
func parseMicros(v string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		v += "us"
	}
	return ParseTime(v)
}

// secondsUnits converts fio's long unit names to Go's.
var secondsUnits = strings.NewReplacer("msec", "ms", "usec", "us", "sec", "s")

// longestTime leaves room for what a time is added to.
const longestTime time.Duration = math.MaxInt64 / 2

// ParseTime parses a time: in seconds if it has no unit, as in fio, or in Go's notation, in which msec may be used
// for ms; case makes no difference. In an expression, a number without a unit is in microseconds.
func ParseTime(v string) (time.Duration, error) {
	errTime := errors.New("want a positive time, as 10, 500ms, 10s or 1m")
	if expressed(v) {
		n, err := unsigned(v, func(v string) (int64, error) {
			t, err := parseMicros(v)
			return t.Microseconds(), err
		})
		if n > longestTime.Microseconds() {
			return 0, errTime
		}
		return time.Duration(n) * time.Microsecond, err
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		if n *= float64(time.Second); !(n >= 0 && n <= float64(longestTime)) {
			return 0, errTime
		}
		return time.Duration(n), nil
	}
	v = secondsUnits.Replace(strings.ToLower(v))
	if d, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.ParseUint(d, 10, 12); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > longestTime {
		return 0, errTime
	}
	return d, nil
}

// each sets the values for reads, writes and trims, separated by commas. A missing value is the same as the
// previous one; an empty one changes nothing.
func each(v string, set func(loadgen.Op, string) error) error {
	parts := strings.Split(v, ",")
	if len(parts) > loadgen.Directions {
		return errors.New("want one value, or those of reads, of writes and of trims with commas between")
	}
	for op := range loadgen.Directions {
		part := parts[min(op, len(parts)-1)]
		if part == "" {
			continue
		}
		if err := set(loadgen.Op(op), part); err != nil {
			return err
		}
	}
	return nil
}

// openShare is the share of a size or zone that has none given.
const openShare = -1

// shareRest divides what the given shares leave of 100 percent among the parts without a share. It returns how much
// that is, and the number of those parts.
func shareRest[T any](parts []T, share func(*T) *int) (left, open int) {
	left = 100
	for i := range parts {
		if n := *share(&parts[i]); n == openShare {
			open++
		} else {
			left -= n
		}
	}
	rest, without := max(left, 0), open
	for i := range parts {
		if s := share(&parts[i]); *s == openShare {
			*s = rest / without
			rest -= *s
			without--
		}
	}
	return left, open
}

// Default parameters of distributions: fio's own.
const (
	defaultZipf   = 1.1
	defaultPareto = 0.2
)

func setDistribution(j *Job, v string) error {
	kind, parameter, given := strings.Cut(v, ":")
	d := loadgen.Distribution{Kind: kind}
	j.Zones = [loadgen.Directions][]loadgen.Zone{}
	switch kind {
	case loadgen.Zoned:
		j.Distribution = d
		return setZones(j, parameter, zoneShare)
	case zonedAbs:
		j.Distribution = loadgen.Distribution{Kind: loadgen.Zoned}
		return setZones(j, parameter, zoneSize)
	case loadgen.Normal:
		if !given {
			return errors.New("want a deviation in percent, as normal:20")
		}
	case loadgen.Zipf:
		d.Theta = defaultZipf
	case loadgen.Pareto:
		d.Theta = defaultPareto
	}
	if given {
		var err error
		if d.Theta, err = strconv.ParseFloat(parameter, 64); err != nil {
			return errNumber
		}
	}
	j.Distribution = d
	return nil
}

// zonedAbs is the kind of zones whose sizes are in bytes.
const zonedAbs = "zoned_abs"

// setZones parses zones such as 60/10:40/90: for each, its percentage of the operations and its size.
func setZones(j *Job, v string, size func(*loadgen.Zone, string) error) error {
	if v == "" {
		return errors.New("want zones, as zoned:60/10:40/90 or zoned_abs:60/1g:40/9g")
	}
	return each(v, func(op loadgen.Op, v string) error {
		var zones []loadgen.Zone
		for part := range strings.SplitSeq(v, ":") {
			var z loadgen.Zone
			percent, room, _ := strings.Cut(part, "/")
			n, err := strconv.Atoi(percent)
			if z.Percent = n; err == nil {
				err = size(&z, room)
			}
			if err != nil || z.Percent < 0 {
				return fmt.Errorf("%q is no zone: want its percentage of the operations and its size, as zoned:60/10:40/90 or zoned_abs:60/1g:40/9g", part)
			}
			zones = append(zones, z)
		}
		shareRest(zones, func(z *loadgen.Zone) *int { return &z.Share })
		j.Zones[op] = zones
		return nil
	})
}

// zoneShare parses the size of a zone in percent of the range.
func zoneShare(z *loadgen.Zone, v string) (err error) {
	if v == "" {
		z.Share = openShare
		return nil
	}
	v, _ = cutPercent(v)
	if z.Share, err = strconv.Atoi(v); z.Share < 0 {
		return errNumber
	}
	return err
}

// zoneSize parses the size of a zone in bytes.
func zoneSize(z *loadgen.Zone, v string) (err error) {
	z.Bytes, err = parseSize(v)
	return err
}

// maxPercentiles is the most that fio accepts.
const maxPercentiles = 20

func setPercentiles(j *Job, v string) error {
	var list []float64
	for part := range strings.SplitSeq(v, ":") {
		p, err := strconv.ParseFloat(part, 64)
		if err != nil || !(p >= 0 && p <= 100) {
			return fmt.Errorf("%q is no percentile: want numbers up to 100 with colons between, as 50:99:99.9", part)
		}
		list = append(list, p)
	}
	if len(list) > maxPercentiles {
		return fmt.Errorf("%d percentiles are too many: want at most %d", len(list), maxPercentiles)
	}
	slices.Sort(list) // as fio shows them; a duplicate would be a duplicate member of the JSON
	j.Percentiles = slices.Compact(list)
	return nil
}

func cutPercent(v string) (string, bool) {
	// The sign may be doubled in job files, as in those for fio that pass through printf.
	t := strings.TrimRight(v, "%")
	return t, t != v
}
