package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
	"github.com/nvme-anywhere/nvmeof/metrics"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// listener is an endpoint that the target listens on.
type listener struct {
	said    []string       // lines about it for people
	stops   []func() error // take it away from hosts, without waiting
	closers []func() error // wait for commands of its connections in volumes, and release everything
}

func (l *listener) onStop(f func() error)  { l.stops = append(l.stops, f) }
func (l *listener) onClose(f func() error) { l.closers = append(l.closers, f) }

// onRemove is onClose for functions that can't fail.
func (l *listener) onRemove(f func()) {
	l.onClose(func() error {
		f()
		return nil
	})
}

// stop takes the endpoint away from hosts; close must follow, which may take as long as a volume hangs.
func (l *listener) stop() error { return undo(l.stops) }

// close acquires server.change itself: the caller must not hold it.
func (l *listener) close() error { return undo(l.closers) }

// undo calls all functions, in reverse order.
func undo(all []func() error) error {
	var errs []error
	for _, f := range slices.Backward(all) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openRNICs is the RNICs of a local address, and the number of listeners that use them.
type openRNICs struct {
	*softrnic.Group
	users  int
	remove []func() // each removes the figures of one
}

// listen opens an endpoint as l, with the ANA states of next, and adds it to the discovery log. Even after an error l
// must be stopped and closed.
func (s *server) listen(next *config.Config, e cli.Endpoint, l *listener) error {
	if err := cli.CheckZone(e.Addr.Addr()); err != nil {
		return fmt.Errorf("%slisten %w", s.mark, err)
	}
	for _, o := range s.cfg.Listen {
		if o.Overlaps(e) {
			return fmt.Errorf("%slisten %s: the target listens on %s, which has that port until it is gone: change that first, and this then", s.mark, e, o)
		}
	}
	port, open := tcp.DiscoveryPort(e.Addr), s.listenTCP
	if e.Transport == nvme.TransportRDMA {
		port, open = rdma.DiscoveryPort(e.Addr, nvme.RDMAProviderRoCE2), s.listenRDMA
	}
	if err := s.addPort(port, l); err != nil {
		return s.listenError(e, err)
	}
	if err := s.setANA(next, e); err != nil {
		return err
	}
	if err := open(e, l); err != nil {
		return s.listenError(e, err)
	}
	return s.advertise(e, l)
}

// listenError says why the target can't listen on an endpoint, and what to do.
func (s *server) listenError(e cli.Endpoint, err error) error {
	name := s.mark + "listen"
	switch {
	case e.Transport != nvme.TransportTCP: // the RNIC's error says everything
	case errors.Is(err, unix.EADDRINUSE):
		return cli.Say(err, "%s %s: TCP port in use, most likely by another nvmetgt or the kernel's target; "+
			"find it with `ss -ltnp sport = :%d`, or choose another address or port", name, e, e.Addr.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return cli.Say(err, "%s %s: not an address of this host; %s", name, e, udp.NotLocalRemedy(e.Addr.Addr()))
	case errors.Is(err, unix.EACCES) && e.Addr.Port() < 1024:
		return cli.Say(err, "%s %s: ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another", name, e)
	case errors.Is(err, unix.EACCES):
		return cli.Say(err, "%s %s: the system refuses this port, most likely by a security module (as SELinux) or "+
			"sysctl net.ipv4.ip_unprivileged_port_start: permit it, or choose another", name, e)
	}
	return fmt.Errorf("%s %s: %w", name, e, err)
}

// inCapsule returns the size of in-capsule data for the transports' configurations: 0 for their default, below 0
// for none.
func (s *server) inCapsule() int {
	switch v := s.cfg.Network.InCapsule; {
	case v == nil:
		return 0
	case *v == 0:
		return -1
	default:
		return int(*v)
	}
}

func (s *server) listenRDMA(e cli.Endpoint, l *listener) error {
	addrs := []netip.Addr{e.Addr.Addr()}
	if e.Addr.Addr().IsUnspecified() {
		var err error
		if addrs, err = localAddrs(e.Addr.Addr()); err != nil {
			return err
		}
	}
	for _, a := range addrs {
		if err := s.listenRDMAOn(netip.AddrPortFrom(a, e.Addr.Port()), l); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) listenRDMAOn(addr netip.AddrPort, l *listener) error {
	nics, err := s.rnicsOf(addr.Addr(), l)
	if err != nil {
		return err
	}
	limits := s.cfg.Limits.Explicit()
	r, err := rdma.ListenTarget(nics, addr, s.target, rdma.TargetConfig{
		InCapsule: s.inCapsule(), QueueDepth: s.cfg.Network.Explicit().QueueDepth,
		Memory: int64(limits.Memory), MaxPeerConns: limits.HostConnections, Log: s.log,
	})
	if err != nil {
		return err
	}
	l.onRemove(s.figures.AddRDMA(metrics.Target, r.Counters()))
	l.onClose(r.Close)
	l.onStop(func() error { r.Stop(); return nil })
	l.said = append(l.said, fmt.Sprintf("rdma %s (software RNIC, UDP port %d, %s)", r.Addr(), softrnic.Port, nics.Offloads()))
	if f := nics.Faults(); f != nil {
		cfg := f.Config()
		l.said = append(l.said, fmt.Sprintf("     with faults: %s", &cfg))
	}
	return nil
}

// addPort adds a port until l is stopped, so that hosts find its ANA states whenever they come. No host is told of it
// before the target listens there.
func (s *server) addPort(p target.Port, l *listener) error {
	p.Unlisted = true
	if err := s.target.AddPort(p); err != nil {
		return err
	}
	l.onStop(func() error { return s.target.RemovePort(p.Transport, p.Addr) })
	return nil
}

// advertise puts the port of an endpoint into the discovery log until l is stopped: it goes from there first.
func (s *server) advertise(e cli.Endpoint, l *listener) error {
	if err := s.target.ListPort(e.Transport, e.Addr, true); err != nil {
		return err
	}
	l.onStop(func() error { return s.target.ListPort(e.Transport, e.Addr, false) })
	return nil
}

// referral returns another discovery service in the engine's form. Which RDMA its RNIC speaks isn't known.
func referral(e cli.Endpoint) target.Referral {
	r := target.Referral{Transport: e.Transport, Addr: e.Addr}
	if e.Transport == nvme.TransportRDMA {
		r.TSAS = rdma.DiscoveryPort(e.Addr, nvme.RDMAProviderNone).TSAS
	}
	return r
}

// rnicsOf returns the RNICs of a local address, which are opened for its first listener and closed with its last.
func (s *server) rnicsOf(a netip.Addr, l *listener) (*softrnic.Group, error) {
	open := s.rnics[a]
	if open == nil {
		g, err := softrnic.OpenGroup(a, s.rnicConfig())
		if err != nil {
			return nil, err
		}
		open = &openRNICs{Group: g}
		for _, nic := range g.RNICs() {
			open.remove = append(open.remove, s.figures.AddRNIC(nic.Name(), nic))
		}
		s.rnics[a] = open
	}
	open.users++
	l.onClose(func() error {
		s.change.Lock()
		defer s.change.Unlock()
		if open.users--; open.users > 0 {
			return nil
		}
		for _, remove := range open.remove {
			remove()
		}
		delete(s.rnics, a)
		return open.Close()
	})
	return open.Group, nil
}

func (s *server) rnicConfig() softrnic.Config {
	n, limits := &s.cfg.Network, s.cfg.Limits.Explicit()
	cfg := softrnic.Config{Plain: n.PlainUDP, NoLocalICRC: n.NoLocalICRC, LocalMemory: n.LocalMemory, Engines: n.Engines, BusyPoll: s.busyPoll(), DSCP: uint8(n.DSCP), Priority: n.Priority, Capture: s.capture,
		MaxHalfOpen: limits.HalfOpen, MaxPeerHalfOpen: limits.HostHalfOpen}
	if n.Fault != nil {
		cfg.Fault = n.Fault.Config
	}
	return cfg
}

// busyPoll returns the BusyPoll field of either transport.
func (s *server) busyPoll() time.Duration {
	switch v := s.cfg.Network.BusyPoll; {
	case v == nil:
		return 0
	case *v == 0:
		return busypoll.Off
	default:
		return time.Duration(*v)
	}
}

// localAddrs returns the addresses of this machine in the family of wildcard, including loopback.
func localAddrs(wildcard netip.Addr) ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	as := ofFamily(wildcard, all)
	if len(as) == 0 {
		return nil, errors.New("no interface has an address of that family")
	}
	return as, nil
}

// ofFamily returns those of all that wildcard stands for. Link-local IPv6 addresses are not included: they mean
// nothing without the name of their interface.
func ofFamily(wildcard netip.Addr, all []net.Addr) (as []netip.Addr) {
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() == wildcard.Is4() && (wildcard.Is4() || !p.Addr().IsLinkLocalUnicast()) {
			as = append(as, p.Addr())
		}
	}
	return as
}

func (s *server) listenTCP(e cli.Endpoint, l *listener) error {
	limits := s.cfg.Limits.Explicit()
	t, err := tcp.ListenTarget(e.Addr, s.target, tcp.TargetConfig{
		InCapsule: s.inCapsule(), QueueDepth: s.cfg.Network.Explicit().QueueDepth,
		Memory: int64(limits.Memory), MaxConns: limits.Connections, MaxPeerConns: limits.HostConnections,
		BusyPoll: s.busyPoll(),
		Log:      s.log,
		Tap:      s.tap(),
	})
	if err != nil {
		return err
	}
	l.onRemove(s.figures.AddTCP(metrics.Target, t.Counters()))
	l.onClose(t.Close)
	l.onStop(func() error { t.Stop(); return nil })
	l.said = append(l.said, fmt.Sprintf("tcp  %s", t.Addr()))
	return nil
}

// tap returns what observes the bytes of NVMe/TCP connections: nil without a capture.
func (s *server) tap() func(local, remote netip.AddrPort) tcp.Tap {
	if s.capture == nil {
		return nil
	}
	return func(local, remote netip.AddrPort) tcp.Tap { return s.capture.Stream(local, remote, false) }
}

// closeListeners closes every endpoint, the last listed first.
func (s *server) closeListeners() error {
	var errs []error
	for _, e := range slices.Backward(s.cfg.Listen) {
		l := s.listeners[e]
		errs = append(errs, l.stop(), l.close())
		delete(s.listeners, e)
	}
	return errors.Join(errs...)
}
