package loadgen

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Progress is a look at a run under way.
type Progress struct {
	Elapsed, Left time.Duration // Left is 0 where it isn't known
	Ramping       bool
	IOs, Bytes    [ops]uint64 // since measuring began
	Latencies     [ops]Latencies
}

// Run runs spec on dev until it is done, its time is over or ctx ends, and measures it.
// report, if not nil, is called every interval. The first error of an operation ends the run
// and is returned, beside what was measured up to then.
func Run(ctx context.Context, dev Device, spec Spec, interval time.Duration, report func(Progress)) (*Result, error) {
	if err := spec.Validate(dev.Size(), dev.BlockSize()); err != nil {
		return nil, err
	}
	r := &run{spec: spec, idle: make(chan struct{})}
	if err := r.makeJobs(dev); err != nil {
		return nil, err
	}
	defer r.free()
	r.measure(spec.RampTime == 0)
	for _, j := range r.jobs {
		j.begin(nanotime)
	}
	r.wait(ctx, interval, report)
	return r.result()
}

// run is one Run.
type run struct {
	spec      Spec
	jobs      []*job
	running   atomic.Int32
	idle      chan struct{} // closed when the last job is idle
	stop      atomic.Bool
	measuring atomic.Bool

	mu       sync.Mutex
	started  time.Time // of measuring
	cpu      cpuTime   // used by the process until then
	finished bool
	took     time.Duration
	used     cpuTime
}

func (r *run) makeJobs(dev Device) error {
	span := r.spec.Size
	if span == 0 {
		span = dev.Size() - r.spec.Offset
	}
	r.running.Store(int32(r.spec.NumJobs))
	for i := range r.spec.NumJobs {
		q, err := dev.OpenQueue(i)
		if err == nil {
			var j *job
			if j, err = newJob(r.spec, i, q, span); err == nil {
				j.stop, j.measuring = &r.stop, &r.measuring
				j.idle = func() {
					if r.running.Add(-1) == 0 {
						r.finish()
						close(r.idle)
					}
				}
				r.jobs = append(r.jobs, j)
				continue
			}
		}
		r.free()
		return fmt.Errorf("job %d: %w", i, err)
	}
	return nil
}

func (r *run) free() {
	for _, j := range r.jobs {
		j.free()
	}
}

// measure notes when measuring begins, and whether that is now.
func (r *run) measure(now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.cpu = time.Now(), processCPU()
	r.measuring.Store(now)
}

// finish notes when measuring ended; the first call counts.
func (r *run) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.finished {
		r.finished = true
		r.took, r.used = time.Since(r.started), processCPU().minus(r.cpu)
	}
}

// wait lets the jobs run for their time, and then lets what is under way end.
func (r *run) wait(ctx context.Context, interval time.Duration, report func(Progress)) {
	var ramp, over <-chan time.Time
	if r.spec.RampTime > 0 {
		ramp = time.After(r.spec.RampTime)
	}
	if r.spec.Runtime > 0 {
		over = time.After(r.spec.RampTime + r.spec.Runtime)
	}
	var tick <-chan time.Time
	if report != nil {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-r.idle:
			return
		case <-ramp:
			r.measure(true)
		case <-over:
			r.halt()
			return
		case <-ctx.Done():
			r.halt()
			return
		case <-tick:
			report(r.progress())
		}
	}
}

// halt ends the measuring, and waits for what is under way. Operations always end: a
// connection that is lost ends its own.
func (r *run) halt() {
	r.finish()
	r.measuring.Store(false)
	r.stop.Store(true)
	<-r.idle
}

func (r *run) progress() Progress {
	r.mu.Lock()
	p := Progress{Elapsed: time.Since(r.started), Ramping: !r.measuring.Load()}
	r.mu.Unlock()
	if r.spec.Runtime > 0 && !p.Ramping {
		p.Left = max(r.spec.Runtime-p.Elapsed, 0)
	}
	for _, j := range r.jobs {
		for op := range ops {
			p.IOs[op] += j.live[op].ios.Load()
			p.Bytes[op] += j.live[op].bytes.Load()
			j.live[op].latencies.addTo(&p.Latencies[op])
		}
	}
	return p
}

// cpuTime is processor time of this process.
type cpuTime struct{ user, system time.Duration }

func (t cpuTime) minus(o cpuTime) cpuTime { return cpuTime{t.user - o.user, t.system - o.system} }

func processCPU() cpuTime {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return cpuTime{}
	}
	return cpuTime{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}
}
