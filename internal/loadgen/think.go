package loadgen

import "time"

// think is what a job has of rests between its operations (Spec.ThinkTime).
type think struct {
	begun   int // operations since the last rest
	state   thinkState
	filling bool // operations are being started: the rest waits for that, too
	timer   *time.Timer
}

// thinkState is where a job is between two rests. In all but the first the job is held.
type thinkState int

const (
	thinkNot  thinkState = iota
	thinkDue             // no more operations begin until those under way have ended
	thinkRest            // and then none while timer runs
)

// thinks reports whether a rest comes before the next operation. Called with mu held.
func (j *job) thinks() bool {
	s := j.task.spec
	if s.ThinkTime == 0 || j.think.begun < max(s.ThinkIOs, 1) || j.left <= 0 || j.quota <= 0 {
		return false
	}
	if j.think.state == thinkNot {
		j.think.state, j.held = thinkDue, true
	}
	return true
}

// settle begins the rest that is due, where nothing is under way any more. Called with mu held.
func (j *job) settle() {
	t := &j.think
	if t.state == thinkDue && j.busy == 0 && !t.filling {
		t.state = thinkRest
		t.timer = time.AfterFunc(j.task.spec.ThinkTime, j.wake)
	}
}

// wake ends the rest, unless the job was ended meanwhile.
func (j *job) wake() {
	j.mu.Lock()
	t := &j.think
	if t.state != thinkRest {
		j.mu.Unlock()
		return
	}
	t.state, t.begun, t.filling = thinkNot, 0, true
	j.mu.Unlock()
	j.fill()
}

// stop has no rest come, or end, any more. Called with mu held.
func (t *think) stop() {
	t.state = thinkNot
	if t.timer != nil {
		t.timer.Stop()
	}
}
