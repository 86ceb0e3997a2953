package duty

import (
	"sync"
	"time"
)

// Patience is how long a task takes at least before another goroutine takes the place of the one that does it, and how
// long a task waits at least before it is declined; twice that at most.
const Patience = 4 * time.Millisecond

// watch looks after tasks that are being done and tasks that wait.
type watch struct {
	mu    sync.Mutex
	all   map[*Attendant]struct{}
	timer *time.Timer
	stuck bool   // tasks waited at the last look
	taken uint64 // hall.taken at that time

	awaits bool   // answers were pending at the last look
	looks  uint64 // rings.looks at that time
}

// watchOver starts the watch, which runs until there is nothing to look after.
func (h *hall) watchOver() {
	if !h.watched.Load() && !h.watched.Swap(true) {
		h.lookLater()
	}
}

// lookLater schedules the next look.
func (h *hall) lookLater() {
	w := &h.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(Patience, h.look)
	} else {
		w.timer.Reset(Patience)
	}
}

// look replaces attendants that are at the same task as at the last look, declines waiting tasks if none was taken
// since, and tells rings if nobody looked.
func (h *hall) look() {
	late, idle := h.round()
	for _, a := range late {
		a.replace()
	}
	if !idle {
		h.lookLater()
		return
	}
	h.rest()
}

// rest ends the watch, unless there is something to look after again.
func (h *hall) rest() {
	h.watched.Store(false)
	if h.came() || h.awaits() { // came before watched was cleared
		h.watchOver()
	}
}

// came reports whether a task came since the last look, whether it still waits or somebody is at it.
func (h *hall) came() bool {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tasks) > 0 || h.taken != h.watch.taken
}

// round looks once. idle says that nothing was done since the last time, and nothing is being done.
func (h *hall) round() (late []*Attendant, idle bool) {
	w := &h.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	idle = true
	for a := range w.all {
		at := a.work.Load()
		if at%2 == 1 {
			idle = false
			if at == a.seen && a.work.CompareAndSwap(at, at+1) {
				late = append(late, a)
			}
		}
		a.seen = at
	}
	h.mu.Lock()
	taken, waits := h.taken, len(h.tasks) > 0
	h.mu.Unlock()
	if waits && w.stuck && taken == w.taken && len(late) == 0 {
		h.decline()
		waits = false
	}
	idle = idle && !waits && taken == w.taken
	w.stuck, w.taken = waits, taken
	return late, !h.lookedAt() && idle
}

// lookedAt tells the rings if nobody has looked at them since the last time though answers were pending, and reports
// whether answers are pending at rings that were not told. watch.mu is held.
func (h *hall) lookedAt() bool {
	w := &h.watch
	awaits, looks := h.awaits(), h.rings.looks.Load()
	if awaits && w.awaits && looks == w.looks {
		h.rings.unseen.Store(true)
		h.leaveRings()
		awaits = false
	}
	w.awaits, w.looks = awaits, looks
	return awaits
}
