package multipath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Subsystem is an NVM subsystem that is reached by one or more paths.
type Subsystem struct {
	cfg      Config
	memory   host.Transport // allocates the memory of requests
	counters Counters
	ctx      context.Context // for everything in the background
	stop     context.CancelFunc
	work     sync.WaitGroup // what Close waits for: the goroutines of paths, and timers that end or send requests
	done     chan struct{}
	several  atomic.Bool   // there is or was more than one path
	notices  atomic.Uint64 // that namespaces changed

	mu      sync.Mutex // guards everything below, and the fields of paths, ways and spaces that say so
	paths   []*path
	spaces  []*space
	closing bool
	err     error     // why done is closed
	dark    time.Time // since when no path has been live; zero while one is
	// impatient is set when requests must no longer wait for a path.
	impatient  bool
	lostErrors uint64 // commands that were answered with an error by controllers that are gone
}

// patience is how long requests wait for a live path to take them; negative means forever. However soon lost paths
// are given up, live ones get the time that a change of ANA states takes by their controllers, and at least ten
// seconds. Called with mu held.
func (s *Subsystem) patience() time.Duration {
	switch loss := s.cfg.ControllerLoss; {
	case s.impatient:
		return 0
	case loss < 0:
		return loss
	default:
		longest := max(loss, defaultTransition)
		for _, p := range s.paths {
			if p.ctrl != nil {
				longest = max(longest, transitionTime(p.ctrl))
			}
		}
		return longest
	}
}

// Connect tries every path once, and returns when all have been tried and at least one is live. It keeps trying the
// others in the background, unless their target refuses them for good. The error names every path.
func Connect(ctx context.Context, cfg Config) (*Subsystem, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Subsystem{cfg: cfg.withDefaults(), done: make(chan struct{}), memory: cfg.Paths[0].Transport}
	// Memory that is registered with an RDMA device is as good for TCP as any other.
	for i := range cfg.Paths {
		if t := cfg.Paths[i].Transport; t.Type() == nvme.TransportRDMA {
			s.memory = t
			break
		}
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	for i := range cfg.Paths {
		s.start(&cfg.Paths[i])
	}
	s.mu.Unlock()
	for _, p := range s.paths {
		select {
		case <-p.tried:
		case <-ctx.Done():
		}
	}
	var errs []error
	paths := s.Paths()
	for i := range paths {
		if paths[i].State == Live {
			return s, nil
		}
		err := paths[i].Err
		if err == nil && ctx.Err() != nil { // before its first attempt has ended
			err = &host.ConnectError{Stage: "connection", Transport: paths[i].Transport, Peer: paths[i].Remote,
				SubNQN: s.SubNQN(), Err: ctx.Err()}
		}
		errs = append(errs, err)
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return nil, errors.Join(append(errs, s.Close())...)
}

// start creates a path and its goroutine. Called with mu held.
func (s *Subsystem) start(cfg *host.Config) {
	p := newPath(s, cfg)
	s.paths = append(s.paths, p)
	s.several.Store(s.several.Load() || len(s.paths) > 1)
	s.work.Go(p.run)
}

// AddPath adds a path, which is tried in the background. A path that already exists is not added again, but connects
// with the secrets of cfg from now on; one that was given up is tried anew. The error matches host.ErrConfig, or
// host.ErrClosed after Close and when every path was given up.
func (s *Subsystem) AddPath(cfg host.Config) error {
	if err := checkPath(&s.cfg.Paths[0], &cfg); err != nil {
		return fmt.Errorf("nvme: %w: %w", host.ErrConfig, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.err != nil {
		return fmt.Errorf("nvme: subsystem %s: %w", cfg.SubNQN, host.ErrClosed)
	}
	same := func(p *path) bool {
		return p.cfg.Transport.Type() == cfg.Transport.Type() && p.cfg.Remote == cfg.Remote && p.cfg.Local == cfg.Local
	}
	if i := slices.IndexFunc(s.paths, func(p *path) bool { return same(p) && p.state != GivenUp }); i >= 0 {
		s.paths[i].cfg.Authentication = cfg.Authentication
		return nil
	}
	s.paths = slices.DeleteFunc(s.paths, same)
	s.start(&cfg)
	return nil
}

// SubNQN is the subsystem's name.
func (s *Subsystem) SubNQN() string { return s.cfg.Paths[0].SubNQN }

// Policy is the policy in effect.
func (s *Subsystem) Policy() Policy { return s.cfg.Policy }

// Counters returns the counters of requests that no path could take.
func (s *Subsystem) Counters() *Counters { return &s.counters }

// Paths returns the status of each path.
func (s *Subsystem) Paths() []PathStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses()
}

// statuses is Paths, called with mu held.
func (s *Subsystem) statuses() []PathStatus {
	all := make([]PathStatus, len(s.paths))
	for i, p := range s.paths {
		all[i] = p.status()
	}
	return all
}

// pathCount returns the number of paths.
func (s *Subsystem) pathCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.paths)
}

// Waiting returns the number of requests that wait for a path.
func (s *Subsystem) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, ns := range s.spaces {
		n += len(ns.waiting)
	}
	return n
}

