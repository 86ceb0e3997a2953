package loadgen

// maxBacklog bounds Spec.Backlog, and thereby the memory that a backlog takes.
const maxBacklog = 1 << 24

// backlog holds where a job has written and not yet read back, if it is to do that in the course of the run.
type backlog struct {
	places []place
	first  int   // those before it have been read back
	due    int64 // how many are to be read back before the job goes on
}

// place is where an operation went.
type place struct {
	offset int64
	length int
}

func (b *backlog) add(io *IO) { b.places = append(b.places, place{io.Offset, io.Length}) }

// len returns how many places are left.
func (b *backlog) len() int64 { return int64(len(b.places) - b.first) }

// take removes the oldest place.
func (b *backlog) take() place {
	p := b.places[b.first]
	if b.first++; 2*b.first >= len(b.places) {
		b.places, b.first = b.places[:copy(b.places, b.places[b.first:])], 0
	}
	return p
}

// readsBack makes io read what the job has written, if so much has been written since that this comes next. Called with
// mu held.
func (j *job) readsBack(io *IO) bool {
	s, b := j.task.spec, &j.backlog
	if b.due == 0 && s.Backlog > 0 && b.len() >= s.Backlog {
		b.due = s.Backlog
		if s.BacklogBatch > 0 {
			b.due = min(s.BacklogBatch, b.len())
		}
	}
	if b.due == 0 {
		return false
	}
	b.due--
	p := b.take()
	io.aside, io.started = true, nanotime()
	j.readBack(io, p.offset, p.length)
	return true
}

// readBack makes io read and check a part of what was written. Called with mu held.
func (j *job) readBack(io *IO, offset int64, n int) {
	l := j.task.ledger
	io.Op, io.Offset, io.Length, io.Buf = Read, offset, n, io.mem[:n]
	io.version = io.version[:int64(n)/l.unit]
	l.note(io.version, offset)
	j.busy++
}
