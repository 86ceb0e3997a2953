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
	RunLength int        // a random pattern: one of so many operations goes to a random offset; 0 for every one
	Skip      int64      // a sequential pattern: bytes between two operations; below 0 to go back
	BS        [ops]Split // bytes per operation, by Op; a write that follows a trim has the trim's size

	Align [ops]int // bytes of which random offsets are multiples, by Op; 0 for the smallest of BS

	IODepth int // most operations outstanding per job
	NumJobs int // jobs that run at once

	Offset        int64 // first byte
	OffsetPercent int   // Offset in percent of the device, rounded up to a block; 0 to use Offset
	Size          int64 // bytes that each job works on; 0 for all of the device
	SizePercent   int   // Size in percent of the device, limited to what follows Offset; 0 to use Size

	Runtime   time.Duration // how long; 0 to run once through Size
	TimeBased bool          // continue after Size bytes, until Runtime is over
	IOSize    int64         // bytes that each job moves, whatever Size is; 0 for Size
	IOPercent int           // IOSize in percent of Size; 0 to use IOSize
	Loops     int           // how often each job moves that amount; 0 for once
	NumberIOs int64         // most operations that a job takes to move it once; 0 for no limit
	RampTime  time.Duration // before that, not measured
	Delay     time.Duration // before the jobs begin

	ThinkTime   time.Duration // how long a job rests after every ThinkIOs operations, once none is outstanding
	ThinkIOs    int           // 0 for 1
	ThinkIssued bool          // ThinkIOs counts operations that have begun, and otherwise those that have ended
	ThinkSpin   time.Duration // for how long a rest occupies a processor; one that is shorter takes as long

	LatencyTarget     time.Duration // if above 0, each job seeks the greatest depth, up to IODepth, that meets it
	LatencyPercentile float64       // the percentage of operations that must meet it; 0 for all
	LatencyWindow     time.Duration // for how long each depth is tried

	MaxLatency [ops]time.Duration // the longest that a measured operation may take, by Op; 0 for no limit

	Rate     [ops]int64 // bytes per second that each job should move, by Op; 0 for no rate
	RateIOPS [ops]int   // or operations per second
	Poisson  bool       // operations with a rate come at random times instead of even intervals

	Distribution  Distribution  // of random offsets
	Zones         [ops][]Zone   // for a Zoned distribution, by Op
	Sequential    [ops]int      // percent of random operations that begin where the previous one ended, by Op
	NoRandomMap   bool          // random offsets may repeat before every block has had its turn
	Sync          bool          // a write is durable when it ends
	Fsync         int           // writes after which each job flushes; 0 for never
	Fdatasync     int           // the same once more, counted apart; one flush will do where both are due
	EndFsync      bool          // a job that writes flushes when its other operations have ended, and then is over
	Verify        bool          // stamp written data with a CRC-32C, and check what is read
	Unread        bool          // what Verify stamps isn't read back at the end
	Backlog       int64         // unread writes of a job at which what Verify stamped is read back as well; 0 for never
	BacklogBatch  int64         // how many of them are then read back; 0 for as many as Backlog
	Refill        bool          // write new data each time; otherwise each buffer keeps its initial data
	Zeroes        bool          // write zeroes; Refill makes no difference then
	Compress      int           // percent of each CompressChunk of written data that is zeroes; Refill is implied
	CompressChunk int           // bytes; 0 for all of an operation
	Dedupe        int           // percent of the writes whose data are those of an earlier one; Refill is implied
	LogEvery      time.Duration // the length of each of JobResult.Windows; 0 for none
	LogEach       bool          // record JobResult.Entries instead
	Seed          uint64        // of the random offsets and data
	Exit          Exit          // which other jobs end when a job does
	Group         int           // of the jobs that ExitGroup ends
	Number        int           // of the first job, among all that run now or ran before: each draws differently
}

// Exit says which other jobs of a run end when a job does, whatever they still have to do.
type Exit int

