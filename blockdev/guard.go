package blockdev

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Guard keeps writers of a mapping away from its readers, so that a block is read and sent old or new, never mixed, and
// a packet's checksum holds until the packet has left.
//
// The mapping is divided into stripes. Readers share a stripe; a writer has it alone for the duration of a copy. A view
// can be held for long (until the peer has acknowledged its data), so a writer that meets one does not block: its
// request waits in the stripe and continues from where it stopped when the last view there is released. Atomicity is
// per block and stripes consist of whole blocks, so nobody ever holds two stripes and waits for a third.
//
// If the mapping has spare places, a whole stripe can be moved to another place while views exist, which continue to
// show the old place. That is also done with a stripe whose writer has waited as long as patience allows: a slow reader
// doesn't keep others from writing.
//
// Stripes share the entries of a table of bounded size: two stripes that are far apart may, rarely, wait for one
// another needlessly.
type Guard struct {
	entries []guardEntry // a power of two
	apply   func(r *Request, off, n int64)
	finish  func(r *Request)
	places  *places // nil if stripes can't move

	patience *time.Timer // calls hurry; only with places
	waited   atomic.Bool // the timer is running
}

// guardEntry has a cache line of its own.
type guardEntry struct {
	mu       sync.Mutex
	views    int32        // readers, short and long
	replaced place        // a list of replaced places that the views may show
	waiting  requestQueue // writers that wait for views to become 0
	long     bool         // they have waited since before the last hurry
	_        [64 - 40]byte
}

const (
	stripeSize   = MaxBlockSize // so that no block lies in two
	stripeShift  = 16
	guardEntries = 8192
	together     = 256 // stripes that are kept from others at once, at most; a power of two

	// A view's token consists of the first stripe and the number of stripes.
	viewCountBits = 16
	maxView       = (1<<viewCountBits - 2) * stripeSize
)

// NewGuard returns the guard of a mapping of size bytes. Read and Write call apply for each piece of a request, in the
// goroutine that is able to, and finish is called when a request that had to wait has ended. A piece lies in one stripe,
// unless the request drops what is there.
func NewGuard(size int64, apply func(r *Request, off, n int64), finish func(r *Request)) *Guard {
	stripes := uint64(size+stripeSize-1) >> stripeShift
	n := min(uint64(guardEntries), 1<<bits.Len64(max(stripes, 1)-1))
	return &Guard{entries: make([]guardEntry, n), apply: apply, finish: finish}
}

func (g *Guard) entry(stripe int64) *guardEntry {
	return &g.entries[stripe&int64(len(g.entries)-1)]
}

// pieceAt returns how many of n bytes at off lie in off's stripe.
func pieceAt(off, n int64) int64 {
	return min(n, stripeSize-off&(stripeSize-1))
}

// ErrView is the ErrBusy that Memory.View and Lender.Lend return: made only once, since it isn't a failure and must cost
// nothing.
var ErrView error = &OpError{Op: "view", Path: "memory", Offset: -1, Kind: ErrBusy}

// View takes the range for a long read. It returns false if a writer is already waiting for a part of it, so that
// successive readers don't keep the writer waiting for ever, and if the range is longer than about 4 GiB.
func (g *Guard) View(off, n int64) (ViewToken, bool) {
	if n > maxView {
		return 0, false
	}
	if n == 0 {
		return 0, true
	}
	first, last := off>>stripeShift, (off+n-1)>>stripeShift
	for s := first; s <= last; s++ {
		e := g.entry(s)
		e.mu.Lock()
		busy := !e.waiting.empty()
		if !busy {
			e.views++
		}
		e.mu.Unlock()
		if busy {
			g.Release(ViewToken(first<<viewCountBits | (s - first)))
			return 0, false
		}
	}
	return ViewToken(first<<viewCountBits | (last - first + 1)), true
}

// Release ends a view. Writers that waited for it continue now, in the caller's goroutine.
func (g *Guard) Release(t ViewToken) {
	first, count := int64(t>>viewCountBits), int64(t&(1<<viewCountBits-1))
	for s := first; s < first+count; s++ {
		g.leave(g.entry(s))
	}
}

// leave ends one reader's use of a stripe. After the last, replaced places become free, and the waiting writers
// continue.
func (g *Guard) leave(e *guardEntry) {
	e.mu.Lock()
	e.views--
	if e.views > 0 || e.waiting.empty() && e.replaced == 0 {
		e.mu.Unlock()
		return
	}
	writers, replaced := e.takeWriters(), e.replaced
	e.replaced = 0
	e.mu.Unlock()
	if replaced != 0 {
		g.places.give(replaced)
	}
	g.goOn(writers, false)
}

