package loadgen

// rewrites reports whether io has trimmed blocks that must be written next. The same IO writes them, so that no
// write overtakes its trim: a device may execute commands in any order.
func (j *job) rewrites(io *IO) bool { return io.Op == Trim && j.task.spec.rewrites() }

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
	j.think.begun++
	j.dirty++
	j.started()
}
