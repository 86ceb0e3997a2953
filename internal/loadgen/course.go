package loadgen

import "time"

// Window is what one job did in one interval of Spec.LogEvery, by Op.
type Window struct {
	End        time.Duration // since measuring began
	Length     time.Duration
	IOs, Bytes [ops]uint64
	Latency    [ops]time.Duration // the sum of all
}

// Entry is one operation that has ended.
type Entry struct {
	End     time.Duration // since measuring began
	Latency time.Duration
	Offset  int64 // bytes
	Length  int   // bytes
	Op      Op
}

// entriesAtOnce is how many entries of a job take memory at a time. What has been gathered is never moved.
const entriesAtOnce = 4096

// course gathers the windows of a job, or its operations one by one. Operations belong to the window in which they end.
type course struct {
	wanted  bool
	every   time.Duration // how long windows are; 0 for entries in their place
	now     Window
	windows []Window
	entries [][]Entry
}

func newCourse(s *Spec) course {
	return course{wanted: s.LogEvery > 0 || s.LogEach, every: s.LogEvery}
}

// add counts an operation that has ended at that time, where from is when the measuring began.
func (c *course) add(io *IO, took, at, from int64) {
	if c.every == 0 {
		c.enter(Entry{time.Duration(at - from), time.Duration(took), io.Offset, io.Length, io.Op})
		return
	}
	c.close(at, from)
	c.now.IOs[io.Op]++
	c.now.Bytes[io.Op] += uint64(io.Length)
	c.now.Latency[io.Op] += time.Duration(took)
}

// enter keeps an entry.
func (c *course) enter(e Entry) {
	last := len(c.entries) - 1
	if last < 0 || len(c.entries[last]) == entriesAtOnce {
		c.entries = append(c.entries, make([]Entry, 0, entriesAtOnce))
		last++
	}
	c.entries[last] = append(c.entries[last], e)
}

// close closes the windows that are over at that time, empty ones too: nothing ended in them.
func (c *course) close(at, from int64) {
	if c.now.Length == 0 {
		c.now.Length, c.now.End = c.every, c.every
	}
	for at-from >= int64(c.now.End) {
		c.windows = append(c.windows, c.now)
		c.now = Window{End: c.now.End + c.every, Length: c.every}
	}
}

// finish gives all windows of a job whose measuring lasted that long. What is left of the last one is left out where it
// is less than a half, which says little about a rate, unless there is nothing else.
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
