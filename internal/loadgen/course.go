package loadgen

import "time"

// Window is what one job did in one interval of Spec.LogEvery, by Op.
type Window struct {
	End        time.Duration // since measuring began
	Length     time.Duration
	IOs, Bytes [ops]uint64
	Latency    [ops]time.Duration // the sum over all operations
	Longest    [ops]time.Duration
}

// Entry is one operation that ended.
type Entry struct {
	End     time.Duration // since measuring began
	Latency time.Duration
	Offset  int64 // bytes
	Length  int   // bytes
	Op      Op
}

// entriesAtOnce is how many entries of a job are allocated at a time. Recorded entries are never moved.
const entriesAtOnce = 4096

// course records the windows of a job, or its individual operations. An operation belongs to the window in which it
// ends.
type course struct {
	wanted  bool
	every   time.Duration // the length of windows; 0 to record entries instead
	now     Window
	windows []Window
	entries [][]Entry
}

func newCourse(s *Spec) course {
	return course{wanted: s.LogEvery > 0 || s.LogEach, every: s.LogEvery}
}

// add counts an operation that ended at at, where from is when measuring began.
func (c *course) add(io *IO, took, at, from int64) {
	if c.every == 0 {
		c.enter(Entry{time.Duration(at - from), time.Duration(took), io.Offset, io.Length, io.Op})
		return
	}
	c.close(at, from)
	c.now.IOs[io.Op]++
	c.now.Bytes[io.Op] += uint64(io.Length)
	c.now.Latency[io.Op] += time.Duration(took)
	c.now.Longest[io.Op] = max(c.now.Longest[io.Op], time.Duration(took))
}

// enter records an entry.
func (c *course) enter(e Entry) {
	last := len(c.entries) - 1
	if last < 0 || len(c.entries[last]) == entriesAtOnce {
		c.entries = append(c.entries, make([]Entry, 0, entriesAtOnce))
		last++
	}
	c.entries[last] = append(c.entries[last], e)
}

// close closes the windows that are over at at, including those in which nothing ended.
func (c *course) close(at, from int64) {
	if c.now.Length == 0 {
		c.now.Length, c.now.End = c.every, c.every
	}
	for at-from >= int64(c.now.End) {
		c.windows = append(c.windows, c.now)
		c.now = Window{End: c.now.End + c.every, Length: c.every}
	}
}

// finish returns all windows of a job that was measured for took. The remainder at the end is left out if it is
// less than half a window, which says little about a rate, unless there is nothing else.
func (c *course) finish(took time.Duration) []Window {
	if c.every == 0 || took <= 0 {
		return nil
	}
	c.close(int64(took), 0)
	c.now.Length -= c.now.End - took
	c.now.End = took
	if c.now.Length >= c.every/2 || len(c.windows) == 0 {
		return append(c.windows, c.now)
	}
	return c.windows
}
