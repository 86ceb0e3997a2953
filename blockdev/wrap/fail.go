package wrap

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Rule says which requests fail, and how. The zero Op means all operations.
type Rule struct {
	Op blockdev.Op
	// First and Last are the range of blocks that a request must touch, if Blocks is set.
	Blocks      bool
	First, Last int64
	// Percent of the requests fail, if Blocks isn't set.
	Percent float64
	// Kind is one of the kinds of blockdev; nil means ErrMedium.
	Kind error
}

// errRule is the cause in the errors made by rules.
var errRule = errors.New("a rule says so")

// Fail is a volume some of whose requests fail. Those are not executed.
type Fail struct {
	layer
	rules []Rule
}

// NewFail makes requests of v fail by the first rule that applies.
func NewFail(v blockdev.Volume, rules ...Rule) *Fail {
	f := &Fail{rules: rules}
	mode := "failing"
	for _, r := range rules {
		mode += " " + r.String()
	}
	f.layer = newLayer(v, mode, func(*call) {}, f.back)
	return f
}

// Submit fails r or passes it on.
func (f *Fail) Submit(r *blockdev.Request) {
	c := f.enter(r)
	if c == nil {
		return
	}
	if err := f.verdict(r); err != nil {
		f.leave(c, err)
		return
	}
	f.below.Submit(&c.down)
}

func (f *Fail) back(c *call) { f.leave(c, c.down.Err) }

// verdict returns the error of the first rule that applies. An invalid request is left to the volume.
func (f *Fail) verdict(r *blockdev.Request) error {
	for i := range f.rules {
		rule := &f.rules[i]
		if rule.Op != 0 && rule.Op != r.Op {
			continue
		}
		offset, holds := r.Offset, rand.Float64()*100 < rule.Percent
		if rule.Blocks {
			offset, holds = f.touches(rule, r)
		}
		if !holds {
			continue
		}
		info := f.below.Info()
		if invalid := blockdev.Check(&info, info.Size, r); invalid != nil {
			return nil //nolint:nilerr // the volume says so itself
		}
		return info.Fail(r.Op, offset, cmp.Or(rule.Kind, blockdev.ErrMedium), errRule)
	}
	return nil
}

// touches reports whether r touches blocks of the rule, and where the first of them is.
func (f *Fail) touches(rule *Rule, r *blockdev.Request) (int64, bool) {
	if r.Op == blockdev.OpFlush || r.Length <= 0 {
		return 0, false
	}
	bs := int64(f.below.Info().BlockSize)
	first, last := r.Offset/bs, (r.Offset+r.Length-1)/bs
	if last < rule.First || first > rule.Last {
		return 0, false
	}
	return max(first, rule.First) * bs, true
}

var ruleOps = map[string]blockdev.Op{
	"any": 0, "read": blockdev.OpRead, "write": blockdev.OpWrite, "flush": blockdev.OpFlush,
	"discard": blockdev.OpDiscard, "zeroes": blockdev.OpWriteZeroes,
}

var ruleKinds = map[string]error{
	"medium": blockdev.ErrMedium, "capacity": blockdev.ErrCapacity, "readonly": blockdev.ErrReadOnly,
	"gone": blockdev.ErrGone, "busy": blockdev.ErrBusy,
}

// ParseRules parses rules as people write them: "read@100-200", "write%0.5=capacity", "any%1", separated by commas.
func ParseRules(s string) ([]Rule, error) {
	var rules []Rule
	for text := range strings.SplitSeq(s, ",") {
		r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w; write OP@BLOCK, OP@FIRST-LAST or OP%%PERCENT, "+
				"OP being any, read, write, flush, discard or zeroes, and =medium, =capacity, =readonly, =gone or =busy after it", text, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(s string) (r Rule, err error) {
	s, kind, named := strings.Cut(s, "=")
	if named {
		if r.Kind = ruleKinds[kind]; r.Kind == nil {
			return r, fmt.Errorf("no kind of error is called %q", kind)
		}
	}
	i := strings.IndexAny(s, "@%")
	if i < 0 {
		return r, errors.New("it has neither blocks nor a rate")
	}
	op, known := ruleOps[s[:i]]
	if !known {
		return r, fmt.Errorf("no operation is called %q", s[:i])
	}
	r.Op = op
	if s[i] == '%' {
		r.Percent, err = strconv.ParseFloat(s[i+1:], 64)
		if err != nil || !(r.Percent >= 0 && r.Percent <= 100) {
			return r, errors.New("the rate is no percentage")
		}
		return r, nil
	}
	first, last, isRange := strings.Cut(s[i+1:], "-")
	if !isRange {
		last = first
	}
	r.Blocks = true
	r.First, err = strconv.ParseInt(first, 10, 64)
	if err == nil {
		r.Last, err = strconv.ParseInt(last, 10, 64)
	}
	if err != nil || r.Last < r.First { // neither can be negative: the sign would separate them
		return r, errors.New("the blocks are no range")
	}
	return r, nil
}

// String returns the rule in the form that ParseRules reads.
func (r Rule) String() string {
	var b strings.Builder
	for name, op := range ruleOps {
		if op == r.Op {
			b.WriteString(name)
		}
	}
	if r.Blocks {
		fmt.Fprintf(&b, "@%d-%d", r.First, r.Last)
	} else {
		fmt.Fprintf(&b, "%%%v", r.Percent)
	}
	for name, kind := range ruleKinds {
		if kind == r.Kind { //nolint:errorlint // kinds are compared as such
			b.WriteString("=" + name)
		}
	}
	return b.String()
}
