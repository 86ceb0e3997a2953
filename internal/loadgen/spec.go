package loadgen

import (
	"math/rand/v2"
	"time"
)

// Spec is what to run, in fio's terms.
type Spec struct {
	Name      string
	RW        string     // one of Patterns
	RWMixRead int        // percent of reads in rw and randrw
	BS        [ops]Split // bytes an operation, by Op; a write that follows a trim has its size

	Align [ops]int // bytes of which random offsets are multiples, by Op; 0 for the smallest of BS

	IODepth int // operations outstanding at most, each job
	NumJobs int // jobs that run at once

	Offset        int64 // first byte
	OffsetPercent int   // Offset as a share of the device, at the next block; 0 where Offset says it
	Size          int64 // bytes that each job works on; 0 for all of the device
	SizePercent   int   // Size as a share of the device, or what follows Offset; 0 where Size says it

	Runtime   time.Duration // how long; 0 to run once through Size
	TimeBased bool          // go on after Size bytes, until Runtime is over
	IOSize    int64         // bytes that each job moves, whatever Size is; 0 for Size
	IOPercent int           // IOSize as a share of Size; 0 where IOSize says it
	Loops     int           // how often each job moves that; 0 for once
	NumberIOs int64         // operations after which a job has done that at the latest; 0 for any number
	RampTime  time.Duration // before that, not measured
	Delay     time.Duration // before the jobs begin

	ThinkTime time.Duration // how long a job rests after each ThinkIOs operations, when those have ended
	ThinkIOs  int           // 0 for 1

	LatencyTarget     time.Duration // over 0: each job seeks the greatest depth, up to IODepth, at which it is kept to
	LatencyPercentile float64       // by so many percent of the operations; 0 for all
	LatencyWindow     time.Duration // that end within so long, at each depth that is tried

	Rate     [ops]int64 // bytes a second that each job is to move, by Op; 0 for no rate
	RateIOPS [ops]int   // or operations a second
	Poisson  bool       // operations with a rate come at random times, not at even ones

	Distribution Distribution  // of random offsets
	Zones        [ops][]Zone   // of a Zoned distribution, by Op
	Sequential   [ops]int      // percent of operations at random that begin where the one before ended, by Op
	NoRandomMap  bool          // random offsets may repeat before every block had its turn
	Sync         bool          // a write is durable when it ends
	Fsync        int           // writes after which each job flushes; 0 for never
	Verify       bool          // stamp what is written by a CRC-32C, and check what is read
	Refill       bool          // what is written is new each time; otherwise each buffer keeps what it began with
	LogEvery     time.Duration // how long each of JobResult.Windows is; 0 for none of them
	LogEach      bool          // and in their place JobResult.Entries
	Seed         uint64        // of the random offsets and data
	Number       int           // of the first job among all that run, at once or before: each draws differently by Seed
}

// Split says how large operations are: each of Bytes in Percent of all.
type Split []Share

// Share is a part of a Split. The shares of a Split make up 100 percent.
type Share struct {
	Bytes   int
	UpTo    int // a larger multiple of Bytes: the sizes are all multiples up to it, each as likely as any other
	Percent int
}

// Fixed is the split of operations of one size.
func Fixed(bytes int) Split { return Split{{Bytes: bytes, Percent: 100}} }

// Range is the split of operations of any multiple of least that is no larger than most.
func Range(least, most int) Split {
	return Split{{Bytes: least, UpTo: most - most%least, Percent: 100}}
}

func (sh Share) largest() int { return max(sh.Bytes, sh.UpTo) }

// fixed reports whether all operations have one size.
func (s Split) fixed() bool { return len(s) == 1 && s[0].largest() == s[0].Bytes }

// largest is the size of the largest operation.
func (s Split) largest() (n int) {
	for _, sh := range s {
		n = max(n, sh.largest())
	}
	return n
}

// mean is the average size.
func (s Split) mean() (bytes float64) {
	for _, sh := range s {
		bytes += float64(sh.Bytes+sh.largest()) / 2 * float64(sh.Percent) / 100
	}
	return bytes
}

// pick draws a size.
func (s Split) pick(rng *rand.Rand) int {
	sh := s[len(s)-1]
	percent := rng.IntN(100)
	for i := range s {
		if percent -= s[i].Percent; percent < 0 {
			sh = s[i]
			break
		}
	}
	if sh.UpTo <= sh.Bytes {
		return sh.Bytes
	}
	return sh.Bytes * (1 + rng.IntN(sh.UpTo/sh.Bytes))
}

// Kinds of Distribution.
const (
	Uniform = "random"
	Zipf    = "zipf"
	Pareto  = "pareto"
	Normal  = "normal"
	Zoned   = "zoned"
)

// Distribution says which blocks random operations go to. The zero value is Uniform.
type Distribution struct {
	Kind string
	// Of Zipf the exponent; of Pareto the share of blocks that 1 - share of the operations go to; of Normal the deviation
	// in percent of the range, as fio has it (see newPattern).
	Theta float64
}

// Zone is a part of the range, behind the one before it. The shares of operations of all zones make up 100 percent.
type Zone struct {
	Percent int   // of the operations
	Share   int   // of the range, in percent; 0 where Bytes says how large the zone is
	Bytes   int64 // of the zone
}

// bytes is how large a zone of a range of span bytes is.
func (z Zone) bytes(span int64) int64 {
	if z.Share > 0 {
		return part(span, z.Share)
	}
	return z.Bytes
}

// uniform reports whether every block is as likely as any other.
func (d Distribution) uniform() bool { return d.Kind == "" || d.Kind == Uniform }

// loops reports whether the job goes on when it has moved its size.
func (s *Spec) loops() bool {
	// A namespace is always there, and need not be laid out as a file must be. So without a
	// size of its own, a runtime says enough, and so does what ends when a depth is found.
	return (s.Runtime > 0 || s.LatencyTarget > 0) && (s.TimeBased || s.Size == 0 && s.SizePercent == 0 && s.IOSize == 0 && s.IOPercent == 0 && s.Loops == 0)
}

// whole is how many bytes a job moves that goes through span bytes.
func (s *Spec) whole(span int64) int64 {
	once := span
	switch {
	case s.loops():
		return endless
	case s.IOSize > 0:
		once = s.IOSize
	case s.IOPercent > 0:
		once = part(span, s.IOPercent)
	}
	return s.looped(once)
}

// quota is how many operations a job begins at most.
func (s *Spec) quota() int64 {
	if s.NumberIOs == 0 || s.TimeBased {
		return endless
	}
	return s.looped(s.NumberIOs)
}

// looped is n as often as a job does what it does.
func (s *Spec) looped(n int64) int64 {
	loops := int64(max(s.Loops, 1))
	if n > endless/loops {
		return endless
	}
	return n * loops
}

// part is so many percent of n.
func part(n int64, percent int) int64 { return n/100*int64(percent) + n%100*int64(percent)/100 }

// area is where the jobs work on a device of that size, and how many bytes each.
func (s *Spec) area(size int64) (base, span int64) {
	base = s.Offset
	if s.OffsetPercent > 0 {
		block := int64(s.smallestBlock())
		base = (part(size, s.OffsetPercent) + block - 1) / block * block
	}
	switch {
	case s.SizePercent > 0:
		block := int64(s.LargestBlock())
		n := min(part(size, s.SizePercent), size-base)
		return base, max(n-n%block, block)
	case s.Size > 0:
		return base, s.Size
	}
	return base, size - base
}

// stream is which of the random numbers that Seed gives are a job's.
func (s *Spec) stream(clone int) uint64 { return uint64(s.Number + clone) }
