package metrics

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
)

// TestNobodyYet: a target's counters exist before anybody has connected. Prometheus sees no increase in a counter that
// first appears with value 1, so the first host that fails to authenticate would raise no alert.
func TestNobodyYet(t *testing.T) {
	p := newPair(t)
	p.must(p.target.AddPort(tcp.DiscoveryPort(p.tcpAddr)))
	fs := families(t, p.set)
	for _, name := range []string{
		"lost_hosts", "refused_connects", "authentication_failures", // used by alerts
	} {
		if n := value(t, fs, "target_"+name+"_total", "transport=tcp").GetCounter().GetValue(); n != 0 {
			t.Errorf("%s: %v", name, n)
		}
	}
}
