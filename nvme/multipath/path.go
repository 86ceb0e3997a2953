package multipath

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// path is a connection that is re-established whenever it is lost. Only its goroutine, run, modifies it.
type path struct {
	sub      *Subsystem
	cfg      host.Config // AddPath modifies Authentication, guarded by Subsystem.mu
	counters PathCounters
	reread   chan struct{} // the controller says that its ANA log changed
	doubted  chan struct{} // a status contradicted the ANA log
	rescan   chan struct{} // the namespaces must be opened again
	tried    chan struct{} // closed when the state shows the result of the first attempt
	closed   error         // the error of the shutdown by Subsystem.Close, valid when run has returned

	// Guarded by Subsystem.mu.
	state   State
	since   time.Time
	err     error                // why it isn't live
	secrets *host.Authentication // of the last attempt; cfg has those of the next
	ctrl    *host.Controller
	groups  groups
	spaces  map[*space]*way // of ctrl
}

func newPath(s *Subsystem, cfg *host.Config) *path {
	p := &path{sub: s, cfg: *cfg, since: time.Now(),
		reread: make(chan struct{}, 1), doubted: make(chan struct{}, 1), rescan: make(chan struct{}, 1), tried: make(chan struct{})}
	event := cfg.Event
	p.cfg.Event = func(c *host.Controller, e nvme.AsyncEvent) {
		switch e {
		case nvme.EventANAChanged:
			poke(p.reread)
		case nvme.EventNamespaceChanged:
			s.notices.Add(1)
			poke(p.rescan)
		}
		if event != nil {
			event(c, e)
		}
	}
	p.cfg.Log = cmp.Or(p.cfg.Log, s.cfg.Log)
	return p
}

// logKeys returns the log attributes that identify the path, followed by more. The keys are those of nvme/host.
func (p *path) logKeys(more ...any) []any {
	return append([]any{"transport", p.cfg.Transport.Type().String(), "remote", p.cfg.Remote, "subsystem", p.cfg.SubNQN}, more...)
}

// status returns the status of the path. Called with Subsystem.mu held.
func (p *path) status() PathStatus {
	st := PathStatus{
		Transport: p.cfg.Transport.Type(), Remote: p.cfg.Remote, Source: p.cfg.Local, State: p.state, Since: p.since, Err: p.err,
		UnderWay: p.counters.underWay(), Counters: &p.counters,
	}
	if p.ctrl != nil {
		st.Local, st.CNTLID = p.ctrl.Admin().Local(), p.ctrl.CNTLID()
	}
	for _, n := range p.sub.spaces {
		if w := p.spaces[n]; w != nil {
			st.Access = append(st.Access, Access{n.nsid, w.state, w.err})
		}
	}
	return st
}

// become sets the state, for every state except Live, which join sets.
func (p *path) become(state State, err error) {
	p.sub.mu.Lock()
	p.enter(state, err)
}

// giveUp gives the path up, because err is final; but not if it has been given other secrets during the attempt.
func (p *path) giveUp(err error) bool {
	p.sub.mu.Lock()
	if p.cfg.Authentication != p.secrets {
		p.sub.mu.Unlock()
		return false
	}
	p.enter(GivenUp, err)
	return true
}

// enter is become with mu held, which it releases.
func (p *path) enter(state State, err error) {
	s := p.sub
	changed := p.state != state
	if changed {
		p.since = time.Now()
	}
	p.state, p.err = state, err
	for _, w := range p.spaces {
		w.dead = true
	}
	if p.ctrl != nil {
		s.lostErrors += p.ctrl.Errors()
	}
	p.ctrl, p.groups, p.spaces = nil, groups{}, nil
	st := p.status()
	s.settle(s.spaces...)
	if changed {
		p.tell(st)
	}
}

// tell reports a change to the owner.
func (p *path) tell(st PathStatus) {
	if p.sub.cfg.Changed != nil && !p.sub.isClosing() {
		p.sub.cfg.Changed(st)
	}
}

