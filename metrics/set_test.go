package metrics

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// full returns a Set with everything in it, after both hosts have used the target, and the identifiers of their
// controllers.
func full(t *testing.T) (s *Set, rdma, tcp string) {
	p := newPair(t)
	one, two := p.connectRDMA(), p.connectTCP()
	p.use(one)
	p.use(two)
	p.set.AddBench(func() Bench { return Bench{} })
	return p.set, fmt.Sprintf("cntlid=%d", one.CNTLID()), fmt.Sprintf("cntlid=%d", two.CNTLID())
}

// families returns everything that is served.
func families(t testing.TB, s *Set) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	p := expfmt.NewTextParser(model.LegacyValidation)
	fs, err := p.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// gatherer returns what is served, for the library's checks.
func gatherer(t testing.TB, s *Set) prometheus.Gatherer {
	return prometheus.GathererFunc(func() (fs []*dto.MetricFamily, err error) {
		for _, f := range families(t, s) {
			fs = append(fs, f)
		}
		return fs, nil
	})
}

// value returns the only metric of a family with the labels, written "name=value".
func value(t *testing.T, fs map[string]*dto.MetricFamily, name string, labels ...string) *dto.Metric {
	t.Helper()
	var found *dto.Metric
	for _, m := range fs["nvmeof_"+name].GetMetric() {
		if hasLabels(m, labels) {
			if found != nil {
				t.Fatalf("%s%v: more than one", name, labels)
			}
			found = m
		}
	}
	if found == nil {
		t.Fatalf("%s%v: none", name, labels)
	}
	return found
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		ok := false
		for _, l := range m.GetLabel() {
			ok = ok || l.GetName()+"="+l.GetValue() == want
		}
		if !ok {
			return false
		}
	}
	return true
}

func TestFigures(t *testing.T) {
	s, rdma, tcp := full(t)
	var fs map[string]*dto.MetricFamily
	soon.Until(func() bool { // commands may get through before the CM handles the RTU that confirms their connection
		fs = families(t, s)
		return value(t, fs, "cm_accepts_total", "device=target").GetCounter().GetValue() >= 2
	})
	expect := func(want float64, name string, labels ...string) {
		t.Helper()
		m := value(t, fs, name, labels...)
		if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
			t.Errorf("%s%v: %v, want %v", name, labels, got, want)
		}
	}
	for _, tr := range []string{"rdma", "tcp"} {
		expect(5, "target_commands_total", "transport="+tr, "op=read")
		expect(3, "target_commands_total", "transport="+tr, "op=write")
		expect(5*8192, "target_bytes_total", "transport="+tr, "op=read")
		expect(3*8192, "target_bytes_total", "transport="+tr, "op=write")
		expect(2, "target_queues", "transport="+tr)
		expect(2, "target_connects_total", "transport="+tr)
		expect(0, "target_command_errors_total", "transport="+tr, "type=media")
		h := value(t, fs, "target_command_duration_seconds", "transport="+tr, "op=read").GetHistogram()
		if h.GetSampleCount() != 5 || h.GetSampleSum() <= 0 {
			t.Errorf("%s: %d reads took %v s", tr, h.GetSampleCount(), h.GetSampleSum())
		}
		expect(1, "host_controller_up", "transport="+tr)
		expect(5*8192, "host_bytes_total", "transport="+tr, "queue=1", "op=read")
		expect(9, "host_commands_completed_total", "transport="+tr, "queue=1") // Connect is one
		expect(2, tr+"_connections", "role=target")
		expect(2, tr+"_connections", "role=host")
	}
	expect(2, "target_controllers")
	expect(10, "namespace_commands_total", "subsystem="+testNQN, "nsid=1", "op=read")
	expect(64<<20, "namespace_size_bytes", "nsid=1")
	expect(64<<20, "volume_size_bytes", "volume=1")
	expect(1, "volume_info", "kind=mem")
	expect(5, "controller_commands_total", rdma, "op=read")
	expect(2, "controller_queues", tcp)
	expect(1, "controller_info", rdma, "host_nqn="+hostNQN, "transport=rdma")
	expect(2, "cm_accepts_total", "device=target")
	expect(2, "cm_messages_total", "device=host", "direction=sent", "message=REQ")
	expect(0, "cm_rejects_total", "device=host", "direction=received", "reason=other")
	expect(0, "rnic_out_of_sequence_total", "device=target")
	if value(t, fs, "rnic_sent_pkts_total", "device=target").GetCounter().GetValue() == 0 ||
		value(t, fs, "udp_received_bytes_total", "device=target").GetCounter().GetValue() == 0 {
		t.Error("no packets counted")
	}
	expect(2, "tcp_pdus_total", "role=host", "direction=sent", "type=ICReq")
	if value(t, fs, "tcp_data_bytes_total", "role=host", "direction=received").GetCounter().GetValue() < 5*8192 {
		t.Error("less data counted than was read")
	}
}