// Kinds of Exit.
const (
	ExitNone  Exit = iota
	ExitGroup      // those of its Group
	ExitRun        // all
)

// Split gives the sizes of operations: a mix of Shares.
type Split []Share

// Share is a size with its share of the operations. The shares of a Split add up to 100 percent.
type Share struct {
	Bytes   int
	UpTo    int // a larger multiple of Bytes: the sizes are all multiples of Bytes up to it, equally likely
	Percent int
}

// Fixed returns the split for operations of one size.
func Fixed(bytes int) Split { return Split{{Bytes: bytes, Percent: 100}} }

// Range returns the split for operations of any multiple of least up to most.
func Range(least, most int) Split {
	return Split{{Bytes: least, UpTo: most - most%least, Percent: 100}}
}

func (sh Share) largest() int { return max(sh.Bytes, sh.UpTo) }

// fixed reports whether all operations have one size.
func (s Split) fixed() bool { return len(s) == 1 && s[0].largest() == s[0].Bytes }

// option returns the option that gives such sizes.
func (s Split) option() string {
	switch {
	case len(s) > 1:
		return "bssplit"
	case s[0].UpTo > 0:
		return "bsrange"
	}
	return "bs"
}

// largest returns the size of the largest operation.
func (s Split) largest() (n int) {
	for _, sh := range s {
		n = max(n, sh.largest())
	}
	return n
}

// mean returns the average size.
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
	// For Zipf the exponent; for Pareto the share of blocks that 1 - share of the operations go to; for Normal the
	// deviation in percent of the range, in fio's sense (see bell).
	Theta float64
}

// Zone is a part of the range, after the previous one. The percentages of operations of all zones add up to 100.
type Zone struct {
	Percent int   // of the operations
	Share   int   // of the range, in percent; 0 to use Bytes
	Bytes   int64 // the size of the zone
}

// bytes returns the size of a zone in a range of span bytes.
func (z Zone) bytes(span int64) int64 {
	if z.Share > 0 {
		return part(span, z.Share)
	}
	return z.Bytes
}

// uniform reports whether all blocks are equally likely.
func (d Distribution) uniform() bool { return d.Kind == "" || d.Kind == Uniform }

// loops reports whether the job continues after it has moved its size.
func (s *Spec) loops() bool {
	// A namespace always exists, and need not be laid out first as a file must be. So without a size, a runtime is
	// enough to say how long to run, and so is a latency target, which ends the job when a depth is found.
	return (s.Runtime > 0 || s.LatencyTarget > 0) && (s.TimeBased || s.Size == 0 && s.SizePercent == 0 && s.IOSize == 0 && s.IOPercent == 0 && s.Loops == 0)
}

// whole returns how many bytes a job moves in total if its range has span bytes.
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

// quota returns the maximum number of operations that a job begins.
func (s *Spec) quota() int64 {
	if s.NumberIOs == 0 || s.TimeBased {
		return endless
	}
	return s.looped(s.NumberIOs)
}

// looped returns n times the number of loops.
func (s *Spec) looped(n int64) int64 {
	loops := int64(max(s.Loops, 1))
	if n > endless/loops {
		return endless
	}
	return n * loops
}

// part returns a share of n, given in percent.
func part(n int64, percent int) int64 { return n/100*int64(percent) + n%100*int64(percent)/100 }

// area returns where the jobs work on a device of that size, and on how many bytes each.
func (s *Spec) area(size int64) (base, span int64) {
	base = s.Offset
	if s.OffsetPercent > 0 {
		block := int64(s.smallestBlock())
		base = (part(size, s.OffsetPercent) + block - 1) / block * block
	}
	switch {
	case s.SizePercent > 0:
		block := int64(s.largestBlock())
		n := min(part(size, s.SizePercent), size-base)
		return base, max(n-n%block, block)
	case s.Size > 0:
		return base, s.Size
	}
	return base, size - base
}

// stream selects the random numbers of a job among those derived from Seed.
func (s *Spec) stream(clone int) uint64 { return uint64(s.Number + clone) }
