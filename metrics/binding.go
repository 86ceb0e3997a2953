package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Role is the side of a connection that the program takes.
type Role string

// Roles.
const (
	Target Role = "target"
	Host   Role = "host"
)

// figure is one series for each role: the sum over its listeners, or over its hosts' transports.
type figure[C any] struct {
	metric
	labels []string // after the role
	read   func(C) float64
}

// bindings holds the listeners and transports of one kind.
type bindings[C any] struct {
	open []*binding[C]
	// gone is the sum over those that were removed, indexed like the figures. Without it a sum would decrease, and
	// Prometheus would take all that is left for an increase.
	gone map[Role][]float64
}

// binding holds the counters of a listener or of a host's transport.
type binding[C any] struct {
	role     Role
	counters C
}

// addBinding adds a listener or transport with figures.
func addBinding[C any](s *Set, to *bindings[C], figures []figure[C], role Role, counters C) (remove func()) {
	b := &binding[C]{role, counters}
	s.mu.Lock()
	defer s.mu.Unlock()
	to.open = append(to.open, b)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		to.remove(b, figures)
	}
}

// remove is called with the lock of the Set held.
func (bs *bindings[C]) remove(b *binding[C], figures []figure[C]) {
	i := slices.Index(bs.open, b)
	if i < 0 {
		return
	}
	bs.open = slices.Delete(bs.open, i, i+1)
	if bs.gone == nil {
		bs.gone = map[Role][]float64{}
	}
	if bs.gone[b.role] == nil {
		bs.gone[b.role] = make([]float64, len(figures))
	}
	for i, f := range figures {
		if f.kind == prometheus.CounterValue {
			bs.gone[b.role][i] += f.read(b.counters)
		}
	}
}

// sums returns the figures of each role. It is called with the lock of the Set held.
func (bs *bindings[C]) sums(figures []figure[C]) map[Role][]float64 {
	all := map[Role][]float64{}
	for role, gone := range bs.gone {
		all[role] = slices.Clone(gone)
	}
	for _, b := range bs.open {
		if all[b.role] == nil {
			all[b.role] = make([]float64, len(figures))
		}
		for i, f := range figures {
			all[b.role][i] += f.read(b.counters)
		}
	}
	return all
}

func collectBindings[C any](ch chan<- prometheus.Metric, figures []figure[C], sums map[Role][]float64) {
	for role, values := range sums {
		for i, f := range figures {
			send(ch, f.metric, values[i], append([]string{string(role)}, f.labels...)...)
		}
	}
}
