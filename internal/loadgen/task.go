package loadgen

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// task is one spec of a run: its jobs, and when they are measured.
type task struct {
	run    *run
	spec   *Spec
	base   int64 // first byte
	jobs   []*job
	ledger *ledger // set if what the task writes is checked

	at        int64        // nanoseconds: when its delay is over
	begun     bool         // the delay is over; used only by the run's goroutine
	running   atomic.Int32 // jobs that are not idle
	stop      atomic.Bool
	measuring atomic.Bool
	from      atomic.Int64 // nanoseconds: when measuring began
	until     atomic.Int64 // when measuring ended; math.MaxInt64 until then

	mu   sync.Mutex
	cpu  cpuTime // used by the process until measuring began
	used cpuTime // by the process while it was measured
}

func (r *run) newTask(s *Spec, l *ledger, dev Device) (*task, error) {
	base, span := s.area(dev.Size())
	t := &task{run: r, spec: s, base: base}
	if s.Verify && s.Changes() {
		t.ledger = l
	}
	t.from.Store(math.MaxInt64)
	t.until.Store(math.MaxInt64)
	for clone := range s.NumJobs {
		q, err := dev.OpenQueue(len(r.jobs))
		var j *job
		if err == nil {
			j, err = newJob(t, clone, q, span)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: job %d: %w", s.Name, clone, err)
		}
		t.jobs = append(t.jobs, j)
		r.jobs = append(r.jobs, j)
	}
	t.running.Store(int32(len(t.jobs)))
	return t, nil
}

// hold makes the task wait for its delay.
func (t *task) hold() {
	if !t.run.verifying {
		t.at = max(t.run.began+int64(t.spec.Delay), nanotime())
		t.cpu = processCPU()
		if t.pacedFromStart() {
			t.from.Store(t.at) // operations, even all of them, may end before anybody notices that the delay is over
		}
	}
	for _, j := range t.jobs {
		j.hold(t.at)
	}
}

// begin starts the jobs and, if there is no ramp, the measuring.
func (t *task) begin() {
	t.begun = true
	if t.spec.RampTime == 0 {
		t.measure()
	}
	for _, j := range t.jobs {
		j.begin()
	}
}

// pacedFromStart reports whether operations count that are due from the end of the delay on.
func (t *task) pacedFromStart() bool { return t.spec.hasRate() && t.spec.RampTime == 0 }

// measure starts the measuring.
func (t *task) measure() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished() {
		return
	}
	for _, j := range t.jobs {
		if j.lead != nil {
			j.ramped()
		}
	}
	t.cpu = processCPU()
	if !t.pacedFromStart() {
		t.from.Store(nanotime())
	}
	t.measuring.Store(true)
}

// finished reports whether measuring has ended.
func (t *task) finished() bool { return t.until.Load() != math.MaxInt64 }

// finish records when measuring ended; only the first call has an effect.
func (t *task) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished() {
		return
	}
	now := nanotime()
	t.until.Store(now)
	t.measuring.Store(false)
	from := t.from.Load()
	if from == math.MaxInt64 {
		from = t.at
	}
	if from < now {
		t.used = processCPU().minus(t.cpu)
	}
}

// took returns how long j has been measured by now. Called with j.mu held.
func (t *task) took(j *job, now int64) time.Duration {
	if j.led() {
		return time.Duration(max(min(j.ended, t.until.Load()), t.at) - t.at)
	}
	return t.measured(cmp.Or(j.ended, now))
}

// measured returns how long measuring had gone on by then, without the ramp.
func (t *task) measured(by int64) time.Duration {
	from := t.from.Load()
	return time.Duration(max(min(by, t.until.Load()), from) - from)
}

// usedCPU returns the processor time of the process since measuring began, until it ended.
func (t *task) usedCPU() cpuTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished() && t.measuring.Load() {
		return processCPU().minus(t.cpu)
	}
	return t.used
}

// nextEvent returns the next event according to the task's times: its start, the end of its ramp, or its end; act is nil
// if none comes.
func (t *task) nextEvent() (at int64, act func()) {
	s := t.spec
	begins := t.run.began + int64(s.Delay)
	switch {
	case t.finished() || t.stop.Load():
	case !t.begun:
		return begins, t.begin
	case !t.measuring.Load():
		return begins + int64(s.RampTime), t.measure
	case s.Runtime > 0:
		return t.from.Load() + int64(s.Runtime), t.halt
	}
	return 0, nil
}

// halt stops starting operations. Outstanding ones still count, and measuring ends with them; otherwise an
// operation that the device holds back until after the end would be in no figure. If all operations come by a plan,
// they count by when they were due, so measuring ends at once.
func (t *task) halt() {
	if t.spec.Paced() {
		t.finish()
	}
	t.stop.Store(true)
	for _, j := range t.jobs {
		j.leave()
	}
}

// jobIdle is called by each job when none of its operations is outstanding any more.
func (t *task) jobIdle() {
	if t.spec.Exit != ExitNone && !t.run.verifying {
		t.run.exits <- t
	}
	if t.running.Add(-1) == 0 {
		t.finish()
		t.run.taskIdle()
	}
}

// elapsed returns how long the task has been measured, and left how long it will be at most; negative if that isn't
// known.
func (t *task) elapsed(now int64) time.Duration {
	return time.Duration(max(min(now, t.until.Load())-t.from.Load(), 0))
}

func (t *task) left(now int64, done seen) time.Duration {
	switch {
	case t.finished():
		return 0
	case !t.measuring.Load():
		return -1
	}
	left := time.Duration(-1)
	gone := t.elapsed(now)
	if t.spec.Runtime > 0 {
		left = max(t.spec.Runtime-gone, 0)
	}
	// What each job has to do, at the pace so far.
	least := func(each int64, done uint64) {
		if done == 0 {
			return
		}
		all := float64(each) * float64(len(t.jobs))
		if t.spec.rewrites() {
			all *= 2 // every trim and its write count
		}
		by := float64(gone) * max(all/float64(done)-1, 0)
		if by < math.MaxInt64/2 && (left < 0 || by < float64(left)) { // after longer than that nobody waits for it
			left = time.Duration(by)
		}
	}
	if !t.spec.loops() {
		least(t.spec.whole(t.jobs[0].what.span), done.bytes)
	}
	if n := t.spec.quota(); n < endless {
		least(n, done.ios)
	}
	return left
}

// cpuTime is the processor time of this process.
type cpuTime struct{ user, system time.Duration }

func (t cpuTime) minus(o cpuTime) cpuTime { return cpuTime{t.user - o.user, t.system - o.system} }

func processCPU() cpuTime {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return cpuTime{}
	}
	return cpuTime{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}
}
