package loadgen

import (
	"fmt"
	"math"
	"strings"
)

// Patterns are the values of RW, as named in help and errors.
var Patterns = []string{
	"read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim", "trimwrite", "randtrimwrite",
}

// patterns maps each value of RW to its directions, and to whether a write to the same blocks follows each trim.
// One value has a second name.
var patterns = map[string]struct {
	does     [ops]bool
	rewrites bool
}{
	"read":          {does: [ops]bool{Read: true}},
	"write":         {does: [ops]bool{Write: true}},
	"rw":            {does: [ops]bool{Read: true, Write: true}},
	"readwrite":     {does: [ops]bool{Read: true, Write: true}},
	"trim":          {does: [ops]bool{Trim: true}},
	"trimwrite":     {does: [ops]bool{Trim: true, Write: true}, rewrites: true},
	"randread":      {does: [ops]bool{Read: true}},
	"randwrite":     {does: [ops]bool{Write: true}},
	"randrw":        {does: [ops]bool{Read: true, Write: true}},
	"randtrim":      {does: [ops]bool{Trim: true}},
	"randtrimwrite": {does: [ops]bool{Trim: true, Write: true}, rewrites: true},
}

// Pattern returns the option rw as users write it: RW with RunLength or Skip.
func (s *Spec) Pattern() string {
	switch {
	case s.random() && s.RunLength > 0:
		return fmt.Sprintf("%s:%d", s.RW, s.RunLength)
	case !s.random() && s.Skip != 0:
		n, unit := s.Skip, ""
		for _, larger := range []string{"k", "m", "g", "t"} {
			if n%1024 != 0 {
				break
			}
			n, unit = n/1024, larger
		}
		return fmt.Sprintf("%s:%d%s", s.RW, n, unit)
	}
	return s.RW
}

// random reports whether offsets are random.
func (s *Spec) random() bool { return strings.HasPrefix(s.RW, "rand") }

// Does reports whether the pattern has operations of that direction.
func (s *Spec) Does(op Op) bool { return patterns[s.RW].does[op] }

// rewrites reports whether a write follows each trim, to the same blocks.
func (s *Spec) rewrites() bool { return patterns[s.RW].rewrites }

// Changes reports whether the pattern changes what the device holds.
func (s *Spec) Changes() bool { return s.Does(Write) || s.Does(Trim) }

// Draws reports whether operations of that direction have sizes, offsets and times of their own, rather than
// following others or having no share of the mix.
func (s *Spec) Draws(op Op) bool {
	switch {
	case !s.Does(op), op == Write && s.rewrites():
		return false
	case s.Does(Read) && s.Does(Write):
		return op == Read && s.RWMixRead > 0 || op == Write && s.RWMixRead < 100
	}
	return true
}

// rated reports whether operations of that direction are due at set times.
func (s *Spec) rated(op Op) bool { return s.Draws(op) && (s.Rate[op] > 0 || s.RateIOPS[op] > 0) }

// hasRate reports whether operations of any direction are due at set times.
func (s *Spec) hasRate() bool {
	for op := range ops {
		if s.rated(op) {
			return true
		}
	}
	return false
}

// Paced reports whether all operations are due at set times.
func (s *Spec) Paced() bool {
	for op := range ops {
		if s.Draws(op) && !s.rated(op) {
			return false
		}
	}
	return true
}

// largestBlock returns the size of the largest operation, in bytes.
func (s *Spec) largestBlock() (n int) {
	for op := range ops {
		if s.Draws(op) {
			n = max(n, s.BS[op].largest())
		}
	}
	return n
}

// LargestTransfer returns the size of the largest operation that moves data; 0 if none does.
func (s *Spec) LargestTransfer() (n int) {
	for op := range ops {
		if s.Draws(op) && (op != Trim || s.rewrites()) {
			n = max(n, s.BS[op].largest())
		}
	}
	return n
}

// LargestTrim returns the size of the largest trim; 0 if there is none.
func (s *Spec) LargestTrim() int {
	if !s.Does(Trim) {
		return 0
	}
	return s.BS[Trim].largest()
}

// smallestBlock returns the size of the smallest operation, in bytes.
func (s *Spec) smallestBlock() int {
	n := s.largestBlock()
	for op := range ops {
		for _, sh := range s.BS[op] {
			if s.Draws(op) {
				n = min(n, sh.Bytes)
			}
		}
	}
	return n
}

// alignment returns the number of bytes that offsets of that direction are multiples of.
func (s *Spec) alignment(op Op) int64 {
	if s.random() && s.Align[op] > 0 {
		return int64(s.Align[op])
	}
	return smallest(s.BS[op])
}

// unit returns the smallest alignment of all directions.
func (s *Spec) unit() int64 {
	n := int64(math.MaxInt64)
	for op := range ops {
		if s.Draws(op) {
			n = min(n, s.alignment(op))
		}
	}
	return n
}