func (e *guardEntry) takeWriters() requestQueue {
	e.long = false
	return e.waiting.take()
}

// goOn makes writers that waited continue.
func (g *Guard) goOn(writers requestQueue, hurry bool) {
	for r := writers.pop(); r != nil; r = writers.pop() {
		if r.drops() && r.Length-r.done >= background {
			go g.goOnWith(r, hurry) // the caller has others to serve
			continue
		}
		g.goOnWith(r, hurry)
	}
}

func (g *Guard) goOnWith(r *Request, hurry bool) {
	if g.proceed(r, hurry) {
		g.finish(r)
	}
}

// Read applies r piece by piece, concurrently with other readers. It doesn't wait for writers that wait.
func (g *Guard) Read(r *Request) {
	for done := int64(0); done < r.Length; {
		off := r.Offset + done
		n := pieceAt(off, r.Length-done)
		e := g.entry(off >> stripeShift)
		e.mu.Lock()
		e.views++
		e.mu.Unlock()
		g.apply(r, off, n)
		g.leave(e)
		done += n
	}
}

// Write applies r piece by piece, or if it drops what is there, to many stripes at once. It returns false if r must wait for a view: finish is then called for it later.
func (g *Guard) Write(r *Request) bool {
	r.done = 0
	return g.proceed(r, false)
}

// proceed applies the rest of r; in a hurry, it moves stripes that have views aside if it can.
func (g *Guard) proceed(r *Request, hurry bool) bool {
	for r.done < r.Length {
		off := r.Offset + r.done
		if r.drops() {
			if n := g.applyIdle(r, off, r.Length-r.done); n > 0 {
				r.done += n
				continue
			}
		}
		n := pieceAt(off, r.Length-r.done)
		e := g.entry(off >> stripeShift)
		e.mu.Lock()
		switch {
		case e.views == 0:
			g.apply(r, off, n)
		case !hurry || !g.applyAside(e, r, off, n):
			e.waiting.push(r)
			e.mu.Unlock()
			g.wait()
			return false
		}
		e.mu.Unlock()
		r.done += n
	}
	return true
}

// applyIdle applies r to the stripes from off on, up to the first one that has views, and returns how many of the n bytes
// that is. Giving many stripes back at once takes a fraction of the time: of a huge page that loses a part, the system
// makes small ones first. It takes the entries in the order of the table, see lockAll.
func (g *Guard) applyIdle(r *Request, off, n int64) int64 {
	first := off >> stripeShift
	end := first | (min(int64(len(g.entries)), together) - 1)
	end = min(end, (off+n-1)>>stripeShift) + 1
	s := first
	for ; s < end; s++ {
		e := g.entry(s)
		e.mu.Lock()
		if e.views > 0 {
			e.mu.Unlock()
			break
		}
	}
	if s == first {
		return 0
	}
	n = min(n, s<<stripeShift-off)
	g.apply(r, off, n)
	g.unlockAll(first, s-1)
	return n
}

// Exclude calls fn for consecutive parts of the range, in order, with no writer in them. Readers are not excluded: fn
// must change each block at once, as unmapping pages does.
func (g *Guard) Exclude(off, n int64, fn func(off, n int64) error) error {
	most := min(int64(len(g.entries)), together)
	for n > 0 {
		first := off >> stripeShift
		end := min(off+n, (first+most)<<stripeShift)
		last := (end - 1) >> stripeShift
		g.lockAll(first, last)
		err := fn(off, end-off)
		g.unlockAll(first, last)
		if err != nil {
			return err
		}
		n -= end - off
		off = end
	}
	return nil
}

// lockAll locks the entries of stripes in the order of the table, as everything does that locks several. There are no
// more stripes than entries.
func (g *Guard) lockAll(first, last int64) {
	mask := int64(len(g.entries) - 1)
	wrapped := (first | mask) + 1
	for s := wrapped; s <= last; s++ {
		g.entry(s).mu.Lock()
	}
	for s := first; s < min(wrapped, last+1); s++ {
		g.entry(s).mu.Lock()
	}
}

func (g *Guard) unlockAll(first, last int64) {
	for s := first; s <= last; s++ {
		g.entry(s).mu.Unlock()
	}
}
