package duty

import (
	"slices"
	"sync/atomic"
)

// Ring is a place where answers arrive without anybody being woken, if somebody looks.
type Ring interface {
	// Awaited tells whether answers are to come.
	Awaited() bool
	// Look takes what has arrived, and tells whether something had. Several may call it. It must not block.
	Look() bool
	// Left says that nobody looks any more. It must not block.
	Left()
}

// rings is what those on duty look at. The list is copied when it changes.
type rings struct {
	list  atomic.Pointer[[]Ring]
	looks atomic.Uint64
	// unseen says that there were no looks for a while though answers were to come: whoever is on
	// duty is held up.
	unseen atomic.Bool
}

// AddRing has those on duty look at r. Look and Left may be called from then on.
func AddRing(r Ring) { std.changeRings(func(l []Ring) []Ring { return append(l, r) }) }

// RemoveRing undoes AddRing. A call of Look or Left that has begun may still be under way.
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

// Attended tells whether somebody is on duty, who will look at the rings. If so, and nobody does for
// twice Patience, they are told by Left.
func Attended() bool { return std.attended() }

func (h *hall) attended() bool {
	if h.present.Load() == 0 || h.rings.unseen.Load() {
		return false
	}
	h.watchOver()
	return true
}

// Look has the rings looked at, and tells whether one had something.
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

// Awaits tells whether answers are to come.
func (a *Attendant) Awaits() bool { return a.h.awaits() }

func (h *hall) awaits() bool { return slices.ContainsFunc(h.allRings(), Ring.Awaited) }

// leaveRings tells the rings that nobody looks any more.
func (h *hall) leaveRings() {
	for _, r := range h.allRings() {
		r.Left()
	}
}
