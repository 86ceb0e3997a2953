package loadgen

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of a latency histogram: nanoseconds, three significant digits.
const (
	minLatency = 1
	maxLatency = int64(10 * time.Minute)
	digits     = 3
)

// job is one stream of operations on one queue.
type job struct {
	spec      Spec
	queue     Queue
	ios       []*IO
	live      [ops]live // read while it runs
	measuring *atomic.Bool
	stop      *atomic.Bool
	idle      func() // called once, when the last operation ended

	mu     sync.Mutex
	rng    *rand.Rand
	blocks int64 // of BS bytes, that it works on
	next   int64 // sequential: the next block
	left   int64 // operations to start; -1 without end
	busy   int   // operations under way
	err    error
	hist   [ops]*hdrhistogram.Histogram
	errors uint64
}

// live is what is counted of one direction.
type live struct {
	ios, bytes atomic.Uint64
	latencies  liveLatencies
}

func newJob(s Spec, n int, q Queue, span int64) (*job, error) {
	j := &job{
		spec:   s,
		queue:  q,
		rng:    rand.New(rand.NewPCG(s.Seed, uint64(n))),
		blocks: span / int64(s.BS),
		left:   -1,
	}
	if s.Runtime == 0 {
		j.left = j.blocks
	}
	// Sequential jobs that share a device begin at different places, or they would read what
	// another has just fetched.
	if !s.random() {
		j.next = j.blocks * int64(n) / int64(s.NumJobs)
	}
	for op := range ops {
		j.hist[op] = hdrhistogram.New(minLatency, maxLatency, digits)
	}
	fill := rand.NewChaCha8([32]byte{byte(s.Seed), byte(n)})
	for range s.IODepth {
		buf, err := q.Alloc(s.BS)
		if err != nil {
			j.free()
			return nil, err
		}
		_, _ = fill.Read(buf) // data that nothing on the way can compress
		j.ios = append(j.ios, &IO{Buf: buf, Done: j.done})
	}
	return j, nil
}

func (j *job) free() {
	for _, io := range j.ios {
		j.queue.Free(io.Buf)
	}
	j.ios = nil
}

// begin starts as many operations as the job is deep.
func (j *job) begin(clock func() int64) {
	j.mu.Lock()
	j.busy = 1 // this call, so that a job whose operations end at once isn't idle too early
	j.mu.Unlock()
	for _, io := range j.ios {
		j.mu.Lock()
		more := j.prepare(io)
		if more {
			j.busy++
		}
		j.mu.Unlock()
		if !more {
			break
		}
		io.started = clock()
		j.queue.Submit(io)
	}
	j.ended()
}

// prepare chooses what io does next; false when the job is over. Called with mu held.
func (j *job) prepare(io *IO) bool {
	if j.left == 0 || j.err != nil || j.stop.Load() {
		return false
	}
	if j.left > 0 {
		j.left--
	}
	p := patterns[j.spec.RW]
	switch {
	case p.read && p.write:
		io.Op = Write
		if j.rng.IntN(100) < j.spec.RWMixRead {
			io.Op = Read
		}
	case p.write:
		io.Op = Write
	default:
		io.Op = Read
	}
	block := j.next
	if p.random {
		block = j.rng.Int64N(j.blocks)
	} else if j.next++; j.next == j.blocks {
		j.next = 0
	}
	io.Offset = j.spec.Offset + block*int64(j.spec.BS)
	return true
}

// done records an operation and starts the next one with the same buffer.
func (j *job) done(io *IO) {
	now := nanotime()
	j.mu.Lock()
	if io.Err != nil {
		j.errors++
		if j.err == nil {
			j.err = io.Err
		}
	} else if j.measuring.Load() {
		// The bounds of the histogram hold every latency that a run can show.
		took := max(now-io.started, minLatency)
		_ = j.hist[io.Op].RecordValue(took)
		j.live[io.Op].latencies.record(took)
		j.live[io.Op].ios.Add(1)
		j.live[io.Op].bytes.Add(uint64(len(io.Buf)))
	}
	more := j.prepare(io)
	j.mu.Unlock()
	if !more {
		j.ended()
		return
	}
	io.started = now
	j.queue.Submit(io)
}

func (j *job) ended() {
	j.mu.Lock()
	j.busy--
	last := j.busy == 0
	j.mu.Unlock()
	if last {
		j.idle()
	}
}

var epoch = time.Now()

// nanotime is a monotonic clock.
func nanotime() int64 { return int64(time.Since(epoch)) }
