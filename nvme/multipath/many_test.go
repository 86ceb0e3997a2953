package multipath

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestManyNamespaces: handling a status that contradicts the ANA log for one namespace, and opening one, cost no
// more with many other namespaces than without. All of these happen at once when a target with many namespaces
// changes.
func TestManyNamespaces(t *testing.T) {
	const namespaces = 1024
	s := &Subsystem{}
	p := &path{sub: s, state: Live, spaces: map[*space]*way{}, doubted: make(chan struct{}, 1), rescan: make(chan struct{}, 1)}
	s.paths = []*path{p}
	for range namespaces {
		n := newSpace(s, new(host.Namespace))
		s.spaces = append(s.spaces, n)
		p.spaces[n] = &way{ns: n, path: p, state: nvme.ANAOptimized}
	}
	s.mu.Lock()
	s.settle(s.spaces...)
	w := p.spaces[s.spaces[0]]
	doubt := testing.AllocsPerRun(10, func() {
		w.doubt()
		w.stale = false
	})
	open := testing.AllocsPerRun(10, func() {
		s.mu.Lock()
		s.enter(nil, new(host.Namespace))
	})
	if doubt > 50 || open > 50 {
		t.Errorf("with %d namespaces, %v allocations for a doubt about one, %v to open one", namespaces, doubt, open)
	}
}
