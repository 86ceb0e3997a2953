package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/internal/statedir"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// drainTime bounds how long hosts are waited for when the program stops.
const drainTime = 5 * time.Second

// server is a running target and everything it holds, in the order in which it was opened.
type server struct {
	flags   *serveFlags
	log     *slog.Logger
	out     io.Writer
	volumes []blockdev.Volume
	target  *target.Target
	capture *softrnic.Capture
	rnics   map[netip.Addr]*softrnic.RNIC
	rdma    []*rdma.Listener
	tcp     []*tcpService
	closers []func() error // last opened, first closed

	incomplete error // why the capture lacks something, once it is closed
}

// tcpService is an NVMe/TCP listener and the goroutine that serves it.
type tcpService struct {
	listener *tcp.Listener
	done     chan error
}

// onClose adds what close undoes.
func (s *server) onClose(f func() error) { s.closers = append(s.closers, f) }

// close undoes everything, last opened first, and logs what goes wrong.
func (s *server) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i](); err != nil {
			s.log.Error("stopping", "err", err)
		}
	}
}

func (s *server) openTarget() error {
	sub := target.SubsystemConfig{
		NQN: s.flags.nqn, Serial: s.flags.serial,
		AllowAnyHost: len(s.flags.hosts) == 0, Hosts: s.flags.hosts,
		MaxControllers: s.flags.controllers,
	}
	for _, v := range s.volumes {
		sub.Namespaces = append(sub.Namespaces, target.NamespaceConfig{Volume: v})
	}
	referrals, err := s.referrals()
	if err != nil {
		return err
	}
	store, err := s.openState()
	if err != nil {
		return err
	}
	t, err := target.New(target.Config{
		Subsystems: []target.SubsystemConfig{sub},
		Referrals:  referrals, DiscoveryNQN: s.flags.discoveryNQN, Store: store,
		Limits: target.Limits{
			QueueDepth: s.flags.queueDepth, Queues: s.flags.maxQueues,
			Connections: s.flags.maxConns,
		},
		Log: s.log,
	})
	if err != nil {
		return err
	}
	s.target = t
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		return t.Close(ctx)
	})
	return nil
}

// openState opens --state, where what persists is kept; without it nothing does.
func (s *server) openState() (target.Store, error) {
	if s.flags.state == "" {
		return nil, nil //nolint:nilnil // no store is a store that the target takes
	}
	d, err := statedir.Open(s.flags.state)
	if errors.Is(err, statedir.ErrInUse) {
		return nil, cli.Say(err, "--state %s: another program has it open; give each a directory of its own", s.flags.state)
	}
	if err != nil {
		return nil, cli.FileError("--state", s.flags.state, err)
	}
	s.onClose(d.Close)
	return d, nil
}

