package loadgen

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// depthLevels is the number of fio's depth levels: 1, 2 to 3, 4 to 7, …, 64 and more.
const depthLevels = 7

// job is one clone of a spec: a stream of operations on one queue.
type job struct {
	task  *task
	clone int
	queue Queue
	ios   []*IO

	mu      sync.Mutex
	what    *pattern
	fresh   *rand.ChaCha8 // seeds new data for writes
	content uint64        // seed of the last ones, for Spec.Dedupe
	left    int64         // bytes still to be started; endless for a job that loops
	quota   int64         // operations still to be started; endless if only left is a limit
	dirty   [2]int        // writes started since the last flush by Fsync, and by Fdatasync
	synced  bool          // the flush of EndFsync has begun
	busy    int           // operations outstanding
	held    bool          // more will come, even if nothing is outstanding
	ended   int64         // nanoseconds: when nothing was outstanding or still to come; 0 until then
	think   think
	err     error
	errors  uint64
	figures
	lead       *figures // those of its ramp; nil if there is none
	depths     [depthLevels]uint64
	leadDepths [depthLevels]uint64 // those of its ramp
	points     []Point
	seen       [ops]seen // used only by the run's goroutine
	course     course
	seek       *seek // nil if the depth is fixed

	// For a job with a rate.
	plan  *schedule
	paced bool  // only the plan starts operations
	start int64 // of the plan, nanoseconds
	free  []*IO
	ready atomic.Int32 // length of free

	// For a job whose data is checked.
	checking bool  // what was written is being read back
	position int64 // up to where, from the start of the range
	verified int64 // bytes
	backlog  backlog
}

const endless = int64(1) << 62

func newJob(t *task, clone int, q Queue, span int64) (*job, error) {
	s := t.spec
	j := &job{task: t, clone: clone, queue: q, what: newPattern(s, clone, span), content: s.Seed ^ s.stream(clone)<<32}
	j.left, j.quota = s.whole(j.what.span), s.quota()
	j.course, j.seek = newCourse(s), newSeek(s)
	if s.RampTime > 0 {
		j.lead = new(figures)
	}
	if s.hasRate() {
		j.plan, j.paced = newSchedule(s, clone), s.Paced()
	}
	size := s.LargestTransfer()
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[0:], s.Seed)
	binary.LittleEndian.PutUint64(seed[8:], s.stream(clone))
	j.fresh = rand.NewChaCha8(seed)
	for range s.IODepth {
		io := &IO{Done: j.done}
		j.ios = append(j.ios, io)
		if size == 0 {
			continue
		}
		mem, err := q.Alloc(size)
		if err != nil {
			j.release()
			return nil, err
		}
		if s.Zeroes {
			clear(mem)
		} else {
			_, _ = j.fresh.Read(mem) // incompressible data
		}
		io.mem = mem
		if t.ledger != nil {
			io.version = make([]uint32, int64(size)/t.ledger.unit)
		}
	}
	j.free = make([]*IO, 0, len(j.ios))
	return j, nil
}

func (j *job) release() {
	for _, io := range j.ios {
		if io.mem != nil {
			j.queue.Free(io.mem)
		}
	}
}

// planned reports whether all operations come by the plan. If one direction has a rate and the other doesn't,
// operations of the latter keep the depth, and one that is due takes the place of the next of them.
func (j *job) planned() bool { return j.paced && !j.checking }

// hold announces that operations will come, from time at on: begin starts them or, if there is a plan, the pacer.
func (j *job) hold(at int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = true
	if !j.checking {
		j.start = at
	}
	if j.planned() {
		j.free = append(j.free, j.ios...)
		j.ready.Store(int32(len(j.free)))
	}
}

// begin starts the first operations, unless the pacer does.
func (j *job) begin() {
	if j.planned() {
		return
	}
	j.mu.Lock()
	j.think.filling = true
	j.mu.Unlock()
	j.fill()
}

