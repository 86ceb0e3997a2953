package loadgen

import "time"

// Window is what one job did in one interval of Spec.LogEvery, by Op.
type Window struct {
	End        time.Duration // since measuring began
	Length     time.Duration
	IOs, Bytes [ops]uint64
	Latency    [ops]time.Duration // the sum of all
}

// course gathers the windows of a job. Operations belong to the window in which they end.
type course struct {
	every   time.Duration // 0 gathers none
	now     Window
	windows []Window
}

// add counts an operation that has ended at that time, where from is when the measuring began.
func (c *course) add(op Op, bytes int, took, at, from int64) {
	c.close(at, from)
	c.now.IOs[op]++
	c.now.Bytes[op] += uint64(bytes)
	c.now.Latency[op] += time.Duration(took)
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
