package simulation

import "testing"

// TestLinearize: the checker accepts what NVMe allows, and nothing else.
func TestLinearize(t *testing.T) {
	newOp := func(a action, host int, value uint64) *op { return &op{action: a, host: host, value: value} }
	w1, w2, again := newOp(write, 1, 1), newOp(write, 2, 2), newOp(read, 1, 1)
	r0, r1, r2 := newOp(read, 3, 0), newOp(read, 3, 1), newOp(read, 3, 2)
	failed := &op{action: write, host: 1, value: 1, unknown: true}
	swap12 := &op{action: swap, host: 3, expected: 1, value: 2}
	not1 := &op{action: differs, host: 3, expected: 1}
	began := func(o *op) event { return event{began: o} }
	ended := func(o *op) event { return event{ended: o} }
	denied := func(d denial) event { return event{denied: map[int]denial{1: d}} }
	over := event{over: true}
	for _, c := range []struct {
		name   string
		events []event
		ok     bool
	}{
		{"read what was written", []event{began(w1), ended(w1), began(r1), ended(r1)}, true},
		{"read what isn't there any more", []event{began(w1), ended(w1), began(r0), ended(r0)}, false},
		{"read what a write under way will leave", []event{began(w1), began(r1), ended(r1), ended(w1)}, true},
		{"read what was there when a write began", []event{began(w1), began(r0), ended(r0), ended(w1)}, true},
		{"a value that goes away", []event{began(w1), began(r1), ended(r1), began(r0), ended(r0), ended(w1)}, false},
		{"a write that is sent again", []event{began(w1), began(r1), ended(r1), began(w2), ended(w2), began(r2), ended(r2), began(again), ended(again), ended(w1)}, true},
		{"a late write", []event{began(w1), ended(w1), began(w2), ended(w2), began(r1), ended(r1)}, false},
		{"a failed write that is late", []event{began(failed), ended(failed), began(w2), ended(w2), began(r1), ended(r1)}, true},
		{"a failed write that is too late", []event{began(failed), ended(failed), began(w2), ended(w2), over, began(r2), ended(r2), began(r1), ended(r1)}, false},
		{"a failed write that is over", []event{began(failed), ended(failed), over, began(r1), ended(r1)}, true},
		{"a swap", []event{began(w1), ended(w1), began(swap12), ended(swap12), began(r2), ended(r2)}, true},
		{"a swap of what isn't there", []event{began(swap12), ended(swap12)}, false},
		{"no swap of what isn't there", []event{began(not1), ended(not1)}, true},
		{"no swap of what is there", []event{began(w1), ended(w1), began(not1), ended(not1)}, false},
		{"a write that is denied", []event{denied(denial{writes: true}), began(w1), ended(w1)}, false},
		{"a write that began before that", []event{began(w1), denied(denial{writes: true}), ended(w1)}, true},
		{"a write that was aborted", []event{began(failed), denied(denial{writes: true, old: true}), began(r0), ended(r0), ended(failed), began(r1), ended(r1)}, false},
		{"a write that is aborted too late", []event{began(failed), began(r1), ended(r1), denied(denial{writes: true, old: true}), ended(failed)}, true},
		{"a read that is denied", []event{denied(denial{reads: true}), began(again), ended(again)}, false},
	} {
		for i, e := range c.events {
			if e.began != nil {
				e.began.at = i
			}
		}
		failed.value = 1 // linearize may have replaced it
		if _, err := linearize(c.events, map[uint64]bool{0: true}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
