package loadgen

// led reports whether j ended within its ramp. Called when j has ended.
func (j *job) led() bool { return j.lead != nil && j.ended < j.task.from.Load() }

// takeLead makes what j did within its ramp its figures if j ended there, as in fio.
func (j *job) takeLead() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.led() {
		j.figures = *j.lead
	}
}

// ramped ends the ramp of a job. As in fio, what the job has done so far is in no figure and, if the job continues,
// doesn't count towards its NumberIOs.
func (j *job) ramped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.depths = [depthLevels]uint64{}
	if j.quota > 0 {
		j.quota = j.task.spec.quota()
	}
}
