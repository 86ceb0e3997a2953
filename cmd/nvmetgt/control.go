package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// serveControl serves the control socket if the configuration asks for it.
func (s *server) serveControl() error {
	if s.cfg.Control == "" {
		return nil
	}
	c, err := control.Serve(s.cfg.Control, s)
	if err != nil {
		return err
	}
	s.onClose(c.Close)
	fmt.Fprintf(&s.said, "control %s\n", s.cfg.Control)
	return nil
}

// Status implements control.Target.
func (s *server) Status() control.Status {
	snap := s.target.Snapshot()
	st := control.StatusOf(&snap)
	s.now.Lock()
	defer s.now.Unlock()
	st.Listen = []string{}
	for _, e := range s.cfg.Listen {
		st.Listen = append(st.Listen, e.String())
	}
	return st
}

// Config implements control.Target.
func (s *server) Config() (*config.Config, string) {
	s.now.Lock()
	defer s.now.Unlock()
	c := s.cfg.Clone()
	for i := range c.Subsystems {
		sub := &c.Subsystems[i]
		for j, n := range sub.Namespaces {
			sub.Namespaces[j] = s.sized(sub.NQN, n)
		}
	}
	return c, s.tag()
}

// sized returns n with the current size of its volume, if n gives a size: the volume may have grown, and a
// configuration with the old size can't be started. One of the locks is held.
func (s *server) sized(nqn string, n config.Namespace) config.Namespace {
	e := s.exports[exportKey{nqn, n.NSID}]
	if e == nil || n.Size == 0 {
		return n // it is being removed
	}
	if v, ok := e.volume.(blockdev.Resizer); ok {
		n.Size = cli.Size(v.Info().Size)
	}
	return n
}

// tag distinguishes each configuration from the next, and from those of other runs: a target that is restarted,
// possibly with another file, counts from the same number. One of the locks is held.
func (s *server) tag() string { return fmt.Sprintf(`"%s-%d"`, s.run, s.changes) }

// Apply implements control.Target. What it takes away is gone when it returns.
func (s *server) Apply(c *config.Config, tag string) error {
	gone, err := s.apply(c, tag)
	if err == nil {
		<-gone
	}
	return err
}

// Reload implements control.Target. What it takes away is gone when it returns.
func (s *server) Reload() error {
	gone, err := s.reload(context.Background())
	if err == nil {
		<-gone
	}
	return err
}

// reload reads the file again, unless ctx ends first: the file may be a pipe that nobody writes to.
func (s *server) reload(ctx context.Context) (gone <-chan struct{}, err error) {
	if s.file == "" {
		return nil, control.ErrNoFile
	}
	c, err := cli.Leaving(ctx, 0, func() (*config.Config, error) { return config.Load(s.file) })
	switch {
	case ctx.Err() != nil:
		return nil, errStopped
	case err != nil:
		return nil, err
	}
	return s.apply(c, "")
}

// reloadOn reloads on each SIGHUP, as daemons do, until the server closes. One that came while it started is not lost.
func (s *server) reloadOn(hangups <-chan os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			gone, err := s.reload(ctx)
			if err != nil {
				s.log.Error("reload failed", "err", err)
				continue
			}
			s.log.Info("reloaded", "file", s.file)
			select { // the next reload may add again what this one takes away
			case <-gone:
			case <-time.After(changePatience):
			case <-ctx.Done():
			}
		}
	})
	s.onClose(func() error {
		cancel()
		running.Wait()
		return nil
	})
}

// Save implements control.Target. The file is either the old one or the new one, even after a power failure.
func (s *server) Save() error {
	if s.file == "" {
		return control.ErrNoFile
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	c, _ := s.Config()
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := statedir.ReplaceFile(s.file, b, 0o600); err != nil {
		return err
	}
	s.log.Info("the configuration is saved", "file", s.file)
	return nil
}
