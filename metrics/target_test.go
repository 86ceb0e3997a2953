package metrics

import (
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
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

// TestANAStateOfEndpoint: the state of an ANA group is that of an endpoint, whatever ports were added before it: after a
// restart another port may have its PORTID, and an alert would be about that.
func TestANAStateOfEndpoint(t *testing.T) {
	p := newPair(t)
	first := tcp.DiscoveryPort(netip.MustParseAddrPort("127.0.0.1:1"))
	second := tcp.DiscoveryPort(netip.MustParseAddrPort("127.0.0.1:2"))
	p.must(p.target.AddPort(first))
	p.must(p.target.AddPort(second))
	id, err := p.target.PortID(second.Transport, second.Addr)
	p.must(err)
	p.must(p.target.SetANAState(id, 1, nvme.ANAInaccessible))
	state := func() float64 {
		t.Helper()
		return value(t, families(t, p.set), "target_ana_state", "listen=tcp://127.0.0.1:2", "group=1").GetGauge().GetValue()
	}
	if n := state(); n != float64(nvme.ANAInaccessible) {
		t.Errorf("state %v", n)
	}
	p.must(p.target.RemovePort(first.Transport, first.Addr))
	p.must(p.target.RemovePort(second.Transport, second.Addr))
	p.must(p.target.AddPort(second))
	if n := state(); n != float64(nvme.ANAOptimized) {
		t.Errorf("state %v of the port that is added again", n)
	}
}
