package loadgen

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// think is the state of a job's rests between operations (Spec.ThinkTime).
type think struct {
	ios     int   // operations begun, or ended, since the last rest
	ended   int64 // nanoseconds: when the last rest was over
	state   thinkState
	filling bool        // operations are being started: the rest waits for that too
	timer   *time.Timer // of a rest that is no nap
}

// thinkState is where a job is between two rests. In all states but the first the job is held.
type thinkState int

const (
	thinkNot  thinkState = iota
	thinkDue             // no more operations begin until the outstanding ones have ended
	thinkRest            // no operations begin while timer runs
)

// add counts an operation, if it is to be counted now. Called with mu held.
func (t *think) add(now bool) {
	if now {
		t.ios++
	}
}

// tires reports whether there have been so many operations that a rest comes before the next one, if there is one.
// Called with mu held.
func (j *job) tires() bool {
	s := j.task.spec
	return s.ThinkTime > 0 && j.think.ios >= max(s.ThinkIOs, 1)
}

// thinks reports whether a rest comes before the next operation of io. A plan counts a trim and the write that follows
// it as one operation, so there is none between them. Called with mu held.
func (j *job) thinks(io *IO) bool {
	switch rewrites := j.rewrites(io); {
	case !j.tires(), rewrites && j.planned(), !rewrites && (j.left <= 0 || j.quota <= 0):
		return false
	}
	if j.think.state == thinkNot {
		j.think.state, j.held = thinkDue, true
	}
	return true
}

// settle begins a rest that is due if nothing is outstanding any more. Called with mu held.
func (j *job) settle() {
	t := &j.think
	if t.state == thinkDue && j.busy == 0 && !t.filling {
		t.state = thinkRest
		if d, spin := j.task.spec.ThinkTime, j.task.spec.ThinkSpin; d < late || spin > 0 {
			go j.nap(d, spin)
		} else {
			t.timer = time.AfterFunc(d, j.wake)
		}
	}
}

// late is how much later than they should the runtime's own timers may go off.
const late = time.Millisecond

// nap is a rest shorter than that, on the kernel's high-resolution timers, or one that begins by occupying a processor,
// as a program does with what it has read.
func (j *job) nap(d, spin time.Duration) {
	began := nanotime()
	for nanotime()-began < int64(spin) && !j.task.stop.Load() {
	}
	ts := unix.NsecToTimespec(max(int64(d)-(nanotime()-began), 0))
	for errors.Is(unix.Nanosleep(&ts, &ts), unix.EINTR) {
	}
	j.wake()
}

// wake ends the rest, unless the job was ended in the meantime.
func (j *job) wake() {
	j.mu.Lock()
	t := &j.think
	if t.state != thinkRest {
		j.mu.Unlock()
		return
	}
	t.state, t.ios, t.ended = thinkNot, 0, nanotime()
	if j.planned() {
		j.mu.Unlock()
		j.arrive() // the pacer saw no place for what was due meanwhile
		return
	}
	t.filling = true
	j.rewritesFirst()
	j.mu.Unlock()
	j.fill()
}

// stop prevents further rests, and the end of the current one. Called with mu held.
func (t *think) stop() {
	t.state = thinkNot
	if t.timer != nil {
		t.timer.Stop()
	}
}
