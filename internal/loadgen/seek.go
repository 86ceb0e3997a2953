package loadgen

import "time"

// seek finds the greatest depth of a job at which its latencies meet Spec.LatencyTarget. Each depth is tried for a
// window: the depth doubles until one fails, and then halves the distance between the greatest that passed and the
// smallest that failed. A last window measures what the job does at the depth that was found.
type seek struct {
	depth int // the depth being tried
	good  int // the greatest that passed; 0 while none has
	bad   int // the smallest that failed; more than the job's depth while none has
	found bool
	over  bool // the last window is over
	idle  []*IO

	settled   int64 // nanoseconds: when no more operations than depth were outstanding; 0 until then
	since     int64 // when the window began, at the end of an operation that began after settled; 0 until then
	ios, late uint64

	last   [ops]Measured // in the last window
	until  int64         // when the last window ended
	points int           // number of the job's points before the last window
}

func newSeek(s *Spec) *seek {
	if s.LatencyTarget == 0 {
		return nil
	}
	return &seek{depth: 1, bad: s.IODepth + 1, idle: make([]*IO, 0, s.IODepth)}
}

// count evaluates an operation of j that ended. Called with j.mu held.
func (k *seek) count(j *job, io *IO, now int64) {
	s := j.task.spec
	switch {
	case k.over:
		return
	case k.settled == 0:
		if j.busy <= k.depth {
			k.settled = now
		}
		return
	case k.since == 0:
		if io.started >= k.settled {
			k.since = now
		}
		return
	}
	took := now - io.started
	k.ios++
	if took > int64(s.LatencyTarget) {
		k.late++
	}
	if k.found {
		k.last[io.Op].count(io, now)
	}
	hopeless := !k.found && k.late > 0 && s.latencyShare() == 100
	if hopeless || now-k.since >= int64(s.LatencyWindow) {
		k.close(j, now)
	}
}

// close ends a window, and chooses the next depth.
func (k *seek) close(j *job, now int64) {
	s := j.task.spec
	switch {
	case k.found:
		k.over, k.until = true, now
		return
	case float64(k.ios-k.late)*100 >= s.latencyShare()*float64(k.ios):
		k.good = k.depth
	default:
		k.bad = k.depth
	}
	k.settled, k.since, k.ios, k.late = 0, 0, 0, 0
	switch {
	case k.bad-k.good == 1:
		k.found, k.depth, k.points = true, max(k.good, 1), len(j.points)
	case k.bad > s.IODepth:
		k.depth = min(2*k.depth, s.IODepth)
	default:
		k.depth = (k.good + k.bad) / 2
	}
}

// latencyShare returns the percentage of operations that must meet the target.
func (s *Spec) latencyShare() float64 {
	if s.LatencyPercentile == 0 {
		return 100
	}
	return s.LatencyPercentile
}

// parks reports whether io, which has nothing to do, exceeds the depth being tried. Called with mu held.
func (j *job) parks(io *IO) bool {
	k := j.seek
	return k != nil && !k.over && !j.checking && j.busy >= k.depth && !j.rewrites(io)
}

// park sets io aside without work. Called with mu held.
func (j *job) park(io *IO) { j.seek.idle = append(j.seek.idle, io) }

// widens reports whether there is room for parked operations. Called with mu held.
func (j *job) widens() bool {
	k := j.seek
	return k != nil && !k.over && !j.checking && len(k.idle) > 0 && j.busy < k.depth
}

// widen starts as many parked operations as there is room for.
func (j *job) widen() {
	for {
		j.mu.Lock()
		if !j.widens() {
			j.mu.Unlock()
			return
		}
		last := len(j.seek.idle) - 1
		io := j.seek.idle[last]
		if !j.prepare(io, nanotime()) {
			j.mu.Unlock()
			return
		}
		j.seek.idle = j.seek.idle[:last]
		j.mu.Unlock()
		j.queue.Submit(io)
	}
}

// tell makes the result of a job that sought a depth the result at that depth. Called with mu held, when the job is
// idle.
func (k *seek) tell(r *JobResult) {
	if k == nil {
		return
	}
	r.Sought, r.SoughtDepth = k.over, k.good
	if !k.over {
		return
	}
	all := float64(max(countIOs(&r.Ops), 1))
	r.Ops, r.Duration, r.Points = k.last, time.Duration(k.until-k.since), r.Points[k.points:]
	part := float64(countIOs(&r.Ops)) / all
	r.User, r.System = time.Duration(float64(r.User)*part), time.Duration(float64(r.System)*part)
}
