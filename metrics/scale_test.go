package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// memoryConn is a connection without a network, which hosts of scale tests have.
type memoryConn struct {
	attr  target.ConnAttr
	queue *target.Queue
	data  []byte // the host's memory
	ends  sync.Once
	cqe   nvme.Completion
}

func (c *memoryConn) Attr() target.ConnAttr { return c.attr }

func (c *memoryConn) MapSGL(r *target.Request) (int, nvme.Status) {
	r.InCapsule = c.data
	return len(c.data), nvme.StatusSuccess
}

func (c *memoryConn) Alloc(r *target.Request, n int) bool {
	r.Data = append(r.Data[:0], blockdev.Segment{Bytes: make([]byte, n)})
	return true
}

func (c *memoryConn) Pull(r *target.Request) { r.Pulled(nil) }

func (c *memoryConn) Respond(r *target.Request) {
	c.cqe = r.CQE
	r.Sent()
}

func (c *memoryConn) Disconnect(err error) {
	c.ends.Do(func() { go c.queue.Closed(err) })
}

// do executes a command, which is answered before Submit returns.
func (c *memoryConn) do(t testing.TB, set func(*nvme.Command), data []byte) {
	t.Helper()
	r := new(target.Request)
	set(&r.Cmd)
	r.Cmd.SGL1().SetKeyed(nvme.SGLKeyed, 0, uint32(len(data)), 0)
	c.data = data
	c.queue.Submit(r)
	if st := c.cqe.Status(); !st.OK() {
		t.Fatalf("command %#x: %v", r.Cmd[0], st)
	}
}

func connectMemory(t testing.TB, tgt *target.Target, i int, qid, cntlid uint16) *memoryConn {
	t.Helper()
	c := &memoryConn{attr: target.ConnAttr{
		Transport: nvme.TransportTCP, MaxTransfer: 1 << 20, QueueDepth: 128, QID: -1, CNTLID: -1, InCapsule: 8192,
		Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 40000),
	}}
	var err error
	if c.queue, err = tgt.NewQueue(c); err != nil {
		t.Fatal(err)
	}
	d := nvme.ConnectData{SubNQN: testNQN, HostNQN: fmt.Sprintf("nqn.2026-11.org.example:host-%d", i), CNTLID: cntlid}
	d.HostID[0], d.HostID[1] = byte(i), byte(i>>8)
	b, err := d.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.do(t, func(cmd *nvme.Command) { cmd.SetConnect(qid, 31, 0, 0) }, b)
	return c
}

// withHosts makes a target with the given number of hosts, each of which has a queue and has read.
func withHosts(t testing.TB, hosts int) (*Set, *target.Target) {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	tgt, err := target.New(target.Config{
		Limits:     target.Limits{Connections: 2 * hosts, Controllers: hosts},
		Subsystems: []target.SubsystemConfig{{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tgt.Close(t.Context()) })
	for i := range hosts {
		admin := connectMemory(t, tgt, i, 0, nvme.CNTLIDDynamic)
		id := nvme.ConnectResult(admin.cqe.DW0()).CNTLID()
		admin.do(t, func(c *nvme.Command) { c.SetPropertySet(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)) }, nil)
		io := connectMemory(t, tgt, i, 1, id)
		io.do(t, func(c *nvme.Command) { c.SetIO(nvme.OpRead, 1, 0, 1, 0) }, make([]byte, 4096))
	}
	s := New()
	s.AddTarget(tgt)
	return s, tgt
}

func scrape(t testing.TB, client *http.Client, url string) int64 {
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processor returns the processor time that this process has used.
func processor(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scrapeCost returns the processor time of a scrape, including the scraper's part.
func scrapeCost(t testing.TB, client *http.Client, url string) time.Duration {
	const scrapes = 5
	before := processor(t)
	for range scrapes {
		scrape(t, client, url)
	}
	return (processor(t) - before) / scrapes
}

// gauges serves as many series as hosts have, made in the usual way by Prometheus' library.
func gauges(t testing.TB, families, hosts int) *httptest.Server {
	t.Helper()
	r := prometheus.NewRegistry()
	for i := range families {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: fmt.Sprintf("nvmeof_yardstick_%d_total", i)}, []string{"subsystem", "cntlid"})
		r.MustRegister(v)
		for host := range hosts {
			v.WithLabelValues(testNQN, strconv.Itoa(host)).Set(float64(host))
		}
	}
	srv := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{DisableCompression: true}))
	t.Cleanup(srv.Close)
	return srv
}

// TestThousandHosts: labels are bounded by what exists, and a scrape is so cheap that commands, which share no lock
// with it, lose less than 1% of a processor to one scrape a second: a scrape costs a fifth of what as many gauges of
// Prometheus' library cost, where those take 40 ms. The test measures processor time, and compares with those gauges in
// each round, because other programs take wall time away, and slow processors down.
func TestThousandHosts(t *testing.T) {
	const perHost, most = 18, 0.4
	hosts, rounds := 1000, 10
	if race.Enabled { // which makes everything slow
		hosts, rounds = 100, 1
	}
	few, _ := withHosts(t, 1)
	s, tgt := withHosts(t, hosts)
	base, series := countSeries(t, few)-perHost, countSeries(t, s)
	if series > base+perHost*hosts {
		t.Errorf("%d series with %d hosts, %d with none", series, hosts, base)
	}
	names := 0
	for _, f := range families(t, s) {
		for _, m := range f.GetMetric() {
			if hasLabel(m, "host_nqn") {
				names++
			}
		}
	}
	if names != hosts {
		t.Errorf("names of %d hosts are in %d series", hosts, names)
	}
	if len(tgt.Snapshot().Subsystems[0].Controllers) != hosts {
		t.Fatal("not all hosts are connected")
	}
	srv, err := s.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: new(http.Transport)}
	yardstick := gauges(t, perHost, hosts)
	var costs, ratios []float64
	for range rounds {
		ours := scrapeCost(t, client, "http://"+srv.Addr().String()+"/metrics").Seconds()
		theirs := scrapeCost(t, client, yardstick.URL).Seconds()
		costs, ratios = append(costs, ours), append(ratios, ours/theirs)
	}
	slices.Sort(costs)
	slices.Sort(ratios)
	client.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	ratio := ratios[len(ratios)/2]
	t.Logf("%d hosts: %d series; a scrape takes %.1f ms of a processor, %.2f of gauges (%.2f–%.2f)",
		hosts, series, costs[0]*1e3, ratio, ratios[0], ratios[len(ratios)-1])
	if ratio > most && !race.Enabled {
		t.Errorf("a scrape takes %.2f of what as many gauges of the library do, want at most %v", ratio, most)
	}
}

func hasLabel(m *dto.Metric, name string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return true
		}
	}
	return false
}

func countSeries(t testing.TB, s *Set) (n int) {
	t.Helper()
	for _, f := range families(t, s) {
		if !strings.HasPrefix(f.GetName(), "nvmeof_") {
			continue // of the process and Go, which are always there
		}
		for _, m := range f.GetMetric() {
			n++
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 1
			}
		}
	}
	return n
}

func BenchmarkScrape(b *testing.B) {
	for _, hosts := range []int{1, 1000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			s, _ := withHosts(b, hosts)
			srv, err := s.Serve("127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			client := new(http.Client)
			for b.Loop() {
				b.SetBytes(scrape(b, client, "http://"+srv.Addr().String()+"/metrics"))
			}
			srv.Close()
		})
	}
}
