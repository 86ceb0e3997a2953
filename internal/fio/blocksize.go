package fio

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// sizing is an option that gives the sizes of operations. As in fio, the highest of those given applies, in whatever
// order they were given: a bs doesn't replace a bsrange, and neither replaces a bssplit.
type sizing int

const (
	bySize  sizing = iota // bs
	byRange               // bsrange
	bySplit               // bssplit
)

// setSizes sets the sizes of operations of one direction, unless a higher option has set them.
func (j *Job) setSizes(op loadgen.Op, by sizing, sizes loadgen.Split) {
	if by >= j.sized[op] {
		j.BS[op], j.sized[op] = sizes, by
	}
}

func setBlockSize(j *Job, v string) error {
	return each(v, func(op loadgen.Op, v string) error {
		n, err := parseSize(v)
		if _, _, isRange := cutRange(v); isRange {
			return errors.New("want a size; bsrange takes a range, as 4k-64k")
		}
		j.setSizes(op, bySize, loadgen.Fixed(int(n)))
		return err
	})
}

// setBlockRange parses a range such as 4k-64k.
func setBlockRange(j *Job, v string) error {
	return each(v, func(op loadgen.Op, v string) error {
		least, most, ok := cutRange(v)
		if !ok {
			return errors.New("want two sizes, as 4k-64k")
		}
		if least < 1 || most < least {
			return errors.New("want the smaller size first, as 4k-64k")
		}
		j.setSizes(op, byRange, loadgen.Range(int(least), int(most)))
		return nil
	})
}

// cutRange parses two sizes separated by a minus sign, or as in fio a colon, outside of any expression.
func cutRange(v string) (least, most int64, ok bool) {
	nesting := 0
	for i, c := range v {
		switch {
		case c == '(':
			nesting++
		case c == ')':
			nesting--
		case (c == '-' || c == ':') && nesting == 0:
			var errs [2]error
			least, errs[0] = parseSize(v[:i])
			most, errs[1] = parseSize(v[i+1:])
			return least, most, errs[0] == nil && errs[1] == nil
		}
	}
	return 0, 0, false
}

// setSplit parses a split such as 4k/70:64k/30. Sizes without a percentage share the rest.
func setSplit(j *Job, v string) error {
	return each(v, func(op loadgen.Op, v string) error {
		var s loadgen.Split
		for part := range strings.SplitSeq(v, ":") {
			size, share, _ := strings.Cut(part, "/")
			n, err := parseSize(size)
			if err != nil {
				return err
			}
			percent := openShare
			if share != "" {
				if percent, err = strconv.Atoi(share); err != nil || percent < 0 || percent > 100 {
					return fmt.Errorf("%q is no share: want a percentage, as 4k/70:64k/30", share)
				}
			}
			s = append(s, loadgen.Share{Bytes: int(n), Percent: percent})
		}
		if left, open := shareRest(s, func(p *loadgen.Share) *int { return &p.Percent }); left < 0 || left > 0 && open == 0 {
			return fmt.Errorf("the shares make %d percent, want 100", 100-left)
		}
		j.setSizes(op, bySplit, s)
		return nil
	})
}
