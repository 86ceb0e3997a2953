package loadgen

import "time"

// Result is what a run measured.
type Result struct {
	Jobs   []JobResult // in the order of the specs, NumJobs of each
	Series []Sample    // for all jobs together
}

// JobResult is what one job measured.
type JobResult struct {
	Spec     *Spec
	Clone    int // of the spec's NumJobs
	Duration time.Duration
	Began    time.Time // when measuring began, for logs
	// Processor time of this process in that time. It can't be attributed to jobs, so each gets a share in
	// proportion to its operations.
	User, System time.Duration
	Ops          [ops]Measured       // by Op
	Syncs        Measured            // flushes
	Depths       [depthLevels]uint64 // operations by the depth at which they began: 1, 2 to 3, 4 to 7 …
	Errors       uint64
	Err          error  // the first one
	Unstarted    uint64 // approximate number of operations of a plan that were due and never began
	Verified     int64  // bytes that were read and checked
	Points       []Point
	Windows      []Window // of Spec.LogEvery each
	// For a Spec with a LatencyTarget: SoughtDepth is the greatest depth tried at which the target was met; 0 if it
	// was met at none. Sought says that the search was completed. Then Duration, Ops, Points, User and System are
	// those of one window at that depth, or at depth 1.
	SoughtDepth int
	Sought      bool
	Entries     [][]Entry // every operation, in the order in which they ended, if Spec.LogEach is set
}

// Measured holds the figures of one direction.
type Measured struct {
	IOs, Bytes uint64
	Latency    Histogram
}

// figures holds the figures of all operations.
type figures struct {
	ops   [ops]Measured
	syncs Measured // flushes
}

func (f *figures) of(op Op) *Measured {
	if op == Flush {
		return &f.syncs
	}
	return &f.ops[op]
}

// count adds an operation that ended.
func (m *Measured) count(io *IO, now int64) {
	m.IOs++
	m.Bytes += uint64(io.Length)
	m.Latency.Record(now - io.started)
}

// add adds the figures of another job.
func (m *Measured) add(o *Measured) {
	m.IOs += o.IOs
	m.Bytes += o.Bytes
	m.Latency.Merge(&o.Latency)
}

// Point is what one job did in one interval, by Op.
type Point struct {
	Length     time.Duration
	IOs, Bytes [ops]uint64
}

// countIOs returns the total number of operations.
func countIOs(of *[ops]Measured) (n uint64) {
	for op := range of {
		n += of[op].IOs
	}
	return n
}

// Sample is what all jobs did in one interval.
type Sample struct {
	At         time.Duration // the end of the interval, since the run began
	Length     time.Duration
	IOs, Bytes [ops]uint64
	// Percentiles over all directions, in nanoseconds.
	P50, P99 int64
}

// IOPS returns the operations per second, over all directions.
func (s *Sample) IOPS() float64 { return perSecond(sum(s.IOs), s.Length) }

// Bandwidth returns the bytes per second, over all directions.
func (s *Sample) Bandwidth() float64 { return perSecond(sum(s.Bytes), s.Length) }

func sum(of [ops]uint64) (n uint64) {
	for _, v := range of {
		n += v
	}
	return n
}

// Total returns the figures of all directions together.
func (r *JobResult) Total() *Measured {
	t := new(Measured)
	for i := range r.Ops {
		t.add(&r.Ops[i])
	}
	return t
}

// IOPS returns the operations per second.
func (r *JobResult) IOPS(m *Measured) float64 { return perSecond(m.IOs, r.Duration) }

// Bandwidth returns the bytes per second.
func (r *JobResult) Bandwidth(m *Measured) float64 { return perSecond(m.Bytes, r.Duration) }

func perSecond(n uint64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// CPU returns the processor time of this process.
func (r *JobResult) CPU() time.Duration { return r.User + r.System }

// CPUPerIO returns the processor time of this process per operation.
func (r *JobResult) CPUPerIO() time.Duration {
	n := countIOs(&r.Ops)
	if n == 0 {
		return 0
	}
	return r.CPU() / time.Duration(n)
}

// Group combines the results of jobs that ran in parallel.
func Group(jobs []JobResult) JobResult {
	g := jobs[0]
	g.Points, g.Windows, g.Entries = nil, nil, nil
	for i := range jobs {
		g.Points = addPoints(g.Points, jobs[i].Points)
	}
	for i := range jobs[1:] {
		j := &jobs[1+i]
		g.Duration = max(g.Duration, j.Duration)
		g.User += j.User
		g.System += j.System
		g.Errors += j.Errors
		if g.Err == nil {
			g.Err = j.Err
		}
		g.Unstarted += j.Unstarted
		g.SoughtDepth, g.Sought = min(g.SoughtDepth, j.SoughtDepth), g.Sought && j.Sought
		g.Verified += j.Verified
		for op := range ops {
			g.Ops[op].add(&j.Ops[op])
		}
		g.Syncs.add(&j.Syncs)
		for d := range g.Depths {
			g.Depths[d] += j.Depths[d]
		}
	}
	return g
}

func addPoints(sum, points []Point) []Point {
	for i := range points {
		if i == len(sum) {
			sum = append(sum, Point{Length: points[i].Length})
		}
		for op := range ops {
			sum[i].IOs[op] += points[i].IOs[op]
			sum[i].Bytes[op] += points[i].Bytes[op]
		}
	}
	return sum
}

// result collects the jobs' figures; all of them are idle.
func (r *run) result() (*Result, error) {
	res, err := r.collect()
	for i, j := range r.jobs {
		jr := &res.Jobs[i]
		jr.Began = epoch.Add(time.Duration(j.task.from.Load()))
		jr.Windows, jr.Entries = j.course.finish(j.task.measured(j.ended)), j.course.entries
	}
	return res, err
}

// collect collects what the jobs have measured so far, but for logs, whether they are idle or not.
func (r *run) collect() (*Result, error) {
	res := &Result{Series: r.series}
	var err error
	var all uint64 // operations
	for _, j := range r.jobs {
		all += j.takeLead()
	}
	now := nanotime()
	for _, t := range r.tasks {
		used := t.usedCPU()
		for _, j := range t.jobs {
			j.mu.Lock()
			jr := JobResult{
				Spec: t.spec, Clone: j.clone, Duration: t.took(j, now),
				Ops: j.ops, Syncs: j.syncs, Depths: j.depths, Errors: j.errors, Err: j.err, Unstarted: j.unstarted(min(now, t.until.Load())), Verified: j.verified,
				Points: j.points,
			}
			part := r.share(j, all)
			jr.User = time.Duration(float64(used.user) * part)
			jr.System = time.Duration(float64(used.system) * part)
			j.seek.tell(&jr)
			if err == nil {
				err = j.err
			}
			j.mu.Unlock()
			res.Jobs = append(res.Jobs, jr)
		}
	}
	return res, err
}

// share returns the part of the process's processor time that a job gets, where the jobs had all operations together.
func (r *run) share(j *job, all uint64) float64 {
	if all == 0 {
		return 1 / float64(len(r.jobs))
	}
	return float64(countIOs(&j.ops)) / float64(all)
}
