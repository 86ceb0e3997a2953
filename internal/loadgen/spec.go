package loadgen

import (
	"fmt"
	"strings"
	"time"
)

// Spec is what to run, in fio's terms.
type Spec struct {
	Name      string
	RW        string        // read, write, randread, randwrite, rw, randrw
	RWMixRead int           // percent of reads in rw and randrw
	BS        int           // bytes an operation
	IODepth   int           // operations outstanding, each job
	NumJobs   int           // jobs that run at once
	Offset    int64         // first byte
	Size      int64         // bytes that each job works on; 0 for all of the device
	Runtime   time.Duration // how long; 0 to run once through Size
	RampTime  time.Duration // before that, not measured
	Seed      uint64        // of the random offsets and data
}

// patterns are the values of RW: random offsets, and which directions.
var patterns = map[string]struct{ random, read, write bool }{
	"read":      {false, true, false},
	"write":     {false, false, true},
	"randread":  {true, true, false},
	"randwrite": {true, false, true},
	"rw":        {false, true, true},
	"readwrite": {false, true, true},
	"randrw":    {true, true, true},
}

// Writes reports whether the job changes the device.
func (s Spec) Writes() bool { return patterns[s.RW].write }

// limitDepth bounds IODepth × NumJobs, and with it the memory for buffers.
const limitDepth = 1 << 16

// Check says which option is wrong on any device.
func (s Spec) Check() error {
	_, known := patterns[s.RW]
	switch {
	case !known:
		return fmt.Errorf("rw=%s: want one of read, write, randread, randwrite, rw, randrw", s.RW)
	case s.BS <= 0:
		return fmt.Errorf("bs=%d: want at least one block", s.BS)
	case s.RWMixRead < 0 || s.RWMixRead > 100:
		return fmt.Errorf("rwmixread=%d: want 0 to 100 percent", s.RWMixRead)
	case s.IODepth < 1 || s.NumJobs < 1 || s.IODepth > limitDepth/s.NumJobs:
		return fmt.Errorf("iodepth=%d, numjobs=%d: want at least 1 each, and a product of at most %d", s.IODepth, s.NumJobs, limitDepth)
	case s.Runtime < 0:
		return fmt.Errorf("runtime=%v: want a positive time", s.Runtime)
	case s.RampTime < 0:
		return fmt.Errorf("ramp_time=%v: want a positive time", s.RampTime)
	}
	return nil
}

// Validate says which option can't be used on a device of that size and block size.
func (s Spec) Validate(size int64, blockSize int) error {
	if err := s.Check(); err != nil {
		return err
	}
	span := s.Size
	if span == 0 {
		span = size - s.Offset
	}
	switch {
	case s.BS%blockSize != 0:
		return fmt.Errorf("bs=%d: want a multiple of the namespace's block, %d bytes", s.BS, blockSize)
	case s.Offset < 0 || s.Offset%int64(blockSize) != 0 || s.Offset >= size:
		return fmt.Errorf("offset=%d: want a multiple of %d inside the namespace of %d bytes", s.Offset, blockSize, size)
	case span < int64(s.BS) || span > size-s.Offset:
		return fmt.Errorf("size=%d: want at least %d bytes, one operation, and an end inside the namespace of %d bytes (offset %d)",
			span, s.BS, size, s.Offset)
	}
	return nil
}

// random reports whether offsets are random.
func (s Spec) random() bool { return strings.HasPrefix(s.RW, "rand") }
