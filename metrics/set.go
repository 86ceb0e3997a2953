package metrics

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/version"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Set is what a program exports. It is a [prometheus.Collector] for programs that have their own registry.
type Set struct {
	// Program is the name on the status page. It may be changed before the page is served.
	Program string

	own  *prometheus.Registry // for the Go runtime and the process
	made time.Time

	mu          sync.Mutex
	targets     []*entry[*target.Target]
	volumes     []*entry[namedVolume]
	rnics       []*entry[namedRNIC]
	rdma        bindings[*rdma.Counters]
	tcp         bindings[*tcp.Counters]
	controllers []*entry[*host.Controller]
	subsystems  []*entry[*multipath.Subsystem]
	benches     []*entry[func() Bench]
	ready       []*entry[func() error]
}

type namedVolume struct {
	name string
	v    blockdev.Volume
}

type namedRNIC struct {
	name string
	nic  *softrnic.RNIC
}

// New returns a Set that shows the program itself: its version, and, if the Set serves it (Handler, Serve), the Go
// runtime and the process, which other registries have already.
func New() *Set {
	s := &Set{Program: filepath.Base(os.Args[0]), own: prometheus.NewRegistry(), made: time.Now()}
	s.own.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return s
}

var buildInfo = gauge("build_info", "The program's version, with the value 1.", "version")

// Describe implements prometheus.Collector. It describes all metrics that a Set can show, so a registry takes only one
// Set; if there are more, each needs a label of its own (prometheus.WrapRegistererWith).
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector. If a target has hundreds of hosts, Handler produces the same metrics in a
// tenth of the time.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	snaps := s.snapshots()
	s.collect(ch, snaps)
	collectControllers(ch, snaps)
}

func (s *Set) snapshots() (snaps []target.Snapshot) {
	s.mu.Lock()
	targets := values(s.targets)
	s.mu.Unlock()
	for _, t := range targets {
		snaps = append(snaps, t.Snapshot())
	}
	return snaps
}

// gather collects all metrics: it returns families made by the library, and writes the others to e.
func (s *Set) gather(e *exposition) ([]*dto.MetricFamily, error) {
	snaps := s.snapshots()
	now := prometheus.NewRegistry()
	now.MustRegister(collector(func(ch chan<- prometheus.Metric) { s.collect(ch, snaps) }))
	fs, err := prometheus.Gatherers{s.own, now}.Gather()
	e.controllers(snaps)
	return fs, err
}

// collect shows everything except controllers.
func (s *Set) collect(ch chan<- prometheus.Metric, snaps []target.Snapshot) {
	s.mu.Lock()
	volumes, rnics := values(s.volumes), values(s.rnics)
	rdmas, tcps := s.rdma.sums(rdmaFigures), s.tcp.sums(tcpFigures)
	controllers, subsystems, benches := values(s.controllers), values(s.subsystems), values(s.benches)
	s.mu.Unlock()
	send(ch, buildInfo, 1, text(version.Version))
	for i := range snaps {
		collectTarget(ch, &snaps[i])
	}
	for _, v := range volumes {
		collectVolume(ch, v.name, v.v.Info())
	}
	for _, n := range rnics {
		collectRNIC(ch, n.name, n.nic)
	}
	collectBindings(ch, rdmaFigures, rdmas)
	collectBindings(ch, tcpFigures, tcps)
	for _, sub := range subsystems {
		collectPaths(ch, sub)
		controllers = append(controllers, sub.Controllers()...)
	}
	collectHost(ch, controllers)
	for _, read := range benches {
		b := read()
		b.collect(ch)
	}
}

// AddTarget shows a target: its transports, namespaces and controllers. A Set has at most one target at a time.
func (s *Set) AddTarget(t *target.Target) (remove func()) { return add(s, &s.targets, t) }

// AddVolume shows the properties of a volume under a unique name, the label volume.
func (s *Set) AddVolume(name string, v blockdev.Volume) (remove func()) {
	return add(s, &s.volumes, namedVolume{text(name), v})
}

// AddRNIC shows a software RNIC, its connection manager and its socket under a unique name, the label device.
func (s *Set) AddRNIC(name string, nic *softrnic.RNIC) (remove func()) {
	return add(s, &s.rnics, namedRNIC{text(name), nic})
}

// AddRDMA shows the counters of an NVMe/RDMA listener or host transport. Those of one role are added up. Call remove when
// it is closed: what it has counted stays in the sum.
func (s *Set) AddRDMA(role Role, c *rdma.Counters) (remove func()) {
	return addBinding(s, &s.rdma, rdmaFigures, role, c)
}

// AddTCP shows the counters of an NVMe/TCP listener or host transport. Those of one role are added up. Call remove when
// it is closed: what it has counted stays in the sum.
func (s *Set) AddTCP(role Role, c *tcp.Counters) (remove func()) {
	return addBinding(s, &s.tcp, tcpFigures, role, c)
}

// AddController shows a host's controller. Controllers of one subsystem with the same identifier are distinguished by
// their transport.
func (s *Set) AddController(c *host.Controller) (remove func()) { return add(s, &s.controllers, c) }

// AddSubsystem shows a host's subsystem with several paths, and the controllers of live paths. There may be only one
// subsystem of each name at a time.
func (s *Set) AddSubsystem(sub *multipath.Subsystem) (remove func()) {
	return add(s, &s.subsystems, sub)
}

// AddReady makes /readyz fail while check returns an error.
func (s *Set) AddReady(check func() error) (remove func()) { return add(s, &s.ready, check) }

// entry is something that was added; its address distinguishes it from equal ones.
type entry[T any] struct{ value T }

func values[T any](entries []*entry[T]) []T {
	all := make([]T, len(entries))
	for i, e := range entries {
		all[i] = e.value
	}
	return all
}

func add[T any](s *Set, to *[]*entry[T], x T) (remove func()) {
	e := &entry[T]{x}
	s.mu.Lock()
	*to = append(*to, e)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		*to = slices.DeleteFunc(*to, func(o *entry[T]) bool { return o == e })
		s.mu.Unlock()
	}
}

// Ready returns the first error of the checks of AddReady.
func (s *Set) Ready() error {
	s.mu.Lock()
	checks := values(s.ready)
	s.mu.Unlock()
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
