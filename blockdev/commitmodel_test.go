package blockdev

import (
	"errors"
	"slices"
	"testing"
)

// commitModel is a write, and flushes one after another, that take their steps in some order. The disk may lose, once,
// what it has accepted, and tells the sync that runs then.
type commitModel struct {
	c commits
	choices

	cached, lost bool // the write's data
	told         bool // the write was acknowledged
	failed       bool // a sync
}

var errLostOnce = errors.New("the system tells once")

// choices are those of a model's run.
type choices struct {
	of   []int // those behind the end are 0
	made int
	most []int // how many there were to choose from
}

// choose makes the next choice.
func (c *choices) choose(n int) int {
	if c.made == len(c.of) {
		c.of = append(c.of, 0)
	}
	c.most = append(c.most, n)
	c.made++
	return c.of[c.made-1]
}

// tryAll calls run with all choices that it can make, until it returns a problem.
func tryAll(t *testing.T, run func(c choices) (problem string, made choices)) {
	t.Helper()
	next := []int{}
	for runs := 1; ; runs++ {
		problem, c := run(choices{of: next})
		if problem != "" {
			t.Fatalf("%v: %s", c.of, problem)
		}
		next = c.of[:c.made]
		for len(next) > 0 && next[len(next)-1]+1 == c.most[len(next)-1] {
			next = next[:len(next)-1]
		}
		if len(next) == 0 {
			t.Log(runs, "orders")
			return
		}
		next[len(next)-1]++
	}
}

// write returns the steps of a write.
func (m *commitModel) write() []func() {
	r, answers := &Request{Op: OpWrite}, false
	return []func(){
		func() { m.c.begin(r) },
		func() { m.cached = true },
		func() { answers = m.c.answers(r) },
		func() {
			m.told = answers
			if !answers {
				_, err := m.c.lost(r)
				m.told = err == nil
			}
		},
		func() {
			if answers {
				m.c.answered()
			}
		},
	}
}

// flush returns the steps of a flush, which report to problem what it promises but isn't so.
func (m *commitModel) flush(problem *string, err *error) []func() {
	r, covers := &Request{Op: OpFlush}, false
	return []func(){
		func() {
			m.c.begin(r)
			covers = m.told
		},
		m.c.settle,
		func() {
			if *err = nil; !m.failed && m.choose(2) == 1 {
				m.failed, m.lost, *err = true, m.cached, errLostOnce
				m.c.fail(*err)
			}
			m.cached = false
		},
		func() {
			if *err == nil {
				var tells bool
				if tells, *err = m.c.lost(r); tells {
					m.c.epoch.Add(1)
				}
			}
			switch {
			case *err != nil && !m.failed:
				*problem = "a flush fails for no reason"
			case *err != nil && covers:
				m.lost = false // its loss is known
			case *err == nil && covers && m.lost:
				*problem = "a flush promises what was lost"
			}
		},
	}
}

// run goes through one order of the steps, and then lets two more flushes run, of which the second must succeed.
func (m *commitModel) run() (problem string) {
	var err error
	write := m.write()
	var flushes []func()
	for range 3 {
		flushes = append(flushes, m.flush(&problem, &err)...)
	}
	for len(write) > 0 || len(flushes) > 0 {
		next := &write
		if len(write) == 0 || len(flushes) > 0 && m.choose(2) == 1 {
			next = &flushes
		}
		(*next)[0]()
		*next = (*next)[1:]
	}
	m.failed = true
	for range 2 {
		for _, step := range m.flush(&problem, &err) {
			step()
		}
	}
	if problem == "" && err != nil {
		problem = "flushes go on failing"
	}
	return problem
}

// TestCommitOrders: in whichever order the steps of a write and of three flushes are taken, and whichever sync fails,
// a flush that succeeds makes the write durable if that was acknowledged before; and no flush fails without a reason.
func TestCommitOrders(t *testing.T) {
	tryAll(t, func(c choices) (string, choices) {
		m := &commitModel{choices: c}
		return m.run(), m.choices
	})
}

// flushModel is flushes that overlap, after a write was acknowledged whose data may get lost, once: a sync fails, or the
// disk's part of a write with RWF_DSYNC.
type flushModel struct {
	c commits
	choices
	steps [][]func() // of each party

	durable, lost bool
	known         bool // a flush has answered that the data is lost
	failing       bool // the last one
	problem       string
}

// step lets a party take a step. It returns false if none has one left or, if stop is set, by choice.
func (m *flushModel) step(stop bool) bool {
	m.steps = slices.DeleteFunc(m.steps, func(left []func()) bool { return len(left) == 0 })
	n := len(m.steps)
	if n == 0 || stop && m.choose(2) == 1 {
		return false
	}
	left := &m.steps[m.choose(n)]
	next := (*left)[0]
	*left = (*left)[1:]
	next()
	return true
}

// others take any number of steps.
func (m *flushModel) others() {
	for m.step(true) {
	}
}

// flush returns the steps of a flush. During the second, others take theirs wherever commits.run calls back.
func (m *flushModel) flush() []func() {
	r, knew := &Request{Op: OpFlush}, false
	r.Complete = func(r *Request) {
		switch {
		case r.Err == nil && m.lost && !knew:
			m.problem = "a flush promises what was lost, before anybody knew that"
		case r.Err != nil && !m.lost:
			m.problem = "a flush fails for no reason"
		}
		m.failing = r.Err != nil
		m.known = m.known || m.failing
	}
	return []func(){
		func() { m.c.begin(r); knew = m.known },
		func() {
			if m.c.join(r) {
				m.c.run(r)
			}
		},
	}
}

func (m *flushModel) sync() error {
	m.others()
	if !m.durable && !m.lost && m.choose(2) == 1 {
		m.lost = true
		return errLostOnce
	}
	m.durable = !m.lost
	return nil
}

// lose is the failure of a write with RWF_DSYNC.
func (m *flushModel) lose() {
	if !m.durable && !m.lost {
		m.lost = true
		m.c.fail(errLostOnce)
	}
}

// run goes through one order of the steps, and then lets two more flushes run, of which the second must succeed.
func (m *flushModel) run() string {
	m.c.init(m.sync, func(r *Request, err error) {
		m.others()
		r.End(err)
		m.others()
	})
	m.steps = [][]func(){m.flush(), m.flush(), m.flush(), {m.lose}}
	for m.step(false) {
	}
	for range 2 {
		m.failing = false
		m.steps = [][]func(){m.flush()}
		for m.step(false) {
		}
	}
	if m.problem == "" && m.failing {
		m.problem = "flushes go on failing"
	}
	return m.problem
}

// TestFlushOrders: in whichever order three flushes are submitted and answered, one that succeeds was submitted after
// another had answered that data was lost, if any was.
func TestFlushOrders(t *testing.T) {
	tryAll(t, func(c choices) (string, choices) {
		m := &flushModel{choices: c}
		return m.run(), m.choices
	})
}
