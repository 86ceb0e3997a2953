package duty

import (
	"slices"
	"sync/atomic"
)

// Ring is a place where answers arrive without waking anybody, if somebody looks.
type Ring interface {
	// Awaited reports whether answers are pending.
	Awaited() bool
	// Look handles what has arrived, and reports whether anything had. Several goroutines may call it. It must not
	// block.
	Look() bool
	// Left says that nobody looks at the ring any more. It must not block.
	Left()
}

// rings holds the rings that attendants on duty look at. The list is copied when it changes.
type rings struct {
	list  atomic.Pointer[[]Ring]
	looks atomic.Uint64
	// unseen says that nobody looked for a while though answers were pending: those on duty are held up.
	unseen atomic.Bool
}

// AddRing has attendants on duty look at r. Look and Left may be called from then on.
func AddRing(r Ring) { std.changeRings(func(l []Ring) []Ring { return append(l, r) }) }

// RemoveRing undoes AddRing. A call of Look or Left may still be in progress when it returns.
func RemoveRing(r Ring) {
	std.changeRings(func(l []Ring) []Ring { return slices.DeleteFunc(l, func(x Ring) bool { return x == r }) })
}

func (h *hall) changeRings(change func([]Ring) []Ring) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := change(slices.Clone(h.allRings()))
	h.rings.list.Store(&l)
}

func (h *hall) allRings() []Ring {
	if l := h.rings.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Attended reports whether an attendant is on duty that will look at the rings. If so, and none does for twice
// Patience, the rings are told by Left.
func Attended() bool { return std.attended() }

func (h *hall) attended() bool {
	if h.present.Load() == 0 || h.rings.unseen.Load() {
		return false
	}
	h.watchOver()
	return true
}

// Look looks at the rings, and reports whether one had something.
func (a *Attendant) Look() (found bool) {
	rings := &a.h.rings
	rings.looks.Add(1)
	if rings.unseen.Load() {
		rings.unseen.Store(false)
	}
	for _, r := range a.h.allRings() {
		if r.Awaited() && r.Look() {
			found = true
		}
	}
	return found
}

// Awaits reports whether answers are pending.
func (a *Attendant) Awaits() bool { return a.h.awaits() }

func (h *hall) awaits() bool { return slices.ContainsFunc(h.allRings(), Ring.Awaited) }

// leaveRings tells the rings that nobody looks any more.
func (h *hall) leaveRings() {
	for _, r := range h.allRings() {
		r.Left()
	}
}
