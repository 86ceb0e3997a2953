package multipath

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Config says which paths there are. Paths must be set; the zero value of every other field
// stands for a good default.
type Config struct {
	// Paths lead to one subsystem: they agree in SubNQN, HostNQN and HostID. The latter two must be set, because a
	// subsystem with controllers for two hosts treats them as different hosts.
	Paths []host.Config

	// Policy chooses among paths that are equally good; the zero value is QueueDepth.
	Policy Policy
	// ReconnectDelay is the longest pause between attempts to reconnect; 0 means 10 s.
	ReconnectDelay time.Duration
	// ControllerLoss is how long a path may be lost before it is given up; 0 means 600 s, negative means forever. One
	// nanosecond is for a path that is not to be tried again.
	ControllerLoss time.Duration
	// FastIOFail is how long requests wait while no path is live; 0 means as long as ControllerLoss. One nanosecond is
	// for requests that are to fail at once.
	FastIOFail time.Duration

	// Changed is called when the state of a path has changed. It is called from the path's own goroutine, so for
	// different paths perhaps at the same time, and must neither block nor Close the subsystem.
	Changed func(PathStatus)
	// Log receives what goes wrong in the background; nil discards it.
	Log *slog.Logger
}

const (
	defaultReconnectDelay = 10 * time.Second
	defaultControllerLoss = 600 * time.Second
)

// Validate reports what is wrong with c. The error names the field and matches host.ErrConfig.
func (c *Config) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("nvme: %w: %w", host.ErrConfig, fmt.Errorf(format, args...))
	}
	switch {
	case len(c.Paths) == 0:
		return bad("Paths: there are none")
	case c.ReconnectDelay < 0, c.FastIOFail < 0:
		return bad("ReconnectDelay, FastIOFail: a time must not be negative")
	case !slices.Contains(Policies(), c.Policy):
		return bad("Policy: %d is none", c.Policy)
	}
	for i := range c.Paths {
		if err := checkPath(&c.Paths[0], &c.Paths[i]); err != nil {
			return bad("Paths[%d]: %w", i, err)
		}
	}
	return nil
}

// checkPath checks a path by itself and against the first one.
func checkPath(first, p *host.Config) error {
	switch {
	case p.HostNQN == "" || p.HostID.IsZero():
		return errors.New("HostNQN and HostID must be set")
	case p.SubNQN != first.SubNQN:
		return fmt.Errorf("SubNQN is %q, that of another path %q", p.SubNQN, first.SubNQN)
	case p.HostNQN != first.HostNQN || p.HostID != first.HostID:
		return errors.New("HostNQN or HostID is another than that of another path")
	}
	return p.Validate()
}

// withDefaults returns c with every default filled in.
func (c Config) withDefaults() Config {
	c.Paths = slices.Clone(c.Paths)
	c.ReconnectDelay = cmp.Or(c.ReconnectDelay, defaultReconnectDelay)
	c.ControllerLoss = cmp.Or(c.ControllerLoss, defaultControllerLoss)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