// fill starts as many operations as the job's depth.
func (j *job) fill() {
	for _, io := range j.ios {
		j.mu.Lock()
		if j.parks(io) {
			j.park(io)
			j.mu.Unlock()
			continue
		}
		more := j.prepare(io, nanotime())
		j.mu.Unlock()
		if !more {
			break
		}
		j.queue.Submit(io)
	}
	j.mu.Lock()
	j.think.filling = false
	j.settle()
	then := func() {}
	if j.think.state == thinkNot {
		then = j.unhold() // before a completion can begin a rest
	}
	j.mu.Unlock()
	then()
}

// arrive is called when operations are due; it returns false when no more will be. Operations that find no free IO
// wait: the completion of another one starts them, and after a rest its end.
func (j *job) arrive() bool {
	// A completion first makes its IO ready and then reads the clock. So if no IO is ready yet, the completion will
	// see what is due now.
	for j.ready.Load() > 0 {
		j.mu.Lock()
		if !j.held {
			j.mu.Unlock()
			return false
		}
		if !j.due() || len(j.free) == 0 {
			j.mu.Unlock()
			return true
		}
		io := j.free[len(j.free)-1]
		if !j.prepare(io, 0) {
			rests := j.think.state != thinkNot
			j.mu.Unlock()
			if !rests {
				j.leave()
			}
			return rests
		}
		j.take()
		j.mu.Unlock()
		j.queue.Submit(io)
	}
	return true
}

// quickest is the average time that an operation takes at least, in nanoseconds: no device does ten million a second.
const quickest = 100

// longestCatchUp bounds what catchUp returns.
const longestCatchUp = int64(time.Millisecond)

