package loadgen

// led reports whether j ended within its ramp. Called when it has ended.
func (j *job) led() bool { return j.lead != nil && j.ended < j.task.from.Load() }

// takeLead makes what j did within its ramp its figures where it ended there, as fio has it.
func (j *job) takeLead() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.led() {
		j.figures = *j.lead
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
