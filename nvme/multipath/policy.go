package multipath

import "fmt"

// Policy chooses among paths that are equally good. The names are those of Linux's iopolicy.
type Policy uint8

// Policies.
const (
	// QueueDepth takes the path with the fewest outstanding requests: the one that just answered, often, so that what is
	// sent next shares its packets and system calls, and a slow path gets less.
	QueueDepth Policy = iota
	// RoundRobin takes one path after another.
	RoundRobin
)

func (p Policy) String() string {
	switch p {
	case RoundRobin:
		return "round-robin"
	case QueueDepth:
		return "queue-depth"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Policies returns all policies.
func Policies() []Policy { return []Policy{QueueDepth, RoundRobin} }

// ParsePolicy parses the name of a policy.
func ParsePolicy(s string) (Policy, error) {
	for _, p := range Policies() {
		if s == p.String() {
			return p, nil
		}
	}
	if s == "numa" {
		return 0, fmt.Errorf("%q goes by the distance of processors to adapters, of which a program has none: want queue-depth or round-robin", s)
	}
	return 0, fmt.Errorf("%q is not a policy: want queue-depth or round-robin", s)
}

// choose picks the way for the next request, or nil if there is none.
func (n *space) choose() *way {
	ways := *n.ways.Load()
	switch {
	case len(ways) == 0:
		return nil
	case len(ways) == 1:
		return ways[0]
	case n.sub.cfg.Policy == RoundRobin:
		return ways[int(n.turn.Add(1)%uint64(len(ways)))]
	}
	best, least := ways[0], ways[0].path.counters.underWay()
	for _, w := range ways[1:] {
		if a := w.path.counters.underWay(); a < least {
			best, least = w, a
		}
	}
	return best
}
