package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured.
type Result struct {
	Spec     Spec
	Duration time.Duration // measured time
	User     time.Duration // processor time of this process in that time, in user mode
	System   time.Duration // the same in the kernel
	Ops      [ops]Measured // by Op
	Errors   uint64
}

// Measured are the figures of one direction.
type Measured struct {
	IOs, Bytes uint64
	Latency    *hdrhistogram.Histogram // nanoseconds, of all jobs together
	Latencies  Latencies
}

// Total are the figures of both directions together.
func (r *Result) Total() Measured {
	t := Measured{Latency: hdrhistogram.New(minLatency, maxLatency, digits)}
	for i := range r.Ops {
		m := &r.Ops[i]
		t.IOs += m.IOs
		t.Bytes += m.Bytes
		t.Latency.Merge(m.Latency)
		t.Latencies.Add(&m.Latencies)
	}
	return t
}

// IOPS is operations a second.
func (r *Result) IOPS(m Measured) float64 { return perSecond(m.IOs, r.Duration) }

// Bandwidth is bytes a second.
func (r *Result) Bandwidth(m Measured) float64 { return perSecond(m.Bytes, r.Duration) }

func perSecond(n uint64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// CPU is the processor time of this process.
func (r *Result) CPU() time.Duration { return r.User + r.System }

// CPUPerIO is the processor time of this process an operation.
func (r *Result) CPUPerIO() time.Duration {
	n := r.Ops[Read].IOs + r.Ops[Write].IOs
	if n == 0 {
		return 0
	}
	return r.CPU() / time.Duration(n)
}

// Percentile is the latency that p percent of m's operations did not exceed.
func (m Measured) Percentile(p float64) time.Duration {
	return time.Duration(m.Latency.ValueAtQuantile(p))
}

// result gathers the jobs' figures; all of them are idle.
func (r *run) result() (*Result, error) {
	res := &Result{Spec: r.spec, Duration: r.took, User: r.used.user, System: r.used.system}
	for op := range ops {
		res.Ops[op].Latency = hdrhistogram.New(minLatency, maxLatency, digits)
	}
	var err error
	for _, j := range r.jobs {
		j.mu.Lock()
		for op := range ops {
			res.Ops[op].IOs += j.live[op].ios.Load()
			res.Ops[op].Bytes += j.live[op].bytes.Load()
			j.live[op].latencies.addTo(&res.Ops[op].Latencies)
			res.Ops[op].Latency.Merge(j.hist[op])
		}
		res.Errors += j.errors
		if err == nil {
			err = j.err
		}
		j.mu.Unlock()
	}
	return res, err
}
