package loadgen

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// schedule says when the operations of a job with a rate are due, and which they are. It depends only on the spec
// and the clone, so two schedules of the same ones agree: the pacer keeps one to know when, and the job another to
// know what.
type schedule struct {
	spec  *Spec
	sizes sizes
	rng   *rand.Rand
	due   [ops]float64 // nanoseconds since the start of the job; below 0 for never
	step  [ops]float64 // between operations, or between bytes
}

// arrival is one operation of a schedule.
type arrival struct {
	due   int64 // nanoseconds since the start of the job
	op    Op
	bytes int
}

func newSchedule(s *Spec, clone int) *schedule {
	c := &schedule{spec: s, sizes: newSizes(s, clone), rng: rand.New(rand.NewPCG(^s.Seed, s.stream(clone)))}
	for op := range ops {
		c.due[op] = -1
		rate := cmp.Or(s.Rate[op], int64(s.RateIOPS[op]))
		if s.rated(op) {
			c.step[op] = float64(time.Second) / float64(rate)
			// Spread the clones over the first interval; otherwise all would be due at once.
			c.due[op] = c.wait(op, s.BS[op][0].Bytes) * float64(clone) / float64(s.NumJobs)
		}
	}
	return c
}

// wait returns how long after an operation the next one is due.
func (c *schedule) wait(op Op, bytes int) float64 {
	w := c.step[op]
	if c.spec.Rate[op] > 0 {
		w *= float64(bytes)
	}
	if c.spec.Poisson {
		w *= c.rng.ExpFloat64()
	}
	return w
}

// peek returns when the next operation is due.
func (c *schedule) peek() int64 { return c.at(c.first()) }

// at returns when the next operation of a direction is due. One of many bytes, at a low rate, may be due later than
// nanoseconds can say.
func (c *schedule) at(op Op) int64 { return int64(min(c.due[op], float64(endless))) }

// next returns the next operation and advances the schedule.
func (c *schedule) next() arrival {
	op := c.first()
	a := arrival{due: c.at(op), op: op, bytes: c.sizes.next(op)}
	c.due[op] += c.wait(op, a.bytes)
	return a
}

// mostExpected bounds the result for one job, so that those of many can be added: a rate may be arbitrarily high.
const mostExpected = 1 << 53

// expected returns approximately how many operations are due between the next one and then.
func (c *schedule) expected(then int64) uint64 {
	n := 0.0
	for op := range ops {
		if c.due[op] < 0 {
			continue
		}
		step := c.step[op]
		if c.spec.Rate[op] > 0 {
			step *= c.spec.BS[op].mean()
		}
		n += max(float64(then)-c.due[op], 0) / step
	}
	return uint64(min(n, mostExpected))
}

// first returns the direction that is due first.
func (c *schedule) first() Op {
	var first Op
	for op := range ops {
		if c.due[op] >= 0 && (c.due[first] < 0 || c.due[op] < c.due[first]) {
			first = op
		}
	}
	return first
}