// Controllers returns the controllers of the live paths.
func (s *Subsystem) Controllers() []*host.Controller {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*host.Controller
	for _, p := range s.paths {
		if p.ctrl != nil {
			all = append(all, p.ctrl)
		}
	}
	return all
}

// Errors returns the number of commands that were answered with an error, by controllers that are gone as well.
func (s *Subsystem) Errors() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.lostErrors
	for _, p := range s.paths {
		if p.ctrl != nil {
			n += p.ctrl.Errors()
		}
	}
	return n
}

// Alloc returns n bytes of memory that a path transfers at the least cost, RDMA before TCP, aligned as
// [host.Transport] says.
func (s *Subsystem) Alloc(n int) ([]byte, error) { return s.memory.Alloc(n) }

// Free releases memory from Alloc.
func (s *Subsystem) Free(b []byte) { s.memory.Free(b) }

// Done is closed when every path was given up, or the subsystem was closed; Err then says why.
func (s *Subsystem) Done() <-chan struct{} { return s.done }

// Err is nil while a path is live or is being tried.
func (s *Subsystem) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end closes done because of err; only the first call has an effect. Called with mu held.
func (s *Subsystem) end(err error) {
	if s.err == nil {
		s.err = err
		close(s.done)
	}
}

// StopWaiting ends every request that waits for a path or for the delay that a controller asked for, and from then
// on every request that would have to wait: it is for a user that doesn't want to wait any longer.
func (s *Subsystem) StopWaiting() {
	s.mu.Lock()
	s.impatient = true
	if !s.closing { // later, Close has taken what waited
		s.work.Add(1)
		defer s.work.Done()
	}
	spaces := slices.Clone(s.spaces)
	var delayed []*host.Request
	for _, n := range spaces {
		delayed = append(delayed, n.takeDelayed()...)
	}
	s.mu.Unlock()
	for _, n := range spaces {
		n.expire()
	}
	for _, r := range delayed {
		r.Done(r) // with the answer that it got
	}
}

// Close shuts every controller down, and returns when nothing runs any more. Requests that are still outstanding,
// or waiting, end with an error that matches host.ErrClosed. The error says which controllers could not be shut
// down in an orderly way.
func (s *Subsystem) Close() error {
	s.mu.Lock()
	s.closing = true
	s.end(errClosed)
	var left []*host.Request
	for _, n := range s.spaces {
		left = append(append(left, n.takeWaiting()...), n.takeDelayed()...)
	}
	s.mu.Unlock()
	s.stop()
	for _, r := range left {
		finish(r, errClosed)
	}
	s.work.Wait()
	var errs []error
	for _, p := range s.paths {
		errs = append(errs, p.closed)
	}
	return errors.Join(errs...)
}

// settle handles a change in how paths lead to the given spaces: it finds the best ways of each, sends the requests
// that waited for one, and ends those for which none can come, delayed ones too. Called with mu held; it unlocks it.
func (s *Subsystem) settle(changed ...*space) {
	var unlocked []func()
	s.noteDark()
	for _, n := range changed {
		switch ways := n.rebuild(); {
		case len(ways) > 0:
			for _, r := range n.takeWaiting() {
				unlocked = append(unlocked, func() { n.resend(r) })
			}
		case n.hopeless() && len(n.waiting)+len(n.delayed) > 0:
			err := n.noPath()
			for _, r := range append(n.takeWaiting(), n.takeDelayed()...) {
				unlocked = append(unlocked, func() {
					s.counters.Failed.Add(1)
					finish(r, err)
				})
			}
		default:
			n.watch()
		}
	}
	if !slices.ContainsFunc(s.paths, func(p *path) bool { return p.state != GivenUp }) {
		var errs []error
		for _, p := range s.paths {
			errs = append(errs, p.err)
		}
		s.end(fmt.Errorf("%w to subsystem %s: %w", ErrNoPath, s.SubNQN(), errors.Join(errs...)))
	}
	s.mu.Unlock()
	for _, f := range unlocked {
		f()
	}
}

// noteDark notes since when no path has been live. Called with mu held.
func (s *Subsystem) noteDark() {
	switch {
	case slices.ContainsFunc(s.paths, func(p *path) bool { return p.state == Live }):
		s.dark = time.Time{}
	case s.dark.IsZero():
		s.dark = time.Now()
	}
}