// run connects and reconnects until the path is given up or the subsystem closed.
func (p *path) run() {
	// Connect looks at the result of the first attempt when it is told that this is over.
	tried := sync.OnceFunc(func() { close(p.tried) })
	defer tried()
	ctx := p.sub.ctx
	defer func() {
		if ctx.Err() != nil {
			p.become(GivenUp, errClosed)
		}
	}()
	wait := newBackoff(p.sub.cfg.ReconnectDelay)
	lost, down := time.Now(), Connecting
	for c, err := p.connect(ctx); ; c, err = p.reconnect(ctx, lost) {
		if err == nil {
			tried()
			err = p.serve(ctx, c)
			wait = newBackoff(p.sub.cfg.ReconnectDelay)
			lost, down = time.Now(), Reconnecting
		} else if final(err) && p.giveUp(err) {
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.become(down, err)
		tried()
		if !p.pause(ctx, wait.pause(), lost) {
			if ctx.Err() == nil {
				p.become(GivenUp, fmt.Errorf("%w (%v): %w", ErrGivenUp, p.sub.cfg.ControllerLoss.Round(time.Millisecond), err))
			}
			return
		}
	}
}

// pause waits for d. It returns false if the controller loss time ends first, or ctx does.
func (p *path) pause(ctx context.Context, d time.Duration, lost time.Time) bool {
	enough := true
	if loss := p.sub.cfg.ControllerLoss; loss >= 0 {
		if left := loss - time.Since(lost); left <= d {
			d, enough = left, false
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return enough
	case <-ctx.Done():
		return false
	}
}

// reconnect is connect within the controller loss time.
func (p *path) reconnect(ctx context.Context, lost time.Time) (*host.Controller, error) {
	if loss := p.sub.cfg.ControllerLoss; loss >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, lost.Add(loss))
		defer cancel()
	}
	return p.connect(ctx)
}

// connect makes one attempt to become live.
func (p *path) connect(ctx context.Context) (*host.Controller, error) {
	p.sub.mu.Lock()
	cfg := p.cfg
	p.secrets = cfg.Authentication
	p.sub.mu.Unlock()
	c, err := host.Connect(ctx, cfg)
	if err == nil {
		if err = p.join(ctx, c); err == nil {
			return c, nil
		}
		_ = c.Close() // err says more
	}
	p.counters.Failures.Add(1)
	return nil, err
}

// join finds the namespaces on a new controller, and makes the controller available to them.
func (p *path) join(ctx context.Context, c *host.Controller) error {
	g, err := p.readGroups(ctx, c)
	if err != nil {
		return err
	}
	s := p.sub
	spaces := map[*space]*way{}
	s.mu.Lock()
	p.groups = g
	for n := missing(s.spaces, spaces); n != nil; n = missing(s.spaces, spaces) {
		s.mu.Unlock()
		w, err := p.open(ctx, c, n)
		if err != nil {
			return err
		}
		spaces[n] = w
		s.mu.Lock()
	}
	p.state, p.since, p.err, p.ctrl, p.spaces = Live, time.Now(), nil, c, spaces
	p.counters.Connects.Add(1) // before anybody can see that the path is live
	st := p.status()
	s.settle(s.spaces...)
	p.tell(st)
	return nil
}

// missing returns a namespace that has not been looked for yet. Called with Subsystem.mu held.
func missing(all []*space, found map[*space]*way) *space {
	for _, n := range all {
		if found[n] == nil {
			return n
		}
	}
	return nil
}

// serve follows what a live controller reports, until it is lost; the error says why.
func (p *path) serve(ctx context.Context, c *host.Controller) error {
	changing := transitions{}
	limit := transitionTime(c)
	over := time.NewTimer(limit) // runs while a group is in the change state
	defer over.Stop()
	again := newReopening(p.sub.cfg.ReconnectDelay)
	defer again.timer.Stop()
	var checked time.Time // when the log was last read because of a doubt
	for {
		again.follow(p.hasHopes())
		if since := changing.follow(p.groups); since.IsZero() {
			over.Stop()
		} else {
			over.Reset(time.Until(since.Add(limit)))
		}
		var err error
		select {
		case <-c.Done():
			p.counters.Losses.Add(1)
			p.sub.work.Go(func() { _ = c.Close() }) // waits until everything of it has ended
			return c.Err()
		case <-ctx.Done():
			p.closed = p.end(c)
			return nil
		case <-over.C:
			err = ErrTransition
		case <-p.rescan:
			err = p.reopen(ctx, c, anyWay)
		case <-again.timer.C:
			again.armed = false
			err = p.reopen(ctx, c, (*way).mayOpen)
		case <-p.reread:
			err = p.refresh(ctx, c)
		case <-p.doubted:
			sleep(ctx, c, anaGap-time.Since(checked))
			err = p.refresh(ctx, c)
			checked = time.Now()
		}
		if err != nil && ctx.Err() == nil && c.Err() == nil {
			p.counters.Losses.Add(1)
			_ = p.end(c) // err says more
			return err
		}
	}
}

// transitionTime returns how long an ANA group may be in the change state.
func transitionTime(c *host.Controller) time.Duration {
	if t := c.Identify().ANATT; t != 0 {
		return time.Duration(t) * time.Second
	}
	return defaultTransition
}

// end closes a controller that is still connected.
func (p *path) end(c *host.Controller) error {
	s := p.sub
	s.mu.Lock()
	for _, w := range p.spaces {
		w.dead = true
	}
	s.settle(s.spaces...)
	return c.Close()
}

// sleep waits for d, or until c or ctx ends.
func sleep(ctx context.Context, c *host.Controller, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.Done():
	case <-ctx.Done():
	}
}
