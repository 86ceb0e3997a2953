package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options says how a run is watched. The zero value samples every second and reports to nobody.
type Options struct {
	Interval time.Duration   // between samples; 0 means a second
	Report   func(*Progress) // is called for every sample, if not nil

	Status      func(*Result)    // is called with what was measured by then, but for logs, if not nil
	StatusEach  time.Duration    // how often; 0 for never
	StatusAsked <-chan os.Signal // each that comes while the jobs run or read back is answered by Status, too

	pace func(*pacer) (stop func(), err error) // nil means paceByThread
}

// Progress is a snapshot of a run in progress.
type Progress struct {
	Elapsed, Left time.Duration // Left is negative if it isn't known
	Ramping       bool
	Verifying     bool          // the run is over, and the written data is being read back
	Ops           [ops]Measured // since measuring began
	Last          Sample
}

// Run runs specs on dev, all at once, until they are done, their time is over or ctx ends, and measures them. The first
// error of an operation ends the run and is returned, along with what was measured until then. What specs with Verify
// wrote is then read back and checked, unless they are Unread; data that differs is reported as a *VerifyError.
func Run(ctx context.Context, dev Device, specs []Spec, o Options) (*Result, error) {
	r := &run{idle: make(chan struct{}), failed: make(chan struct{}), began: nanotime(), o: o}
	r.o.Interval = cmp.Or(r.o.Interval, time.Second)
	if r.o.pace == nil {
		r.o.pace = paceByThread
	}
	defer r.release()
	if err := r.makeTasks(dev, specs); err != nil {
		return nil, err
	}
	r.exits = make(chan *task, len(r.jobs)) // each job ends once
	for range len(o.StatusAsked) {
		<-o.StatusAsked // what was asked before there is anything to say
	}
	if err := r.drive(ctx, r.tasks); err != nil {
		return nil, err
	}
	if err := r.verify(ctx); err != nil {
		return nil, err
	}
	return r.result()
}

// run is the state of one call of Run.
type run struct {
	o      Options
	tasks  []*task
	driven []*task // those that run now
	jobs   []*job  // of all tasks
	began  int64

	running atomic.Int32  // tasks that are not idle
	idle    chan struct{} // closed when the last task is idle
	failing sync.Once
	failed  chan struct{} // closed when an operation failed
	exits   chan *task    // whose Exit is due: a job has ended

	series    []Sample
	last      [ops]Measured // of all jobs, at the last sample
	lastAt    int64
	verifying bool
}

