package simulation

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// A register is one block of a volume. What hosts did with it and what they learned is its history, which is checked
// afterwards for linearizability: each operation must have taken effect at some moment between its beginning and its
// end.
//
// Two rules are NVMe's own. A write may take effect several times before its end, because a host with several paths
// sends it again when a path is lost: what another host writes meanwhile may be overwritten. And a write that failed
// may take effect until it is sure that nothing of it is left, or never.

// action is what an operation does with a register.
type action uint8

const (
	read    action = iota // value was there
	write                 // value is there from then on
	swap                  // expected was there, and value is from then on (a fused Compare and Write)
	differs               // expected wasn't there (such a pair that didn't match)
)

func (a action) String() string { return [...]string{"read", "write", "swap", "differs from"}[a] }

// op is one operation on one register.
type op struct {
	action
	host            int
	value, expected uint64
	unknown         bool // it failed: whether it took effect isn't known
	slot            int  // of the checker
	at              int  // in the register's history, of its beginning
}

// denial says what a reservation keeps a host from.
type denial struct {
	writes, reads bool
	old           bool // what was begun before, too (Preempt and Abort)
}

// event is one entry of a history. Exactly one of began, ended, denied and over is set.
type event struct {
	when   time.Duration
	began  *op
	ended  *op
	denied map[int]denial // by host: from now on, instead of what was denied before
	over   bool           // nothing is left of operations that failed
}

// history is what happened to all registers of one volume.
type history struct {
	mu        sync.Mutex
	began     time.Time
	registers [][]event
	values    []map[uint64]bool // what each register may have held when its events were last checked
}

func newHistory(blocks int) *history {
	h := &history{began: time.Now(), registers: make([][]event, blocks), values: make([]map[uint64]bool, blocks)}
	for i := range h.values {
		h.values[i] = map[uint64]bool{0: true}
	}
	return h
}

func (h *history) add(block int, e event) {
	e.when = time.Since(h.began)
	h.registers[block] = append(h.registers[block], e)
}

// begin notes the beginning of operations on consecutive registers.
func (h *history) begin(first int, ops []*op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range ops {
		o.at = len(h.registers[first+i])
		h.add(first+i, event{began: o})
	}
}

// end notes their end.
func (h *history) end(first int, ops []*op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range ops {
		h.add(first+i, event{ended: o})
	}
}

// deny notes for all registers what hosts may not do from now on.
func (h *history) deny(hosts map[int]denial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for b := range h.registers {
		h.add(b, event{denied: hosts})
	}
}

// settled notes that nothing is left of operations that failed.
func (h *history) settled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for b := range h.registers {
		h.add(b, event{over: true})
	}
}

// check checks all that has happened since the last check, and forgets it. Each register must have been read since the
// last call of settled.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for b := range h.registers {
		values, err := linearize(h.registers[b], h.values[b])
		if err != nil {
			return fmt.Errorf("block %d: %w", b, err)
		}
		// What was denied still is.
		var last []event
		for _, e := range slices.Backward(h.registers[b]) {
			if e.denied != nil {
				last = []event{{when: e.when, denied: e.denied}}
				break
			}
		}
		h.values[b], h.registers[b] = values, last
	}
	return nil
}

// state is one way in which a register may have come to hold a value.
type state struct {
	value uint64
	done  uint64 // the operations under way, by slot, that have taken effect
}

// checker follows all the states that a register may be in.
type checker struct {
	states map[state]bool
	open   []*op           // under way, whose outcome is known, by slot
	ghosts []*op           // that failed
	seen   map[uint64]bool // values that somebody found
	denied map[int]denial
	since  int // when denied was set
}

// linearize returns the values that a register may hold after events, if it held one of values before.
func linearize(events []event, values map[uint64]bool) (map[uint64]bool, error) {
	c := checker{states: map[state]bool{}, seen: map[uint64]bool{}}
	for _, e := range events {
		if o := e.ended; o != nil && !o.unknown {
			c.seen[o.value], c.seen[o.expected] = true, true
		}
	}
	for v := range values {
		c.states[state{value: v}] = true
	}
	for i, e := range events {
		switch {
		case e.began != nil:
			c.begin(e.began)
		case e.ended != nil:
			if !c.end(e.ended) {
				return nil, fmt.Errorf("not linearizable:\n%s", tell(events[:i+1]))
			}
		case e.over:
			c.spread()
			c.ghosts = nil
		default:
			c.spread() // with what was allowed until now
			c.denied, c.since = e.denied, i
		}
	}
	c.spread()
	left := map[uint64]bool{}
	for s := range c.states {
		left[s.value] = true
	}
	return left, nil
}

