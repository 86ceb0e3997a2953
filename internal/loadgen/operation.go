package loadgen

import (
	"fmt"
	"math/bits"
)

// prepare gives io the next operation: that of the plan, or else one that starts now. It returns false if there is
// none. Called with mu held.
func (j *job) prepare(io *IO, now int64) bool {
	io.aside = false
	switch {
	case j.err != nil || j.task.stop.Load():
		return false
	case j.checking:
		return j.prepareCheck(io)
	case j.thinks(io):
		return false
	case j.rewrites(io):
		j.rewrite(io)
		return true
	case j.seek != nil && j.seek.over:
		return false
	case j.flushDue():
		j.flush(io)
		return true
	case j.left <= 0 || j.quota <= 0:
		return false
	case j.readsBack(io):
		return true
	}
	var bytes int
	if io.due = j.paced || j.plan != nil && j.due(); io.due {
		a := j.plan.next()
		io.Op, bytes = a.op, a.bytes
		io.started = max(j.start+a.due, j.think.ended) // a rest is asked for, and not the device's fault
	} else {
		io.Op, bytes = j.what.choose()
		io.started = now
	}
	bytes = j.what.fit(io.Op, bytes, j.left)
	j.left -= int64(bytes)
	j.quota--
	j.think.add(j.task.spec.ThinkIssued)
	if io.Length, io.Buf = bytes, nil; io.Op != Trim {
		io.Buf = io.mem[:bytes]
	}
	if !j.aim(io) {
		return false
	}
	if io.FUA = false; io.Op == Write {
		io.FUA = j.task.spec.Sync
		j.wrote()
	}
	if (j.task.ledger != nil || j.refill(io)) && !io.due {
		io.started = nanotime() // don't charge the device for the time that stamping or filling took
	}
	j.started()
	return true
}

// wrote counts a write that is about to be submitted. Called with mu held.
func (j *job) wrote() {
	for i := range j.dirty {
		j.dirty[i]++
	}
}

// flushDue reports whether so many writes have been started that a flush comes next, which it is then counted as.
// Called with mu held.
func (j *job) flushDue() (due bool) {
	for i, every := range [...]int{j.task.spec.Fsync, j.task.spec.Fdatasync} {
		if every > 0 && j.dirty[i] >= every {
			j.dirty[i], due = 0, true
		}
	}
	return due
}

// flush makes io a flush. Called with mu held.
func (j *job) flush(io *IO) {
	io.Op, io.Length, io.Buf, io.started = Flush, 0, nil, nanotime()
	j.started()
}

// endSync makes io the flush that ends a job that writes, if requested. Called with mu held, when nothing is outstanding
// and nothing else will come.
func (j *job) endSync(io *IO) bool {
	if s := j.task.spec; !s.EndFsync || !s.Does(Write) || j.synced || j.err != nil {
		return false
	}
	j.synced = true
	j.flush(io)
	return true
}

// refill gives io new data to write, if requested, or zeroes where a read may have left others. Called with mu held.
func (j *job) refill(io *IO) bool {
	s := j.task.spec
	switch {
	case io.Op != Write:
		return false
	case s.Zeroes:
		if !s.Does(Read) {
			return false // the buffer is as it was
		}
		clear(io.Buf)
	case s.composed():
		j.compose(io.Buf)
	case s.Refill:
		fillNoise(io.Buf, j.fresh.Uint64())
	default:
		return false
	}
	return true
}

// started counts an operation that is about to be submitted. Called with mu held.
func (j *job) started() {
	j.busy++
	j.depths[min(bits.Len(uint(j.busy)), depthLevels)-1]++
}

// aim chooses where io goes. Called with mu held.
func (j *job) aim(io *IO) bool {
	base := j.task.base
	io.Offset = base + j.what.offset(io.Op, io.Length)
	l := j.task.ledger
	switch {
	case l == nil:
		return true
	case io.Op == Read:
		io.version = io.version[:int64(io.Length)/l.unit]
		l.note(io.version, io.Offset)
		return true
	}
	for tries := 0; !l.claim(io.Offset, int64(io.Length)); tries++ {
		if tries == maxTries {
			j.fail(fmt.Errorf("verify: every place to write to is being written to; use a larger --size or a lower --iodepth"))
			return false
		}
		j.elsewhere(io, tries)
	}
	if io.Op == Write {
		l.stamp(io.Buf, io.Offset)
	}
	return true
}

// Offsets that aim tries: a few from the pattern, then one after another.
const (
	patternTries = 16
	maxTries     = 1 << 20
)

func (j *job) elsewhere(io *IO, tries int) {
	base, n := j.task.base, int64(io.Length)
	if tries < patternTries {
		io.Offset = base + j.what.offset(io.Op, io.Length)
		return
	}
	if io.Offset += n; io.Offset-base > j.what.span-n {
		io.Offset = base
	}
}

// prepareCheck makes io read the next piece of the written range. Called with mu held.
func (j *job) prepareCheck(io *IO) bool {
	s, l := j.task.spec, j.task.ledger
	piece := int64(len(io.mem))
	for left := j.what.span - j.position; left > 0; left = j.what.span - j.position {
		n, at := min(piece, left), j.position
		j.position += min(piece*int64(s.NumJobs), left)
		if !l.written(j.task.base+at, n) {
			continue
		}
		j.readBack(io, j.task.base+at, int(n))
		return true
	}
	return false
}

// judge checks the data of an operation that ended, and returns how many bytes it could check. Called without mu
// held, since it takes time.
func (j *job) judge(io *IO) (int64, error) {
	if io.Err != nil {
		return 0, io.Err
	}
	l := j.task.ledger
	switch {
	case !j.task.spec.Verify, io.Op == Flush, j.rewrites(io):
		return 0, nil
	case io.Op == Trim:
		l.forget(io.Offset, int64(io.Length))
		return 0, nil
	case l == nil:
		if err := checkStamps(io.Buf, io.Offset); err != nil {
			return 0, err
		}
		return int64(len(io.Buf)), nil
	case io.Op == Write:
		l.end(io.Buf, io.Offset)
		return 0, nil
	}
	n, err := l.check(io.Buf, io.Offset, io.version)
	return int64(n) * l.unit, err
}
