package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// fabrics holds the transports of several paths, one of each kind.
type fabrics struct {
	flags   *connFlags // those that are the same for all paths
	open    []*fabric
	capture *softrnic.Capture
}

// to returns the flags and the fabric for reaching an endpoint.
func (s *fabrics) to(e cli.Endpoint) (*connFlags, *fabric, error) {
	f := *s.flags
	f.transport, f.traddr, f.trsvcid = e.Transport.String(), e.Addr.Addr().String(), strconv.Itoa(int(e.Addr.Port()))
	if e.Transport == nvme.TransportTCP {
		f.packets.Fault = cli.Fault{}
	} else {
		f.hdrDigest, f.dataDigest = false, false // RDMA has its ICRC instead
	}
	if err := f.validate(); err != nil {
		return nil, nil, err
	}
	for _, fab := range s.open {
		if fab.Type() == e.Transport {
			to := *fab
			var err error
			if to.remote, to.local, err = f.addresses(); err != nil {
				return nil, nil, err
			}
			return &f, &to, to.ready()
		}
	}
	f.capture = s.capture
	fab, err := openFabric(&f)
	if err != nil {
		return nil, nil, err
	}
	s.open = append(s.open, fab)
	s.capture = fab.capture
	return &f, fab, nil
}

// config returns the host core's configuration for an endpoint.
func (s *fabrics) config(ctx context.Context, e cli.Endpoint, subNQN string) (host.Config, error) {
	f, fab, err := s.to(e)
	if err != nil {
		return host.Config{}, err
	}
	cfg, err := f.config(ctx, fab)
	s.flags.name = f.name
	cfg.SubNQN = subNQN
	return cfg, err
}

// reach returns a host.Reach.
func (s *fabrics) reach(ctx context.Context) host.Reach {
	return func(e *nvme.DiscoveryEntry) (host.Config, error) {
		addr, err := host.EntryAddr(e)
		if err != nil {
			return host.Config{}, err
		}
		if e.TREQ&nvme.TREQSecureMask == nvme.TREQSecureRequired {
			return host.Config{}, errors.New("it demands TLS, which isn't supported")
		}
		return s.config(ctx, cli.Endpoint{Transport: e.TRTYPE, Addr: addr}, e.NQN())
	}
}