func (c *checker) begin(o *op) {
	if o.unknown {
		c.haunt(o)
		return
	}
	o.slot = slices.Index(c.open, nil)
	if o.slot < 0 {
		o.slot = len(c.open)
		c.open = append(c.open, nil)
	}
	if o.slot >= 64 {
		panic("too many operations at once")
	}
	c.open[o.slot] = o
}

// haunt notes an operation that failed. Values that nobody found may as well be one, and the first of a host's writes
// of that may do what later ones may: otherwise there would be too many states.
func (c *checker) haunt(o *op) {
	switch {
	case o.action == read:
		return
	case !c.seen[o.value]:
		o.value = unseen
		same := func(g *op) bool { return g.action == write && g.value == unseen && g.host == o.host }
		if o.action == write && slices.ContainsFunc(c.ghosts, same) {
			return
		}
	}
	c.ghosts = append(c.ghosts, o)
}

// end keeps the states in which o has taken effect, and reports whether there are any.
func (c *checker) end(o *op) bool {
	if o.unknown {
		return true // it may still take effect
	}
	c.spread()
	kept := map[state]bool{}
	for s := range c.states {
		if s.done&(1<<o.slot) != 0 {
			s.done &^= 1 << o.slot
			kept[s] = true
		}
	}
	c.states, c.open[o.slot] = kept, nil
	return len(kept) > 0
}

// spread adds all states that the operations under way may lead to.
func (c *checker) spread() {
	todo := make([]state, 0, len(c.states))
	for s := range c.states {
		todo = append(todo, s)
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		try := func(o *op, bit uint64) {
			if next, ok := c.apply(s, o, bit); ok && !c.states[next] {
				c.states[next] = true
				todo = append(todo, next)
			}
		}
		for _, o := range c.open {
			if o != nil {
				try(o, 1<<o.slot)
			}
		}
		for _, o := range c.ghosts {
			try(o, 0)
		}
	}
}

// apply returns the state after o has taken effect in s, if it may.
func (c *checker) apply(s state, o *op, bit uint64) (state, bool) {
	again := s.done&bit != 0
	d := c.denied[o.host]
	if !d.old && o.at < c.since {
		d = denial{}
	}
	switch o.action {
	case read:
		if s.value != o.value || d.reads {
			return s, false
		}
	case differs:
		if s.value == o.expected || d.reads {
			return s, false
		}
	case write:
		if d.writes {
			return s, false
		}
		s.value = o.value
	case swap:
		if s.value != o.expected || again || d.writes {
			return s, false
		}
		s.value = o.value
	}
	s.done |= bit
	return s, true
}

// tell lists the last events of a history.
func tell(events []event) string {
	const most = 60
	var b strings.Builder
	for _, e := range events[max(0, len(events)-most):] {
		fmt.Fprintf(&b, "  %12v ", e.when)
		switch {
		case e.began != nil:
			fmt.Fprintf(&b, "host %d begins %s", e.began.host, e.began)
		case e.ended != nil && e.ended.unknown:
			fmt.Fprintf(&b, "host %d fails to %s", e.ended.host, e.ended)
		case e.ended != nil:
			fmt.Fprintf(&b, "host %d has done %s", e.ended.host, e.ended)
		case e.over:
			b.WriteString("nothing is left of what failed")
		default:
			fmt.Fprintf(&b, "denied: %+v", e.denied)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (o *op) String() string {
	switch o.action {
	case swap:
		return fmt.Sprintf("swap %#x for %#x", o.expected, o.value)
	case differs:
		return fmt.Sprintf("differs from %#x", o.expected)
	}
	return fmt.Sprintf("%v %#x", o.action, o.value)
}

// A block says which write filled it. torn is what is read where a block isn't whole, and unseen stands for values that
// nobody read.
const (
	torn   = math.MaxUint64
	unseen = torn - 1
)

// fill makes the content of a block. The value 0 stands for zeroes.
func fill(p []byte, block int, value uint64) {
	if value == 0 {
		clear(p)
		return
	}
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], value^uint64(block)<<48^uint64(i)<<32)
	}
}

// valueOf returns which write filled a block.
func valueOf(p []byte, block int) uint64 {
	first := binary.LittleEndian.Uint64(p)
	zero := first == 0
	value := first ^ uint64(block)<<48
	for i := 0; i < len(p); i += 8 {
		word := binary.LittleEndian.Uint64(p[i:])
		if zero && word != 0 || !zero && word != value^uint64(block)<<48^uint64(i)<<32 {
			return torn
		}
	}
	if zero {
		return 0
	}
	return value
}