// TestLint checks every name against the conventions of Prometheus.
func TestLint(t *testing.T) {
	s, _, _ := full(t)
	problems, err := testutil.GatherAndLint(gatherer(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "nvmeof_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestCollector: a program's own registry gets the series that are served, and the library finds them consistent:
// nothing is there twice, and everything was described.
func TestCollector(t *testing.T) {
	s, _, _ := full(t)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	fs, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	served, err := gatherer(t, s).Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, want := seriesOf(fs), seriesOf(served)
	for series := range want {
		if _, ok := got[series]; !ok && strings.HasPrefix(series, "nvmeof_") {
			t.Errorf("not collected: %s", series)
		}
	}
	for series := range got {
		if _, ok := want[series]; !ok {
			t.Errorf("not served: %s", series)
		}
	}
	if err := r.Register(New()); err == nil {
		t.Error("a second Set is registered, whose metrics are the same")
	}
	if !r.Unregister(s) {
		t.Error("it can't be unregistered")
	}
	if fs, err := r.Gather(); err != nil || len(fs) > 0 {
		t.Errorf("%d families are left, and %v", len(fs), err)
	}
}

// seriesOf returns the series of families, with everything that a counter or gauge says about itself, and their values.
func seriesOf(fs []*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for _, f := range fs {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			all[fmt.Sprintf("%s%q %v %s", f.GetName(), labels, f.GetType(), f.GetHelp())] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

// TestRemoved: nothing that was removed is shown, or kept.
func TestRemoved(t *testing.T) {
	p := newPair(t)
	p.connectPaths()
	c := p.connectTCP()
	s := New()
	add := func() (removes []func()) {
		return []func(){
			s.AddTarget(p.target), s.AddController(c), s.AddSubsystem(p.set.subsystems[0].value),
			s.AddReady(func() error { return errors.New("not ready") }), s.AddBench(func() Bench { return Bench{} }),
			s.AddVolume("1", p.set.volumes[0].value.v), s.AddRNIC("target", p.set.rnics[0].value.nic),
		}
	}
	shown := func() (names []string) {
		for name := range families(t, s) {
			if strings.HasPrefix(name, "nvmeof_") {
				names = append(names, name)
			}
		}
		return names
	}
	for range 2 { // what was removed may be added again, or another in its place
		removes := add()
		if n := len(shown()); n < 100 || s.Ready() == nil {
			t.Errorf("%d families; ready: %v", n, s.Ready())
		}
		for _, remove := range removes {
			remove()
			remove() // removing again changes nothing
		}
		if names := shown(); !slices.Equal(names, []string{"nvmeof_build_info"}) || s.Ready() != nil {
			t.Errorf("%q; ready: %v", names, s.Ready())
		}
		if st := s.status(); len(st.Volumes)+len(st.Peers) > 0 {
			t.Errorf("the page shows %+v, %+v", st.Volumes, st.Peers)
		}
	}
	if n := len(s.targets) + len(s.controllers) + len(s.subsystems) + len(s.ready) + len(s.benches) + len(s.volumes) + len(s.rnics); n > 0 {
		t.Errorf("%d things are kept", n)
	}
}

func TestHistogram(t *testing.T) {
	s := &target.OpStats{Nanos: 5e9}
	s.Latency[0], s.Latency[3], s.Latency[target.LatencyBuckets-1] = 2, 1, 4
	var m dto.Metric
	if err := histogram(targetIO.latency, s, "rdma", "read").Write(&m); err != nil {
		t.Fatal(err)
	}
	h := m.GetHistogram()
	if h.GetSampleCount() != 7 || h.GetSampleSum() != 5 || len(h.GetBucket()) != target.LatencyBuckets-1 {
		t.Errorf("%d samples of %v s in %d buckets", h.GetSampleCount(), h.GetSampleSum(), len(h.GetBucket()))
	}
	for i, b := range h.GetBucket() {
		want := uint64(2)
		if i >= 3 {
			want = 3
		}
		if b.GetUpperBound() != target.LatencyBound(i).Seconds() || b.GetCumulativeCount() != want {
			t.Errorf("bucket %d: %d up to %v, want %d", i, b.GetCumulativeCount(), b.GetUpperBound(), want)
		}
	}
}

// TestBench: what a load generator measured is shown until it is removed.
func TestBench(t *testing.T) {
	s := New()
	var b Bench
	b.Read = target.OpStats{Ops: 20, Bytes: 20 << 12, Nanos: 20 * 100_000}
	b.Read.Latency[target.LatencyBucket(100*time.Microsecond)] = 20
	b.Trim = target.OpStats{Ops: 5, Bytes: 5 << 16, Nanos: 5 * 200_000}
	b.Errors = 3
	remove := s.AddBench(func() Bench { return b })
	fs := families(t, s)
	for name, want := range map[string]float64{"bench_ios_total": 20, "bench_bytes_total": 20 << 12} {
		if n := value(t, fs, name, "op=read").GetCounter().GetValue(); n != want {
			t.Errorf("%s: %v, want %v", name, n, want)
		}
	}
	if n := value(t, fs, "bench_errors_total").GetCounter().GetValue(); n != 3 {
		t.Errorf("%v errors", n)
	}
	h := value(t, fs, "bench_io_duration_seconds", "op=read").GetHistogram()
	if h.GetSampleCount() != 20 || h.GetSampleSum() != 0.002 {
		t.Errorf("%d samples, %v s", h.GetSampleCount(), h.GetSampleSum())
	}
	for _, k := range h.GetBucket() {
		if want := k.GetUpperBound() > 130e-6; (k.GetCumulativeCount() == 20) != want {
			t.Errorf("%d up to %v", k.GetCumulativeCount(), k.GetUpperBound())
		}
	}
	if st := s.status(); st.IO.Read.Ops != 20 || st.IO.Read.Seconds != 0.002 {
		t.Errorf("the page shows %+v", st.IO.Read)
	} else if tr := st.IO.Trim; tr.Ops != 5 || tr.Bytes != 5<<16 || tr.Seconds != 0.001 {
		t.Errorf("of trims the page shows %+v", tr)
	}
	remove()
	if fs := families(t, s); fs["nvmeof_bench_ios_total"] != nil {
		t.Error("shown though removed")
	}
}

// TestPageClock: the page computes rates and ages from times that don't depend on the date.
func TestPageClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := New(), time.Now()
		time.Sleep(90 * time.Second)
		st := s.status()
		st.addHost("nqn", &target.ControllerStats{Since: began})
		if st.Seconds != 90 || st.Peers[0].Age != 90 {
			t.Errorf("after 90 s it is at %v, and a host is there for %v", st.Seconds, st.Peers[0].Age)
		}
	})
}

// TestText: a host whose name isn't UTF-8 does no harm.
func TestText(t *testing.T) {
	ch := make(chan prometheus.Metric, 1)
	send(ch, volumeSize, 1, text("a\xffb"))
	var m dto.Metric
	if err := (<-ch).Write(&m); err != nil || m.GetLabel()[0].GetValue() != "a\uFFFDb" {
		t.Errorf("%v, %v", &m, err)
	}
}

// TestAllShown: of a program that has everything, each metric that a Set describes is shown.
func TestAllShown(t *testing.T) {
	p := newPair(t)
	p.connectRDMA()
	p.connectTCP()
	p.connectPaths()
	p.must(p.target.AddPort(tcp.DiscoveryPort(p.tcpAddr)))
	p.set.AddBench(func() Bench { return Bench{} })
	faulty, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{Fault: &fault.Config{}})
	p.must(err)
	t.Cleanup(func() { faulty.Close() })
	p.set.AddRNIC("faulty", faulty)

	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		p.set.Collect(ch)
	}()
	shown := map[*prometheus.Desc]bool{}
	for m := range ch {
		shown[m.Desc()] = true
	}
	for _, d := range descs {
		if !shown[d] {
			t.Errorf("missing: %v", d)
		}
	}
}
