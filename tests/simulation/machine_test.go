package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

const subNQN = "nqn.2024-01.com.example:shared"

// store keeps what a target saves.
type store struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (s *store) Load(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[name], nil
}

func (s *store) Save(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[name] = bytes.Clone(data)
	return nil
}

func (s *store) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, name)
	return nil
}

// server is a machine with a target, which has a port at each of its addresses.
type server struct {
	w     *world
	addrs []netip.Addr
	store *store

	target *target.Target // nil while it is stopped
	ports  []*port        // at addrs
}

func (s *server) start() error {
	w := s.w
	cfg := target.Config{
		Store: s.store, Authentication: w.authentication(), Limits: target.Limits{ConnectTimeout: w.limits.connect},
		Subsystems: []target.SubsystemConfig{{NQN: subNQN, AllowAnyHost: true}},
	}
	for i, d := range w.disks {
		cfg.Subsystems[0].Namespaces = append(cfg.Subsystems[0].Namespaces, w.namespace(i, d))
	}
	var err error
	if s.target, err = target.New(cfg); err != nil {
		return err
	}
	for _, a := range s.addrs {
		p, err := w.listen(a, s.target)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
	}
	return nil
}

// stop ends the target, in an orderly way if the hosts are given time for that, after its RNICs if they are unplugged.
func (s *server) stop(drain time.Duration, unplug bool) error {
	if unplug {
		for _, p := range s.ports {
			if err := p.unplug(); err != nil {
				return err
			}
		}
	}
	if drain > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		_ = s.target.Drain(ctx) // what was cut off is sent again
		cancel()
	}
	var errs []error
	for _, p := range s.ports {
		p.listener.Stop()
	}
	errs = append(errs, s.target.Close(context.Background()))
	for _, p := range s.ports {
		errs = append(errs, p.close())
	}
	for _, p := range s.ports {
		errs = append(errs, p.unplug())
	}
	if snap := s.target.Snapshot(); snap.Connections != 0 || snap.Controllers != 0 {
		errs = append(errs, fmt.Errorf("a closed target has %d connections and %d controllers", snap.Connections, snap.Controllers))
	}
	s.target, s.ports = nil, nil
	return errors.Join(errs...)
}

// machine is a machine with a host, which has paths from each of its addresses.
type machine struct {
	w        *world
	index    int
	nqn      string
	id       nvme.HostID
	addrs    []netip.Addr
	adapters []*adapter // at addrs
	paths    []route
	turn     chan struct{} // a lock to wait for in virtual time: who changes the above

	mu     sync.Mutex
	sub    *multipath.Subsystem
	spaces []*multipath.Namespace // by disk; replaced as a whole
}

// route is one path of a host: by which of its adapters it goes, and where.
type route struct {
	by int
	to netip.Addr
}

func (m *machine) open() error {
	for _, a := range m.addrs {
		adapter, err := m.w.openAdapter(a)
		if err != nil {
			return err
		}
		m.adapters = append(m.adapters, adapter)
	}
	return nil
}

// path returns the configuration of one path.
func (m *machine) path(r route) host.Config {
	cfg := host.Config{
		Transport: m.adapters[r.by].transport(m.w.kinds[r.to]), Local: m.addrs[r.by], Remote: netip.AddrPortFrom(r.to, nvmePort),
		SubNQN: subNQN, HostNQN: m.nqn, HostID: m.id, Queues: 2, QueueSize: 8,
		KATO: m.w.limits.kato, ConnectTimeout: m.w.limits.connect, IOTimeout: m.w.limits.io,
	}
	if a := m.w.authentication(); a != nil {
		cfg.Authentication = &host.Authentication{Secret: a.Hosts[m.nqn].Host}
	}
	return cfg
}

// connect connects to the subsystem by all paths, and opens the namespaces.
func (m *machine) connect() error {
	cfg := multipath.Config{
		Policy: m.w.limits.policy, ReconnectDelay: m.w.limits.reconnect, ControllerLoss: -1, FastIOFail: m.w.limits.fastFail,
		Changed: func(p multipath.PathStatus) { m.w.logf("host %d: %s is %v: %v", m.index, p.Name(), p.State, p.Err) },
	}
	for _, r := range m.paths {
		cfg.Paths = append(cfg.Paths, m.path(r))
	}
	sub, err := multipath.Connect(context.Background(), cfg)
	if err != nil {
		return err
	}
	var spaces []*multipath.Namespace
	for i := range m.w.disks {
		n, err := sub.Namespace(context.Background(), uint32(i+1))
		if err != nil {
			return errors.Join(err, sub.Close())
		}
		spaces = append(spaces, n)
	}
	m.mu.Lock()
	m.sub, m.spaces = sub, spaces
	m.mu.Unlock()
	return nil
}

// tend adds the paths again that were refused, as whoever runs a host does when he hears of it, and reports whether all
// are live.
func (m *machine) tend() bool {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	sub := m.subsystem()
	if sub.Err() != nil {
		if m.connect() == nil {
			m.ended(sub)
		}
		return false
	}
	all := true
	for _, r := range m.paths {
		switch m.state(r).State {
		case multipath.Live:
		case multipath.GivenUp:
			_ = sub.AddPath(m.path(r)) // the last one may just have been given up
			all = false
		default:
			all = false
		}
	}
	return all
}

// state returns the state of a path.
func (m *machine) state(r route) multipath.PathStatus {
	for _, p := range m.subsystem().Paths() {
		if p.Source == m.addrs[r.by] && p.Remote.Addr() == r.to {
			return p
		}
	}
	return multipath.PathStatus{}
}

// ended closes a subsystem, and checks its counters.
func (m *machine) ended(sub *multipath.Subsystem) {
	_ = sub.Close() // its paths may be lost
	for _, p := range sub.Paths() {
		if begun, ended := p.Counters.Begun.Load(), p.Counters.Ended.Load(); begun != ended {
			m.w.errorf("host %d: %s has begun %d requests and ended %d", m.index, p.Name(), begun, ended)
		}
	}
}

func (m *machine) subsystem() *multipath.Subsystem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sub
}

func (m *machine) space(disk int) *multipath.Namespace {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spaces[disk]
}

// reboot ends everything while it is used, and begins anew; tend connects again.
func (m *machine) reboot(pause time.Duration) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.w.check("close", m.close())
	time.Sleep(pause)
	m.w.check("open", m.open())
}

// close ends all of it.
func (m *machine) close() error {
	m.ended(m.subsystem())
	var errs []error
	for _, a := range m.adapters {
		errs = append(errs, a.close())
	}
	m.adapters = nil
	return errors.Join(errs...)
}

// newSecret makes the secret of a host.
func newSecret() *dhchap.Secret {
	s, err := dhchap.Generate(nvme.AuthSHA256, 32)
	if err != nil {
		panic(err)
	}
	return s
}
