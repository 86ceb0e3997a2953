package main

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// Which hosts may use a subsystem while a configuration becomes another: only those that both allow. A host that the
// change forbids sees nothing of what it brings, and one that it lets in nothing of what it takes away.

// allowed is who may use a subsystem. The zero value is nobody.
type allowed struct {
	any   bool
	hosts []string
}

// allowedBy is whom a subsystem allows; nobody may use one that isn't there.
func allowedBy(sub *config.Subsystem) allowed {
	if sub == nil {
		return allowed{}
	}
	return allowed{len(sub.Hosts) == 0, sub.Hosts}
}

// and is who may use it as both say.
func (a allowed) and(b allowed) allowed {
	switch {
	case a.any:
		return b
	case b.any:
		return a
	}
	return allowed{hosts: slices.DeleteFunc(slices.Clone(a.hosts), func(h string) bool { return !slices.Contains(b.hosts, h) })}
}

// narrow lets no host connect any more that next forbids. Those that are connected stay, for the change may fail yet.
func (s *server) narrow(next *config.Config, st *staged) error {
	for i := range s.cfg.Subsystems {
		sub := &s.cfg.Subsystems[i]
		now, t := allowedBy(sub), s.target.Subsystem(sub.NQN)
		both := now.and(allowedBy(next.Subsystem(sub.NQN)))
		if both.any == now.any && slices.Equal(both.hosts, now.hosts) {
			continue
		}
		st.undo = append(st.undo, func() error { return t.SetHosts(now.any, now.hosts) })
		if err := t.SetHosts(both.any, both.hosts); err != nil {
			return err
		}
	}
	return nil
}

// grant lets those connect whom sub allows as it is to be.
func (s *server) grant(sub *config.Subsystem) error {
	from := s.cfg.Subsystem(sub.NQN)
	if from != nil && slices.Equal(from.Hosts, sub.Hosts) {
		return nil
	}
	to := allowedBy(sub)
	return s.target.Subsystem(sub.NQN).AllowHosts(to.any, to.hosts)
}