func (r *run) makeTasks(dev Device, specs []Spec) error {
	unit, end := int64(0), int64(0)
	for i := range specs {
		s := &specs[i]
		if err := s.Validate(dev.Size(), dev.BlockSize()); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if s.Verify && s.Changes() {
			base, span := s.area(dev.Size()) // other specs may begin elsewhere
			unit, end = gcd(gcd(unit, base), max(s.Skip, -s.Skip)), max(end, base+span)
			for op := range ops {
				if !s.Draws(op) {
					continue
				}
				for _, sh := range s.BS[op] {
					unit = gcd(unit, int64(sh.Bytes))
				}
				unit = gcd(unit, int64(s.Align[op]))
			}
		}
	}
	var l *ledger
	if unit > 0 {
		if end/unit > maxUnits {
			return fmt.Errorf("verify=crc32c: the range has %d pieces of %s to keep account of, want at most %d: use a smaller size, or a larger bs and, in rw, a distance that is a multiple of it",
				end/unit, bytesText(unit), int64(maxUnits))
		}
		l = newLedger(unit, end)
	}
	for i := range specs {
		t, err := r.newTask(&specs[i], l, dev)
		if err != nil {
			return err
		}
		r.tasks = append(r.tasks, t)
	}
	return nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (r *run) release() {
	for _, j := range r.jobs {
		j.release()
	}
}

// fail reports that an operation failed.
func (r *run) fail() { r.failing.Do(func() { close(r.failed) }) }

func (r *run) taskIdle() {
	if r.running.Add(-1) == 0 {
		close(r.idle)
	}
}

// drive starts tasks, and returns when nothing is outstanding any more.
func (r *run) drive(ctx context.Context, tasks []*task) error {
	r.driven = tasks
	r.running.Store(int32(len(tasks)))
	var jobs []*job
	for _, t := range tasks {
		t.hold()
		jobs = append(jobs, t.jobs...)
	}
	for _, t := range tasks {
		if r.verifying || t.spec.Delay == 0 {
			t.begin()
		}
	}
	if p := newPacer(jobs); p.due.Len() > 0 {
		stop, err := r.o.pace(p)
		if err != nil {
			for _, t := range tasks {
				t.halt()
			}
			r.wait(ctx)
			return err
		}
		defer stop()
	}
	r.wait(ctx)
	return nil
}

// wait lets the tasks run for their times, and outstanding operations end. Operations always end: if a connection
// is lost, that ends its operations.
func (r *run) wait(ctx context.Context) {
	tick := time.NewTicker(r.o.Interval)
	defer tick.Stop()
	exits := r.exits
	if r.verifying {
		exits = nil // a job that has ended ends no reading back
	}
	var status <-chan time.Time
	var asked <-chan os.Signal
	if r.o.Status != nil {
		asked = r.o.StatusAsked
		if r.o.StatusEach > 0 && !r.verifying {
			each := time.NewTicker(r.o.StatusEach)
			defer each.Stop()
			status = each.C
		}
	}
	for {
		at, act := r.nextEvent()
		timer := time.NewTimer(time.Duration(at - nanotime()))
		stop := false
		select {
		case <-r.idle:
			timer.Stop()
			// The rest of an interval says little about a rate.
			if nanotime()-r.lastAt > int64(r.o.Interval)/2 {
				r.sample()
			}
			return
		case <-timer.C:
			act()
		case t := <-exits:
			r.exit(t)
		case <-r.failed:
			stop = true
		case <-ctx.Done():
			stop = true
		case <-tick.C:
			r.sample()
		case <-status:
			r.tell()
		case <-asked:
			r.tell()
		}
		timer.Stop()
		if stop {
			for _, t := range r.driven {
				t.halt()
			}
			<-r.idle
			return
		}
	}
}

// tell reports what was measured so far.
func (r *run) tell() {
	res, _ := r.collect()
	r.o.Status(res)
}

// exit ends the tasks that are to end with t.
func (r *run) exit(t *task) {
	for _, o := range r.tasks {
		if t.spec.Exit == ExitRun || o.spec.Group == t.spec.Group {
			o.halt()
		}
	}
}

// never is when an event is due that doesn't come while anybody waits, in nanoseconds from now.
const never = int64(1000 * time.Hour)

// nextEvent returns the first of the tasks' next events.
func (r *run) nextEvent() (at int64, act func()) {
	at, act = nanotime()+never, func() {}
	for _, t := range r.driven {
		if when, then := t.nextEvent(); then != nil && when < at {
			at, act = when, then
		}
	}
	return at, act
}

// verify reads back what tasks with a ledger wrote, if they are to.
func (r *run) verify(ctx context.Context) error {
	var tasks []*task
	for _, t := range r.tasks {
		if t.ledger != nil && t.spec.Does(Write) && !t.spec.Unread {
			tasks = append(tasks, t)
		}
	}
	select {
	case <-r.failed:
		return nil
	case <-ctx.Done():
		return nil
	default:
	}
	if len(tasks) == 0 {
		return nil
	}
	for _, t := range tasks {
		t.stop.Store(false)
		t.running.Store(int32(len(t.jobs)))
		for _, j := range t.jobs {
			j.mu.Lock()
			j.checking = true
			j.position = int64(j.clone * t.spec.LargestTransfer())
			j.mu.Unlock()
		}
	}
	r.verifying, r.idle = true, make(chan struct{})
	return r.drive(ctx, tasks)
}

// sample takes a snapshot of the run, for the series and for the report.
func (r *run) sample() {
	now := nanotime()
	var sum [ops]Measured
	for _, j := range r.jobs {
		j.addTo(&sum, time.Duration(now-max(r.lastAt, j.task.from.Load())))
	}
	began, ramping := r.measuredFrom(now)
	s := Sample{At: time.Duration(now - r.began), Length: time.Duration(now - max(r.lastAt, began))}
	var both Histogram
	for op := range ops {
		s.IOs[op] = sum[op].IOs - r.last[op].IOs
		s.Bytes[op] = sum[op].Bytes - r.last[op].Bytes
		h := sum[op].Latency
		h.subtract(&r.last[op].Latency)
		both.Merge(&h)
	}
	s.P50, s.P99 = both.Percentile(50), both.Percentile(99)
	r.last, r.lastAt = sum, now
	// The short part of the interval after the end of a ramp says nothing about a rate.
	if !ramping && !r.verifying && s.Length > r.o.Interval/2 {
		r.series = append(r.series, s)
	}
	if r.o.Report != nil {
		r.o.Report(r.progress(now, s, ramping))
	}
}

// measuredFrom returns when the first task began to be measured; if none has, it returns when the run began, and
// ramping is true.
func (r *run) measuredFrom(now int64) (at int64, ramping bool) {
	at = math.MaxInt64
	for _, t := range r.driven {
		at = min(at, t.from.Load())
	}
	if at > now {
		return r.began, true
	}
	return at, false
}

func (r *run) progress(now int64, s Sample, ramping bool) *Progress {
	p := &Progress{Ramping: ramping, Verifying: r.verifying, Ops: r.last, Last: s}
	for _, t := range r.driven {
		var done seen
		for _, j := range t.jobs {
			for op := range ops {
				done.ios += j.seen[op].ios
				done.bytes += j.seen[op].bytes
			}
		}
		p.Elapsed = max(p.Elapsed, t.elapsed(now))
		if left := t.left(now, done); p.Left >= 0 && (left < 0 || left > p.Left) {
			p.Left = left
		}
	}
	return p
}
