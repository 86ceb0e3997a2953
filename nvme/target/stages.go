package target

import "sync/atomic"

// Stage is a part of a command's time between its arrival and the end of its response.
type Stage int

// The stages. The rest of a command's time is the engine's own.
const (
	StageMemory  Stage = iota // waiting for the transport's memory: too many commands at once
	StageReceive              // the host's data is on its way: the network, and the host
	StageVolume               // the volume is working
	StageSend                 // the response is on its way: the network (RDMA: until its acknowledgement)
	NumStages
)

func (s Stage) String() string { return [...]string{"memory", "receive", "volume", "send"}[s] }

// sampled reports whether a queue's n-th command has its stages measured. One in 64 has: reading the clock costs as
// much as all the rest of a fast volume's command. The choice looks random, so that with a host that alternates it
// isn't only its reads that are measured.
func sampled(n uint64) bool { return n*goldenRatio>>58 == 0 }

// goldenRatio scatters consecutive numbers (Knuth's multiplicative hashing).
const goldenRatio = 0x9e3779b97f4a7c15

// stageCounters count where the time of sampled commands went.
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

// countStages adds the stages of a sampled command, whose response is out, to a counter.
func (r *Request) countStages(c *stageCounters) {
	c.sampled.Add(1)
	for s, n := range r.engine.stages {
		c.nanos[s].Add(uint64(max(n, 0)))
	}
}
