package blockdev

import (
	"slices"
	"sync"
	"sync/atomic"
)

// rangeLock keeps a write of a file away from other requests of the same blocks. Neither the page cache nor a device
// whose sectors are smaller than blocks has to do that, so a read could return a block half old and half new. A request
// locks exactly its range, all of it at once, so nobody holds a block and waits for another. One that has to wait does
// so without a goroutine, in a queue that is fair.
//
// A read that the page cache answers at once locks nothing, and changes no memory that processors share. Afterwards it
// looks whether there was a write in its stripes meanwhile. If so, it is done again with its range locked. Stripes share
// a table of bounded size, so that this may also happen because of a write that is far away.
type rangeLock struct {
	resume func(*Request) // has a request done that waited, and now has its range; must not block

	mu      sync.Mutex
	writers []*Request // that have their ranges
	others  []*Request // that have theirs, and exclude only writers
	waiting requestQueue
	here    [rangeEntries]int // requests of stripes, which have their ranges or wait

	writes [rangeEntries]struct{ begun, ended atomic.Uint64 } // of stripes
}

const rangeEntries = 1024 // a power of two

// newRangeLock returns a lock with room for as many requests as the kernel's queue and the workers do at once.
func newRangeLock(resume func(*Request)) *rangeLock {
	const room = aioEntries + poolSize
	return &rangeLock{resume: resume, writers: make([]*Request, 0, room), others: make([]*Request, 0, room)}
}

// lock returns true if r has its range now, or had it already. Otherwise resume is called when it has.
func (l *rangeLock) lock(r *Request) bool {
	if r.locked {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count(r, 1) > 1 && l.mustWait(r) {
		l.waiting.push(r)
		return false
	}
	l.give(r)
	return true
}

// unlock takes r's range back, if r has it, and gives those their ranges that waited for r alone.
func (l *rangeLock) unlock(r *Request) {
	if !r.locked {
		return
	}
	l.mu.Lock()
	l.take(r)
	var next requestQueue
	if l.count(r, -1) > 0 {
		next = l.passOn(r)
	}
	l.mu.Unlock()
	for w := next.pop(); w != nil; w = next.pop() {
		l.resume(w)
	}
}

// count adds n to the number of requests in each of r's stripes, and returns the largest. Only if there are others does
// r have to be compared with them.
func (l *rangeLock) count(r *Request, n int) (most int) {
	for s, last := rangeStripes(r); s <= last; s++ {
		here := &l.here[s%rangeEntries]
		*here += n
		most = max(most, *here)
	}
	return most
}

// passOn gives those their ranges that waited for r alone, and returns them.
func (l *rangeLock) passOn(r *Request) (next requestQueue) {
	waiting := l.waiting.take()
	for w := waiting.pop(); w != nil; w = waiting.pop() {
		if !w.excludes(r) || l.mustWait(w) {
			l.waiting.push(w)
			continue
		}
		l.give(w)
		next.push(w)
		if w.writes() && w.covers(r) {
			break // all others who waited for r wait for w now
		}
	}
	l.waiting.join(waiting)
	return next
}

// mustWait reports whether r must wait for one that has its range, or for one that waits already.
func (l *rangeLock) mustWait(r *Request) bool {
	if slices.ContainsFunc(l.writers, r.excludes) || r.writes() && slices.ContainsFunc(l.others, r.excludes) {
		return true
	}
	for w := l.waiting.first; w != nil; w = w.next {
		if r.excludes(w) {
			return true
		}
	}
	return false
}

func (l *rangeLock) give(r *Request) {
	r.locked = true
	like := l.like(r)
	*like = append(*like, r)
	if r.writes() {
		for s, last := rangeStripes(r); s <= last; s++ {
			l.writes[s%rangeEntries].begun.Add(1)
		}
	}
}

func (l *rangeLock) take(r *Request) {
	r.locked = false
	if r.writes() {
		for s, last := rangeStripes(r); s <= last; s++ {
			l.writes[s%rangeEntries].ended.Add(1)
		}
	}
	like := l.like(r)
	all := *like
	i, last := slices.Index(all, r), len(all)-1
	all[i], all[last] = all[last], nil
	*like = all[:last]
}

// like returns those with their ranges among which r belongs.
func (l *rangeLock) like(r *Request) *[]*Request {
	if r.writes() {
		return &l.writers
	}
	return &l.others
}

// ended counts the writes that have ended in r's stripes.
func (l *rangeLock) ended(r *Request) (n uint64) {
	for s, last := rangeStripes(r); s <= last; s++ {
		n += l.writes[s%rangeEntries].ended.Load()
	}
	return n
}

// begun counts the writes that have begun in r's stripes. If it is what ended returned earlier, there was none between
// the two calls: each that has begun had already ended.
func (l *rangeLock) begun(r *Request) (n uint64) {
	for s, last := rangeStripes(r); s <= last; s++ {
		n += l.writes[s%rangeEntries].begun.Load()
	}
	return n
}

// rangeStripes returns the first and the last of r's stripes, each entry of the table at most once.
func rangeStripes(r *Request) (first, last uint64) {
	first, last = uint64(r.Offset)>>stripeShift, uint64(r.Offset+r.Length-1)>>stripeShift
	return first, min(last, first+rangeEntries-1)
}

// writes reports whether r changes blocks and has to do so as a whole. A discard may be seen half done, as its blocks'
// content is of no interest.
func (r *Request) writes() bool { return r.Op == OpWrite || r.Op == OpWriteZeroes }

// excludes reports whether r and o may not be done at once.
func (r *Request) excludes(o *Request) bool {
	return (r.writes() || o.writes()) && r.Offset < o.Offset+o.Length && o.Offset < r.Offset+r.Length
}

// covers reports whether all of o's range is in r's.
func (r *Request) covers(o *Request) bool {
	return r.Offset <= o.Offset && o.Offset+o.Length <= r.Offset+r.Length
}