// catchUp returns for how many nanoseconds at least completions alone start what is due, as so many operations are that
// haven't begun.
func (j *job) catchUp() int64 {
	if j.ready.Load() > 0 {
		return 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(j.unstarted(nanotime()), uint64(longestCatchUp/quickest))
	return quickest * min(int64(n), j.left/int64(j.task.spec.largestBlock()))
}

// due reports whether the next operation of the plan is due. Called with mu held.
func (j *job) due() bool { return j.start+j.plan.peek() <= nanotime() }

// take removes the last IO from free. Called with mu held.
func (j *job) take() {
	j.free = j.free[:len(j.free)-1]
	j.ready.Store(int32(len(j.free)))
}

// unstarted returns approximately how many operations of the plan were due by until and have not begun: no more than
// the job has left to do. Called with mu held.
func (j *job) unstarted(until int64) uint64 {
	if j.plan == nil || j.left <= 0 || j.quota <= 0 {
		return 0
	}
	room := (j.left-1)/int64(j.task.spec.smallestBlock()) + 1
	return min(j.plan.expected(until-j.start), uint64(min(j.quota, room)))
}

// leave announces that no more operations will come, apart from those that follow from outstanding ones.
func (j *job) leave() {
	j.mu.Lock()
	then := j.unhold()
	j.mu.Unlock()
	then()
}

// unhold is leave, but for what it returns, which the caller does without mu. Called with mu held.
func (j *job) unhold() (then func()) {
	idle := j.held && j.busy == 0
	j.held = false
	j.think.stop()
	switch {
	case !idle:
		return func() {}
	case j.endSync(j.ios[0]):
		return func() { j.queue.Submit(j.ios[0]) }
	}
	j.end(nanotime())
	return j.task.jobIdle
}

// end records when the job ended; each clone ends at its own time. Reading back afterwards isn't measured. Called
// with mu held.
func (j *job) end(now int64) {
	if !j.checking {
		j.ended = now
	}
}

// done records an operation that ended and starts the next one with the same IO.
func (j *job) done(io *IO) {
	now := nanotime()
	units, err := j.judge(io)
	j.mu.Lock()
	j.verified += units
	j.busy--
	if j.task.spec.Backlog > 0 && io.Op == Write && err == nil {
		j.backlog.add(io)
	}
	switch {
	case err != nil:
		j.fail(err)
	case j.counts(io):
		j.count(io, now)
		if err := j.overdue(io, now); err != nil {
			j.fail(err)
		}
	case j.lead != nil && !j.checking && !io.aside:
		j.lead.of(io.Op).count(io, now)
	}
	j.think.add(!j.task.spec.ThinkIssued && io.Op != Flush && !io.aside)
	var more bool
	switch {
	case j.planned():
		more = j.next(io)
	case j.parks(io):
		j.park(io)
	default:
		more = j.prepare(io, now)
	}
	j.settle()
	last, widens := j.busy == 0 && !j.held, j.widens()
	if last && j.endSync(io) {
		more, last = true, false
	}
	if last {
		j.end(now)
	}
	j.mu.Unlock()
	switch {
	case more:
		j.queue.Submit(io)
	case last:
		j.task.jobIdle()
	}
	if widens {
		j.widen()
	}
}

// count adds an operation that ended to what is measured. Called with mu held.
func (j *job) count(io *IO, now int64) {
	if io.Op != Flush {
		if j.course.wanted {
			j.course.add(io, now-io.started, now, j.task.from.Load())
		}
		if j.seek != nil {
			j.seek.count(j, io, now)
		}
	}
	j.of(io.Op).count(io, now)
}

// LatencyError reports an operation that took longer than MaxLatency.
type LatencyError struct {
	Op            Op
	Offset        int64
	Length        int
	Took, Allowed time.Duration
}

func (e *LatencyError) Error() string {
	return fmt.Sprintf("%v of %d bytes at offset %d took %v, and max_latency is %v", e.Op, e.Length, e.Offset, e.Took, e.Allowed)
}

// overdue returns an error if an operation that ended took longer than any may.
func (j *job) overdue(io *IO, now int64) error {
	if io.Op == Flush {
		return nil
	}
	took, most := time.Duration(now-io.started), j.task.spec.MaxLatency[io.Op]
	if most == 0 || took <= most {
		return nil
	}
	return &LatencyError{io.Op, io.Offset, io.Length, took, most}
}

// next gives io the operation of the plan that is due, or keeps io until one is. A rest begins whether one is due or
// not. Called with mu held.
func (j *job) next(io *IO) bool {
	if (j.rewrites(io) || j.held && (j.due() || j.tires())) && j.prepare(io, 0) {
		return true
	}
	j.free = append(j.free, io)
	j.ready.Store(int32(len(j.free)))
	// If the pacer found no IO just now, it relies on this call to look again.
	if j.held && j.due() && j.prepare(io, 0) {
		j.take()
		return true
	}
	return false
}

// counts reports whether an operation that ended belongs to what is measured. Called with mu held.
func (j *job) counts(io *IO) bool {
	switch t := j.task; {
	case j.checking, io.aside:
		return false
	case io.due:
		// An operation counts if it was due during measuring, however late it ended.
		return io.started >= t.from.Load() && io.started < t.until.Load()
	default:
		return t.measuring.Load()
	}
}

// fail records that an operation failed, or found no place; the first error ends the run. Called with mu held.
func (j *job) fail(err error) {
	j.errors++
	if j.err == nil {
		j.err = err
		j.task.run.fail()
	}
}

// addTo adds what the job has measured to sum, and records what is new as a separate point.
func (j *job) addTo(sum *[ops]Measured, length time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := Point{Length: length}
	for op := range ops {
		m := &j.ops[op]
		sum[op].add(m)
		p.IOs[op], p.Bytes[op] = m.IOs-j.seen[op].ios, m.Bytes-j.seen[op].bytes
		j.seen[op] = seen{m.IOs, m.Bytes}
	}
	// The short part of the interval after the end of a ramp says nothing about a rate.
	if j.task.measuring.Load() && j.ended == 0 && length > j.task.run.o.Interval/2 {
		j.points = append(j.points, p)
	}
}

// seen is the state of one direction, or of all, at the last look at a job.
type seen struct{ ios, bytes uint64 }

var epoch = time.Now()

// nanotime returns the time of a monotonic clock.
func nanotime() int64 { return int64(time.Since(epoch)) }
