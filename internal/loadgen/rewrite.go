package loadgen

import "slices"

// rewrites reports whether io has trimmed blocks that must be written next. The same IO writes them, so that no
// write overtakes its trim: a device may execute commands in any order.
func (j *job) rewrites(io *IO) bool { return io.Op == Trim && j.task.spec.rewrites() }

// rewritesFirst puts the IOs that have blocks to write in front of the others, so that a job that goes on after a rest
// first writes what it trimmed before. Called with mu held, while nothing is outstanding.
func (j *job) rewritesFirst() {
	slices.SortStableFunc(j.ios, func(a, b *IO) int {
		switch first, second := j.rewrites(a), j.rewrites(b); {
		case first && !second:
			return -1
		case second && !first:
			return 1
		}
		return 0
	})
}

// rewrite makes io, whose trim has ended, write the same blocks. Called with mu held.
func (j *job) rewrite(io *IO) {
	s := j.task.spec
	io.Op, io.Buf, io.FUA = Write, io.mem[:io.Length], s.Sync
	if l := j.task.ledger; l != nil {
		l.stamp(io.Buf, io.Offset) // the trim's claim also covers the write
	} else {
		j.refill(io)
	}
	io.started = nanotime()
	j.think.add(s.ThinkIssued)
	j.wrote()
	j.started()
}
