package target

import "sync/atomic"

// Stage is a part of what a command does between its arrival and the end of its answer.
type Stage int

// Stages. What is left of a command's time is the engine's own.
const (
	StageMemory  Stage = iota // waits for the transport's memory: too many commands at once
	StageReceive              // the host's data is on its way: the network, and the host
	StageVolume               // the volume works
	StageSend                 // the answer is on its way: the network (RDMA: to its acknowledgement)
	NumStages
)

func (s Stage) String() string { return [...]string{"memory", "receive", "volume", "send"}[s] }

// sampled says whether a queue's n-th command has its stages measured. It is one in 64: to read
// the clock costs a fast volume as much as everything else. Which ones looks random, lest a host
// that alternates has only its reads measured.
func sampled(n uint64) bool { return n*goldenRatio>>58 == 0 }

// goldenRatio spreads numbers that follow one another (Knuth's multiplicative hashing).
const goldenRatio = 0x9e3779b97f4a7c15

// stageCounters say where the time of sampled commands went.
type stageCounters struct {
	sampled atomic.Uint64
	nanos   [NumStages]atomic.Uint64
}

// StageStats are the counters of sampled commands.
type StageStats struct {
	Sampled uint64
	Nanos   [NumStages]uint64
}

func (c *stageCounters) addTo(s *StageStats) {
	s.Sampled += c.sampled.Load()
	for i := range c.nanos {
		s.Nanos[i] += c.nanos[i].Load()
	}
}

func (s *StageStats) add(o *StageStats) {
	s.Sampled += o.Sampled
	for i, n := range o.Nanos {
		s.Nanos[i] += n
	}
}

// enter notes when a sampled command begins a stage.
func (r *Request) enter() {
	if e := &r.engine; e.sampled {
		e.entered = e.q.t.Now()
	}
}

// leave counts the time since enter as a stage.
func (r *Request) leave(s Stage) {
	if e := &r.engine; e.sampled {
		e.stages[s] += e.q.t.Now() - e.entered
	}
}

// countStages gives the stages of a sampled command, whose answer is out, to a counter.
func (r *Request) countStages(c *stageCounters) {
	c.sampled.Add(1)
	for s, n := range r.engine.stages {
		c.nanos[s].Add(uint64(max(n, 0)))
	}
}
