package host

import "time"

// ticksPerTimeout is the resolution of a command's age: a command expires between one timeout and one timeout plus
// an eighth after its submission.
const ticksPerTimeout = 8

// timeouts watches the age of the outstanding commands with one timer per queue, and without reading the clock for
// each command: each command remembers the tick of its submission. The timer runs only while commands are
// outstanding that may expire. Queue.mu protects the fields.
type timeouts struct {
	q      *Queue
	every  time.Duration
	timer  *time.Timer
	tick   uint32
	timed  int // outstanding commands that may expire
	armed  bool
	halted bool
}

func (t *timeouts) init(q *Queue, timeout time.Duration) {
	t.q, t.every = q, max(timeout/ticksPerTimeout, 1)
}

// started counts a submitted request and returns its tick.
func (t *timeouts) started(r *Request) uint32 {
	if !r.unlimited {
		t.timed++
		if !t.armed && !t.halted {
			t.armed = true
			if t.timer == nil {
				t.timer = time.AfterFunc(t.every, t.fire)
			} else {
				t.timer.Reset(t.every)
			}
		}
	}
	return t.tick
}

func (t *timeouts) finished(r *Request) {
	if !r.unlimited {
		t.timed--
	}
}

func (t *timeouts) stop() {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.halted = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// overdue is a command that expired.
type overdue struct {
	cid   uint16
	again bool
}

func (t *timeouts) fire() {
	q := t.q
	q.mu.Lock()
	if t.halted || t.timed == 0 {
		t.armed = false
		q.mu.Unlock()
		return
	}
	t.tick++
	var late []overdue
	for i := range q.slots {
		s := &q.slots[i]
		if s.req == nil || s.req.unlimited || t.tick-s.tick <= ticksPerTimeout {
			continue
		}
		late = append(late, overdue{s.cid, s.aborted})
		s.aborted, s.tick = true, t.tick
	}
	t.timer.Reset(t.every)
	q.mu.Unlock()
	for _, o := range late {
		q.counters.Timeouts.Add(1)
		q.owner.expired(q, o.cid, o.again)
	}
}