func (s *fabrics) Close() error {
	var errs []error
	for _, f := range slices.Backward(s.open) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// endpoints returns the endpoints of -t and -a, which may be missing, and of --path.
func (f *connFlags) endpoints(ctx context.Context) ([]cli.Endpoint, error) {
	if err := f.lookUp(ctx); err != nil {
		return nil, err
	}
	var all []cli.Endpoint
	if f.transport != "" || f.traddr != "" || len(f.paths.more) == 0 {
		t, err := cli.ParseTransport(f.transport)
		if err != nil {
			return nil, cli.Usage("-t: %w", err)
		}
		addr, _, err := f.addresses()
		if err != nil {
			return nil, err
		}
		all = append(all, cli.Endpoint{Transport: t, Addr: addr})
	}
	for _, text := range f.paths.more {
		e, err := cli.ParseEndpoint(text)
		if err != nil {
			return nil, cli.Usage("--path: %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

// multiSession is a subsystem with its paths and their fabrics.
type multiSession struct {
	*multipath.Subsystem
	fabrics *fabrics
	news    *pathNews
}

// connectPaths connects to the subsystem of the flags over all its paths. change, if not nil, alters the
// configuration of each first. The user is told about paths that are not live, and later about each change.
func (f *connFlags) connectPaths(ctx context.Context, change func(*host.Config)) (_ *multiSession, err error) {
	if err := errors.Join(f.paths.validate(), f.validate()); err != nil {
		return nil, err
	}
	ends, err := f.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	s := &multiSession{fabrics: &fabrics{flags: f}, news: newPathNews(f.tell)}
	defer func() {
		if err != nil {
			err = errors.Join(f.explainAll(err), s.fabrics.Close())
		}
	}()
	cfg := f.paths.config()
	var connected atomic.Bool
	cfg.Changed = func(p multipath.PathStatus) {
		if connected.Load() {
			s.news.tell(&p)
		}
	}
	if cfg.Paths, err = f.pathConfigs(ctx, s.fabrics, ends); err != nil {
		return nil, err
	}
	for i := range cfg.Paths {
		if change != nil {
			change(&cfg.Paths[i])
		}
		if err := cfg.Paths[i].Validate(); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
	}
	if s.Subsystem, err = multipath.Connect(ctx, cfg); err != nil {
		return nil, err
	}
	connected.Store(true)
	paths := s.Paths()
	for i := range paths {
		if paths[i].State != multipath.Live {
			s.news.tell(&paths[i])
		}
	}
	return s, nil
}

// pathConfigs returns the configurations of the paths to ends and, with --all-paths, of those that discovery
// reports. The user is told of those that can't be used, and of discovery controllers that may know more.
func (f *connFlags) pathConfigs(ctx context.Context, fabs *fabrics, ends []cli.Endpoint) ([]host.Config, error) {
	first, err := fabs.config(ctx, ends[0], f.nqn)
	if err != nil {
		return nil, err
	}
	if first.SubNQN == "" {
		if first.SubNQN, err = f.onlySubsystem(ctx, first); err != nil {
			return nil, err
		}
	}
	all := []host.Config{first}
	for _, e := range ends[1:] {
		cfg, err := fabs.config(ctx, e, first.SubNQN)
		if err != nil {
			return nil, err
		}
		all = append(all, cfg)
	}
	if !f.paths.all {
		return all, nil
	}
	start := first
	start.SubNQN = nvme.DiscoveryNQN
	reach := fabs.reach(ctx)
	found, err := host.Crawl(ctx, start, func(e *nvme.DiscoveryEntry) (host.Config, error) {
		if e.SUBTYPE == nvme.SubsystemNVM && e.NQN() != first.SubNQN {
			return host.Config{}, host.ErrUnsupported // it is no path to this subsystem
		}
		return reach(e)
	})
	if err != nil {
		return nil, err
	}
	for _, err := range found.Unreached {
		f.tell(fmt.Sprintf("--all-paths: %v", f.explain(err)))
	}
	for i := range found.Entries {
		cfg, err := reach(&found.Entries[i])
		if err != nil {
			return nil, err
		}
		all = addConfig(all, cfg)
	}
	return all, nil
}

// addConfig adds a configuration unless one with the same transport and address is there.
func addConfig(all []host.Config, c host.Config) []host.Config {
	for i := range all {
		if all[i].Transport.Type() == c.Transport.Type() && all[i].Remote == c.Remote {
			return all
		}
	}
	return append(all, c)
}

// explainAll explains each of the errors that err joins.
func (f *connFlags) explainAll(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return f.explain(err)
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, f.explain(e))
	}
	return errors.Join(all...)
}

// namespace opens a namespace.
func (s *multiSession) namespace(ctx context.Context, nsid uint32) (*multipath.Namespace, error) {
	ns, err := s.Namespace(ctx, nsid)
	if live := s.Controllers(); errors.Is(err, nvme.StatusInvalidNamespace) && len(live) > 0 {
		return nil, noNamespace(ctx, live[0], nsid, err)
	}
	return ns, err
}

// Close shuts the controllers down, and frees the fabrics.
func (s *multiSession) Close() error {
	err := s.Subsystem.Close()
	s.news.close()
	if errors.Is(err, host.ErrLost) { // we are leaving: whether it was lost or closed makes no difference
		err = nil
	}
	return errors.Join(err, s.fabrics.Close())
}

// device is a namespace that is reached over one or several paths, by a session or a multiSession.
type device struct {
	memory
	io.Closer
	ns *host.Namespace
}

// open connects, over several paths if the flags say so, and opens a namespace.
func (f *connFlags) open(ctx context.Context, nsid uint32) (*device, error) {
	if !f.paths.wanted() {
		s, err := f.connect(ctx, nil)
		if err != nil {
			return nil, err
		}
		ns, err := s.namespace(ctx, nsid)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return &device{s, s, ns}, nil
	}
	s, err := f.connectPaths(ctx, nil)
	if err != nil {
		return nil, err
	}
	ns, err := s.namespace(ctx, nsid)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &device{s, s, ns.Namespace}, nil
}

// tell writes a line for the user, in the place of the live line.
func (f *connFlags) tell(line string) {
	wipe := ""
	if rewrites(f.stderr()) {
		wipe = "\r\033[K"
	}
	fmt.Fprintf(f.stderr(), "%s%s\n", wipe, line)
}
