package loadgen

// led reports whether j ended within its ramp. Called with mu held.
func (j *job) led() bool { return j.lead != nil && j.ended != 0 && j.ended < j.task.from.Load() }

// takeLead makes what j did within its ramp its figures if j ended there, as in fio. It returns the number of
// operations that j has measured.
func (j *job) takeLead() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.led() {
		j.figures = *j.lead
		for i, n := range j.leadDepths {
			j.depths[i] += n
		}
	}
	return countIOs(&j.ops)
}

// ramped ends the ramp of a job: as in fio, what it has done so far is in no figure, unless it ends there, and doesn't
// count towards its NumberIOs.
func (j *job) ramped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leadDepths, j.depths = j.depths, [depthLevels]uint64{}
	if j.quota > 0 {
		j.quota = j.task.spec.quota()
	}
}
