package target

import (
	"slices"
	"sync"
)

// health is what a SMART log counts of namespaces.
type health struct {
	of    [opKinds]struct{ ops, bytes uint64 }
	media uint64
}

func (h *health) add(ns *Namespace) {
	for i := range ns.shards {
		for k := range h.of {
			ops, bytes := ns.shards[i].io.kind[k].totals()
			h.of[k].ops, h.of[k].bytes = h.of[k].ops+ops, h.of[k].bytes+bytes
		}
	}
	h.media += ns.mediaErrors.Load()
}

// departed are namespaces that were removed. A subsystem's counts include theirs, as they never decrease.
type departed struct {
	mu    sync.Mutex
	gone  health
	going []*Namespace // removed, but commands may still be counted in them
}

// health returns what all namespaces that there have been have counted.
func (s *Subsystem) health() health {
	s.departed.mu.Lock()
	defer s.departed.mu.Unlock()
	h := s.departed.gone
	for _, ns := range slices.Concat(s.all(), s.departed.going) {
		h.add(ns)
	}
	return h
}

// leave says that a namespace isn't in the table any more from take on.
func (d *departed) leave(ns *Namespace, take func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	take()
	d.going = append(d.going, ns)
}

// left says that nothing uses a namespace any more.
func (d *departed) left(ns *Namespace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.going, ns); i >= 0 { // else the target closes, or has not served it
		d.going = slices.Delete(d.going, i, i+1)
		d.gone.add(ns)
	}
}
