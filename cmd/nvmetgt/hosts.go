package main

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// While a configuration changes to another, only hosts that both allow may use a subsystem. A host that the change
// forbids sees nothing that the change adds, and one that it allows sees nothing that the change takes away.

// allowed is the set of hosts that may use a subsystem. The zero value is the empty set.
type allowed struct {
	any   bool
	hosts []string
}

// allowedBy returns the hosts that a subsystem allows; a missing subsystem allows none.
func allowedBy(sub *config.Subsystem) allowed {
	if sub == nil {
		return allowed{}
	}
	return allowed{len(sub.Hosts) == 0, sub.Hosts}
}

// and returns the hosts that both allow.
func (a allowed) and(b allowed) allowed {
	switch {
	case a.any:
		return b
	case b.any:
		return a
	}
	return allowed{hosts: slices.DeleteFunc(slices.Clone(a.hosts), func(h string) bool { return !slices.Contains(b.hosts, h) })}
}

func (a allowed) equal(b allowed) bool { return a.any == b.any && slices.Equal(a.hosts, b.hosts) }

// narrow prevents new connections of hosts that next forbids. Connected ones stay until revoke, because the change may
// still fail.
func (s *server) narrow(next *config.Config, st *staged) error {
	for i := range s.cfg.Subsystems {
		sub := &s.cfg.Subsystems[i]
		now, t := allowedBy(sub), s.target.Subsystem(sub.NQN)
		both := now.and(allowedBy(next.Subsystem(sub.NQN)))
		if both.equal(now) {
			continue
		}
		st.undo = append(st.undo, func() error { return t.SetHosts(now.any, now.hosts) })
		if err := t.SetHosts(both.any, both.hosts); err != nil {
			return err
		}
	}
	return nil
}

// grant allows the hosts of sub, as it is in the new configuration, to connect, if narrow left out any.
func (s *server) grant(sub *config.Subsystem) error {
	to := allowedBy(sub)
	if to.equal(allowedBy(s.cfg.Subsystem(sub.NQN)).and(to)) {
		return nil
	}
	return s.target.Subsystem(sub.NQN).SetHosts(to.any, to.hosts)
}
