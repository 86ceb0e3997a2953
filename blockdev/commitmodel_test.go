package blockdev

import (
	"errors"
	"testing"
)

// commitModel is a write, and flushes one after another, that take their steps in some order. The disk may lose, once,
// what it has accepted, and tells the sync that runs then.
type commitModel struct {
	c       commits
	choices []int // of the model's steps; those behind the end are 0
	made    int   // choices that were made
	most    []int // how many there were to choose from

	cached, lost bool // the write's data
	told         bool // the write was acknowledged
	failed       bool // a sync
}

var errLostOnce = errors.New("the system tells once")

// choose makes the next choice.
func (m *commitModel) choose(n int) int {
	if m.made == len(m.choices) {
		m.choices = append(m.choices, 0)
	}
	m.most = append(m.most, n)
	m.made++
	return m.choices[m.made-1]
}

// write returns the steps of a write.
func (m *commitModel) write() []func() {
	r, answers := &Request{Op: OpWrite}, false
	return []func(){
		func() { m.c.begin(r) },
		func() { m.cached = true },
		func() { answers = m.c.answers(r) },
		func() { m.told = answers || m.c.lost(r) == nil },
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
				*err = m.c.lost(r)
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
	orders := 0
	for choices := []int{}; ; orders++ {
		m := &commitModel{choices: choices}
		if problem := m.run(); problem != "" {
			t.Fatalf("%v: %s", m.choices, problem)
		}
		choices = m.choices[:m.made]
		for len(choices) > 0 && choices[len(choices)-1]+1 == m.most[len(choices)-1] {
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			break
		}
		choices[len(choices)-1]++
	}
	t.Log(orders, "orders")
}
