package loadgen

// lead is what a job does within its ramp: its figures where it ends there, as fio has it.
type lead struct {
	ops   [ops]Measured
	syncs Measured
}

func (l *lead) count(io *IO, now int64) {
	m := &l.syncs
	if io.Op != Flush {
		m = &l.ops[io.Op]
	}
	m.count(io, now)
}

// led reports whether j ended within its ramp. Called when it has ended.
func (j *job) led() bool { return j.lead != nil && j.ended < j.task.from.Load() }

// takeLead makes what j did within its ramp its figures, where it ended there.
func (j *job) takeLead() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.led() {
		j.ops, j.syncs = j.lead.ops, j.lead.syncs
	}
}

// ramped ends the ramp of a job. What it has done is in no figure, nor, where it goes on, does it count to its
// NumberIOs, as with fio.
func (j *job) ramped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.depths = [depthLevels]uint64{}
	if j.quota > 0 {
		j.quota = j.task.spec.quota()
	}
}
