package duty

import (
	"sync"
	"time"
)

// Patience is how long a task takes at least before another goroutine takes the place of the one that does
// it, and how long one waits at least before it is declined; twice that at most.
const Patience = 4 * time.Millisecond

// watch looks after tasks that are done and tasks that wait.
type watch struct {
	mu    sync.Mutex
	all   map[*Attendant]struct{}
	timer *time.Timer
	stuck bool   // tasks waited at the last look
	taken uint64 // hall.taken then

	awaits bool   // answers were to come
	looks  uint64 // rings.looks then
}

// watchOver has the watch look until there is nothing to look after.
func (h *hall) watchOver() {
	if !h.watched.Load() && !h.watched.Swap(true) {
		h.lookLater()
	}
}

// lookLater has look called in a while.
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

// look replaces whoever is at the same task as at the last look, declines what waits where nobody
// took anything since, and has rings told where nobody looked.
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
	if h.came() || h.awaits() { // before the line above
		h.watchOver()
	}
}

// came says that a task came since the last look, whether it waits or somebody is at it.
func (h *hall) came() bool {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tasks) > 0 || h.taken != h.watch.taken
}

// round looks once. idle says that nothing was done since the last time, and nothing is.
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

// lookedAt has rings told at which nobody has looked since the last time though answers were to come, and
// tells whether they still are. watch.mu is held.
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