// referrals are those of --referral.
func (s *server) referrals() (all []target.Referral, err error) {
	for _, text := range s.flags.referrals {
		e, err := cli.ParseEndpoint(text)
		if err != nil {
			return nil, cli.Usage("--referral %w", err)
		}
		r := target.Referral{Transport: e.Transport, Addr: e.Addr}
		if e.Transport == nvme.TransportRDMA {
			r.TSAS = rdma.DiscoveryPort(e.Addr).TSAS
		}
		if err := r.Validate(); err != nil {
			return nil, cli.Usage("--referral %s: %w", text, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func (s *server) listenAll(endpoints []cli.Endpoint) error {
	s.rnics = map[netip.Addr]*softrnic.RNIC{}
	if err := s.openCapture(); err != nil {
		return err
	}
	for _, e := range endpoints {
		var err error
		if e.Transport == nvme.TransportRDMA {
			err = s.listenRDMA(e)
		} else {
			err = s.listenTCP(e)
		}
		if err != nil {
			return listenError(e, err)
		}
	}
	return nil
}

// listenError says why an endpoint can't be listened on, and what to do.
func listenError(e cli.Endpoint, err error) error {
	switch {
	case e.Transport != nvme.TransportTCP: // the RNIC says it all
	case errors.Is(err, unix.EADDRINUSE):
		return cli.Say(err, "--listen %s: TCP port in use, most likely by another nvmetgt or the kernel's target; "+
			"find it with `ss -ltnp sport = :%d`, or choose another address or port", e, e.Addr.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return cli.Say(err, "--listen %s: not an address of this host; use one that `ip address` shows, or one of 127.0.0.0/8", e)
	case errors.Is(err, unix.EACCES):
		return cli.Say(err, "--listen %s: ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another", e)
	}
	return fmt.Errorf("--listen %s: %w", e, err)
}

func (s *server) openCapture() error {
	if s.flags.pcap == "" {
		return nil
	}
	c, err := softrnic.CreateCapture(s.flags.pcap, "nvmetgt")
	if err != nil {
		return cli.FileError("--pcap", s.flags.pcap, err)
	}
	s.capture = c
	s.onClose(func() error {
		if err := c.Close(); err != nil {
			s.incomplete = fmt.Errorf("--pcap: %w", err)
		}
		return nil
	})
	return nil
}

// inCapsule is --in-capsule as the transports' configurations have it: 0 for their default,
// below 0 for none.
func (s *server) inCapsule() int {
	if s.flags.inCapsuleSet && s.flags.inCapsule == 0 {
		return -1
	}
	return int(s.flags.inCapsule)
}

func (s *server) listenRDMA(e cli.Endpoint) error {
	addrs := []netip.Addr{e.Addr.Addr()}
	if e.Addr.Addr().IsUnspecified() {
		var err error
		if addrs, err = localAddrs(e.Addr.Addr()); err != nil {
			return err
		}
	}
	for _, a := range addrs {
		nic, err := s.rnic(a)
		if err != nil {
			return err
		}
		l, err := rdma.ListenTarget(nic, netip.AddrPortFrom(a, e.Addr.Port()), s.target, rdma.TargetConfig{
			InCapsule: s.inCapsule(), QueueDepth: s.flags.queueDepth, Log: s.log,
			Memory: int64(s.flags.memory), MaxPeerConns: s.flags.maxPeerConns,
		})
		if err != nil {
			return err
		}
		s.rdma = append(s.rdma, l)
		s.onClose(l.Close)
	}
	return s.target.AddPort(rdma.DiscoveryPort(e.Addr))
}

// rnic is the RNIC of a local address, opened at first use.
func (s *server) rnic(a netip.Addr) (*softrnic.RNIC, error) {
	if nic := s.rnics[a]; nic != nil {
		return nic, nil
	}
	cfg := softrnic.Config{Plain: s.flags.plainUDP, BusyPoll: s.flags.busyPoll, Capture: s.capture, Fault: s.flags.fault.Config}
	if cfg.BusyPoll == 0 {
		cfg.BusyPoll = softrnic.NoBusyPoll
	}
	nic, err := softrnic.Open(a, cfg)
	if err != nil {
		return nil, err
	}
	s.rnics[a] = nic
	s.onClose(nic.Close)
	return nic, nil
}

// localAddrs are the addresses of this machine in the family of wildcard, loopback included.
func localAddrs(wildcard netip.Addr) ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var as []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() == wildcard.Is4() && !p.Addr().IsLinkLocalUnicast() {
			as = append(as, p.Addr())
		}
	}
	if len(as) == 0 {
		return nil, fmt.Errorf("no interface has an address of that family")
	}
	return as, nil
}

func (s *server) listenTCP(e cli.Endpoint) error {
	l, err := tcp.Listen(e.Addr.String(), s.target, tcp.TargetConfig{
		InCapsule: s.inCapsule(), QueueDepth: s.flags.queueDepth,
		Memory: int64(s.flags.memory), MaxConns: s.flags.maxConns, MaxPeerConns: s.flags.maxPeerConns,
		OnError: tcpFailed(limitlog.New(s.log)),
		Tap:     s.tap(),
	})
	if err != nil {
		return err
	}
	svc := &tcpService{listener: l, done: make(chan error, 1)}
	go func() { svc.done <- l.Serve(context.Background()) }()
	s.tcp = append(s.tcp, svc)
	s.onClose(func() error { return errors.Join(l.Close(), <-svc.done) })
	return s.target.AddPort(target.Port{Transport: nvme.TransportTCP, Addr: e.Addr})
}

// tcpFailed logs why an NVMe/TCP connection ended. What the engine ends itself, it logs itself.
func tcpFailed(log *slog.Logger) func(error) {
	return func(err error) {
		level := slog.LevelWarn
		for _, own := range []error{target.ErrControllerGone, target.ErrReset, target.ErrRemoved, target.ErrNotAllowed, target.ErrClosed} {
			if errors.Is(err, own) {
				level = slog.LevelDebug
			}
		}
		log.Log(context.Background(), level, "tcp: connection ended", "err", err)
	}
}

// tap is what sees the bytes of NVMe/TCP connections: nothing without --pcap.
func (s *server) tap() func(local, remote netip.AddrPort) tcp.Tap {
	if s.capture == nil {
		return nil
	}
	return func(local, remote netip.AddrPort) tcp.Tap { return s.capture.Stream(local, remote, false) }
}

// announce says what is exported, and where. The line that begins with "ready" is the last.
func (s *server) announce() {
	for i, v := range s.volumes {
		info := v.Info()
		name := info.Kind
		if info.Path != "" {
			name += " " + info.Path
		}
		fmt.Fprintf(s.out, "namespace %d: %s, %s, blocks of %d bytes (%s)\n",
			i+1, name, blockdev.FormatSize(info.Size), info.BlockSize, info.Mode)
	}
	for _, l := range s.rdma {
		fmt.Fprintf(s.out, "rdma %s (software RNIC, UDP port %d, %s)\n",
			l.Addr(), softrnic.Port, s.rnics[l.Addr().Addr()].Offloads())
		if f := s.rnics[l.Addr().Addr()].Faults(); f != nil {
			cfg := f.Config()
			fmt.Fprintf(s.out, "     with faults: %s\n", &cfg)
		}
	}
	for _, svc := range s.tcp {
		fmt.Fprintf(s.out, "tcp  %s\n", svc.listener.Addr())
	}
	fmt.Fprintf(s.out, "ready: %s; stop with Ctrl-C\n", s.flags.nqn)
}
