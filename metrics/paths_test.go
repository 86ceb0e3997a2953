package metrics

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// connectPaths makes a host with one path, or with one from each of the given addresses, which opens the namespace.
func (p *pair) connectPaths(from ...string) *multipath.Namespace {
	t := p.t
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	p.must(err)
	t.Cleanup(func() { tr.Close() })
	cfg := host.Config{Transport: tr, Remote: p.tcpAddr, SubNQN: testNQN, HostNQN: hostNQN, HostID: [16]byte{1}, Queues: 1}
	paths := []host.Config{cfg}
	if len(from) > 0 {
		paths = nil
	}
	for _, addr := range from {
		cfg.Local = netip.MustParseAddr(addr)
		paths = append(paths, cfg)
	}
	s, err := multipath.Connect(t.Context(), multipath.Config{Paths: paths})
	p.must(err)
	t.Cleanup(func() { s.Close() })
	p.set.AddSubsystem(s)
	ns, err := s.Namespace(t.Context(), 1)
	p.must(err)
	return ns
}

// TestPathsFromTwoAddresses: paths to one address that differ in the host's own have metrics of their own.
func TestPathsFromTwoAddresses(t *testing.T) {
	p := newPair(t)
	p.connectPaths("127.0.0.1", "127.0.0.2")
	fs := families(t, p.set)
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		path := "path=tcp://" + p.tcpAddr.String() + " from " + from
		if got := value(t, fs, "host_path_up", "subsystem="+testNQN, path).GetGauge().GetValue(); got != 1 {
			t.Errorf("%s: host_path_up is %v", path, got)
		}
	}
}

// TestPathFigures: the metrics of a path are shown under its name, in addition to those of its controller.
func TestPathFigures(t *testing.T) {
	p := newPair(t)
	ns := p.connectPaths()
	for range 3 {
		_, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0)
		p.must(err)
	}
	fs := families(t, p.set)
	sub, path := "subsystem="+testNQN, "path=tcp://"+p.tcpAddr.String()
	for name, want := range map[string]float64{"host_path_up": 1, "host_path_ana_state": 1, "host_path_requests_in_flight": 0} {
		if got := value(t, fs, name, sub, path).GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]float64{"host_path_requests_total": 3, "host_path_connects_total": 1, "host_path_losses_total": 0} {
		if got := value(t, fs, name, sub, path).GetCounter().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := value(t, fs, "host_requests_waiting", sub).GetGauge().GetValue(); got != 0 {
		t.Errorf("%v requests wait", got)
	}
	if got := value(t, fs, "host_controller_up", sub, "transport=tcp").GetGauge().GetValue(); got != 1 {
		t.Errorf("its controller is %v", got)
	}
	if problems, err := testutil.GatherAndLint(gatherer(t, p.set)); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestPathPage: the status page of a host shows the controllers of its paths separately, and the total that a load
// generator has moved by all of them, including those that are gone, as are the errors.
func TestPathPage(t *testing.T) {
	p := newPair(t)
	p.set = New() // the host's
	ns := p.connectPaths()
	_, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0)
	p.must(err)
	p.use(p.connectTCP())
	st := p.set.status()
	keys := map[string]bool{}
	for _, peer := range st.Peers {
		keys[peer.Key] = true
		if peer.IO.Read.Bytes == 0 {
			t.Errorf("%s is shown to have read nothing", peer.Key)
		}
	}
	if len(st.Peers) != 2 || len(keys) != 2 || st.IO.Read.Bytes < 4096+5*8<<10 {
		t.Errorf("the page shows %+v and has %d bytes read", st.Peers, st.IO.Read.Bytes)
	}
	sub := p.set.subsystems[0].value
	before := st.IO.Errors
	if _, err := sub.Controllers()[0].IdentifyPage(t.Context(), 0xff, 0, nvme.CSINVM); err == nil {
		t.Error("CNS FFh is identified")
	}
	if st := p.set.status(); st.IO.Errors != before+1 {
		t.Errorf("the page has %d errors after one more than %d", st.IO.Errors, before)
	}
	p.must(sub.Close())
	if st := p.set.status(); st.IO.Errors != before+1 || len(st.Peers) != 1 {
		t.Errorf("the page has %d errors and %d controllers when the path is gone, want %d and 1", st.IO.Errors, len(st.Peers), before+1)
	}
	const moved = 1 << 40
	p.set.AddBench(func() Bench { return Bench{Write: target.OpStats{Ops: 1, Bytes: moved}} })
	if st := p.set.status(); st.IO.Write.Bytes != moved {
		t.Errorf("the page has %d bytes written of %d", st.IO.Write.Bytes, moved)
	}
}
