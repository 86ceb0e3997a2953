package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

func newConnectAll() *cobra.Command {
	f := &connFlags{}
	var hold bool
	c := &cobra.Command{
		Use:   "connect-all -t TRANSPORT -a ADDRESS",
		Short: "Connect to every subsystem that discovery lists, over all its paths",
		Long: `connect-all asks a discovery controller, and those that it refers to, which subsystems
there are for this host, connects to each over every path, shows them, and disconnects.
-n restricts it to one subsystem, which must exist unless --hold waits for it.

With --hold it stays connected until it is interrupted: it reconnects lost paths, and
connects to what is added at the targets when they notify it; if a discovery controller
gives no notices, it says so. Each change is reported in a line, except that for a path
that comes and goes all the time only some are.`,
		Example: `  nvmeinit connect-all -t tcp -a 192.0.2.1 -s 8009
  nvmeinit connect-all -t rdma -a 127.0.0.1 --hold --ctrl-loss-tmo -1`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return connectAll(c, f, hold) },
	}
	c.Flags().BoolVar(&hold, "hold", false, "stay connected until interrupted")
	f.addOutput(c)
	f.paths.add(c, "--hold")
	for _, flag := range []string{"path", "all-paths"} { // it rejects these, with the reason
		c.Flags().Lookup(flag).Hidden = true
	}
	f.add(c, true)
	return c
}

// everything is what connect-all has connected to.
type everything struct {
	flags   *connFlags
	fabrics *fabrics
	start   host.Config // the discovery controller that is asked first
	subs    []*multipath.Subsystem
	news    map[string]*pathNews // for each of them, by NQN
	failed  failures             // what couldn't be queried or connected to
	shown   atomic.Bool          // the initial state has been shown

	follow  func(host.Config) // is called for each discovery controller; nil: none is followed
	follows []host.Config
}

func connectAll(c *cobra.Command, f *connFlags, hold bool) (err error) {
	if len(f.paths.more) > 0 || f.paths.all {
		return cli.Usage("--path and --all-paths: connect-all takes every path as it is")
	}
	if err := errors.Join(f.paths.validate(), f.validate()); err != nil {
		return err
	}
	ends, err := f.endpoints(c.Context())
	if err != nil {
		return err
	}
	e := &everything{flags: f, fabrics: &fabrics{flags: f}, news: map[string]*pathNews{}}
	defer func() { err = errors.Join(err, e.close()) }()
	if e.start, err = e.fabrics.config(c.Context(), ends[0], nvme.DiscoveryNQN); err != nil {
		return err
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	changed := make(chan struct{}, 1)
	if hold {
		e.follow = func(cfg host.Config) {
			service := &follower{cfg: cfg, changed: changed, tell: f.tell}
			watch.Go(func() { service.run(ctx) })
		}
	}
	if err := e.connect(ctx); err != nil {
		return f.explain(err)
	}
	if err := e.show(c); err != nil {
		return err
	}
	if !hold && f.nqn != "" && len(e.subs) == 0 && !e.failed.any() {
		return fmt.Errorf("-n %s: discovery names no such subsystem for host %s; nvmeinit discover lists those that it does", f.nqn, f.name)
	}
	if !hold {
		return e.failed.err()
	}
	if err := e.failed.err(); err != nil {
		fmt.Fprintln(f.stderr(), err)
	}
	e.shown.Store(true)
	fmt.Fprintln(f.stderr(), "holding the connections; stop with Ctrl-C")
	return e.hold(ctx, changed)
}

// holdGap is the minimum time between two queries of the discovery controllers, however many notices they send.
const holdGap = time.Second

// hold acts on notices of the discovery controllers, and retries what couldn't be queried or connected to. The user
// is told when something begins to fail, and when discovery works again.
func (e *everything) hold(ctx context.Context, changed <-chan struct{}) error {
	pause := max(e.flags.paths.config().ReconnectDelay, holdGap)
	first := cli.Endpoint{Transport: e.start.Transport.Type(), Addr: e.start.Remote}.String()
	for {
		var again <-chan time.Time
		if e.failed.any() {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
		err := e.connect(ctx)
		if ctx.Err() != nil {
			continue // the select above returns
		}
		if err != nil {
			e.failed.keep()
			e.failed.add(first, fmt.Errorf("discovery: %w; connections stay, and it is tried again", e.flags.explain(err)))
		}
		if err := e.failed.err(); err != nil {
			fmt.Fprintln(e.flags.stderr(), err)
		}
		if e.failed.over(first) {
			fmt.Fprintf(e.flags.stderr(), "discovery: %s answers again\n", first)
		}
		select {
		case <-ctx.Done():
		case <-time.After(holdGap):
		}
	}
}

// connect queries what exists, and connects to what isn't connected yet. failed records the services and subsystems
// that couldn't be reached; the error means that discovery isn't possible at all.
func (e *everything) connect(ctx context.Context) error {
	e.failed.begin()
	found, err := host.Crawl(ctx, e.start, e.fabrics.reach(ctx))
	if err != nil {
		return err
	}
	for _, err := range found.Unreached {
		e.failed.add(serviceOf(err), e.flags.explain(err))
	}
	for i := range found.Services {
		e.service(&found.Services[i])
	}
	var names []string
	paths := map[string][]host.Config{}
	for i := range found.Entries {
		entry := &found.Entries[i]
		nqn := entry.NQN()
		if e.flags.nqn != "" && e.flags.nqn != nqn {
			continue
		}
		cfg, err := e.fabrics.reach(ctx)(entry)
		if err != nil {
			e.failed.add(nqn, fmt.Errorf("subsystem %s: %w", nqn, err))
			continue
		}
		if paths[nqn] == nil {
			names = append(names, nqn)
		}
		paths[nqn] = append(paths[nqn], cfg) // Crawl returns each once
	}
	e.subsystems(ctx, names, paths)
	return nil
}

// maxFollowed bounds how many discovery controllers are followed, whatever they refer to as time goes by: as many as
// Crawl asks.
const maxFollowed = 64

// service makes sure that a discovery controller is followed.
func (e *everything) service(cfg *host.Config) {
	if n := len(e.follows); e.follow != nil && n < maxFollowed {
		if e.follows = addConfig(e.follows, *cfg); len(e.follows) > n {
			e.follow(*cfg)
		}
	}
}

// subsystems connects to several subsystems at once, since a path that doesn't answer delays each of them, or adds
// the paths that they have gained since.
func (e *everything) subsystems(ctx context.Context, names []string, paths map[string][]host.Config) {
	e.forget(paths)
	subs, errs := make([]*multipath.Subsystem, len(names)), make([]error, len(names))
	old := make([]*multipath.Subsystem, len(names))
	for i, nqn := range names {
		old[i] = e.connected(nqn)
		if e.news[nqn] == nil {
			e.news[nqn] = newPathNews(func(line string) { e.flags.tell(nqn + ": " + line) })
		}
	}
	_ = atOnce(len(names), func(i int) error {
		if old[i] == nil {
			subs[i], errs[i] = e.subsystem(ctx, paths[names[i]], e.news[names[i]])
			return nil
		}
		var bad []error
		more := paths[names[i]]
		for k := range more {
			bad = append(bad, old[i].AddPath(more[k]))
		}
		errs[i] = errors.Join(bad...)
		return nil
	})
	for i, nqn := range names {
		if subs[i] != nil {
			e.subs = append(e.subs, subs[i])
		}
		if errs[i] != nil {
			e.failed.add(nqn, fmt.Errorf("subsystem %s: %w", nqn, e.flags.explainAll(errs[i])))
		}
	}
}

// forget drops the subsystems all of whose paths were given up, and what was said of subsystems that aren't found any
// more.
func (e *everything) forget(found map[string][]host.Config) {
	e.subs = slices.DeleteFunc(e.subs, func(s *multipath.Subsystem) bool {
		if s.Err() == nil {
			return false
		}
		_ = s.Close()
		return true
	})
	for nqn, n := range e.news {
		if found[nqn] == nil && e.connected(nqn) == nil {
			n.close()
			delete(e.news, nqn)
		}
	}
}

// connected returns the connected subsystem of that name, or nil if there is none.
func (e *everything) connected(nqn string) *multipath.Subsystem {
	if i := slices.IndexFunc(e.subs, func(s *multipath.Subsystem) bool { return s.SubNQN() == nqn }); i >= 0 {
		return e.subs[i]
	}
	return nil
}

// subsystem connects to one subsystem.
func (e *everything) subsystem(ctx context.Context, paths []host.Config, news *pathNews) (*multipath.Subsystem, error) {
	cfg := e.flags.paths.config()
	cfg.Paths = paths
	if e.follow != nil {
		cfg.Changed = func(p multipath.PathStatus) {
			if e.shown.Load() {
				news.tell(&p)
			}
		}
	}
	s, err := multipath.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = s.Namespaces(ctx) // makes each path report how it leads to the namespaces
	return s, err
}

func (e *everything) close() error {
	err := atOnce(len(e.subs), func(i int) error {
		if err := e.subs[i].Close(); !errors.Is(err, host.ErrLost) {
			return err
		}
		return nil
	})
	for _, n := range e.news {
		n.close()
	}
	return errors.Join(err, e.fabrics.Close())
}

// connectedJSON is a subsystem in JSON.
type connectedJSON struct {
	SubNQN     string           `json:"subnqn"`
	Policy     string           `json:"iopolicy"`
	Paths      []pathJSON       `json:"paths"`
	Namespaces []foundNamespace `json:"namespaces"`
}

func (e *everything) show(c *cobra.Command) error {
	all := []connectedJSON{}
	for _, s := range e.subs {
		j := connectedJSON{SubNQN: s.SubNQN(), Policy: s.Policy().String(), Paths: pathsJSON(s), Namespaces: []foundNamespace{}}
		spaces, err := s.Namespaces(c.Context())
		switch {
		case c.Context().Err() != nil:
			return c.Context().Err()
		case err != nil: // it concerns only this subsystem; the connected ones are still shown
			e.failed.add(s.SubNQN(), fmt.Errorf("subsystem %s: %w", s.SubNQN(), err))
		}
		for _, n := range spaces {
			j.Namespaces = append(j.Namespaces, foundNamespace{n.ID, n.Size(), n.BlockSize(), uuidText(n.Namespace)})
		}
		all = append(all, j)
	}
	if e.flags.output == cli.JSON {
		return cli.PrintJSON(c.OutOrStdout(), map[string]any{"subsystems": all})
	}
	for i := range all {
		printConnected(c.OutOrStdout(), &all[i])
	}
	if len(all) == 0 {
		fmt.Fprintln(c.OutOrStdout(), "no subsystems")
	}
	return nil
}

func printConnected(w io.Writer, s *connectedJSON) {
	fmt.Fprintf(w, "connected to %s\n", s.SubNQN)
	for _, n := range s.Namespaces {
		printFoundNamespace(w, &n)
	}
	for i := range s.Paths {
		p := &s.Paths[i]
		fmt.Fprintf(w, "  path        %s: %s", p.Path, p.State)
		switch {
		case p.Error != "":
			fmt.Fprintf(w, ": %s", p.Error)
		case p.Access != "":
			fmt.Fprintf(w, ", %s", p.Access)
		}
		fmt.Fprintln(w)
	}
}
