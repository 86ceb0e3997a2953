package main

import (
	"errors"
	"maps"
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// commit takes from hosts what is not in next, keeps what was staged, and gives hosts what is new. Its errors are
// from closing what was removed.
func (s *server) commit(next *config.Config, st *staged) error {
	errs := []error{s.revoke(next, st)}
	s.now.Lock()
	maps.Copy(s.exports, st.exports)
	s.now.Unlock()
	maps.Copy(s.pools, st.pools)
	maps.Copy(s.listeners, st.listeners)
	for _, e := range next.Listen {
		errs = append(errs, s.setANA(next, e))
	}
	for i := range next.Subsystems {
		errs = append(errs, s.grow(&next.Subsystems[i], st), s.grant(&next.Subsystems[i]))
	}
	for _, e := range next.Discovery.Referrals {
		if !slices.Contains(s.cfg.Discovery.Referrals, e) {
			errs = append(errs, s.target.AddReferral(referral(e)))
		}
	}
	return errors.Join(errs...)
}

// revoke takes away from hosts what is not in next, and disconnects those that narrow and next don't allow.
func (s *server) revoke(next *config.Config, st *staged) error {
	var errs []error
	var unlistened []func() error
	for _, e := range s.cfg.Listen {
		if l := s.listeners[e]; !slices.Contains(next.Listen, e) {
			errs = append(errs, l.stop())
			unlistened = append(unlistened, l.close)
			delete(s.listeners, e)
		}
	}
	for _, e := range s.cfg.Discovery.Referrals {
		if !slices.Contains(next.Discovery.Referrals, e) {
			errs = append(errs, s.target.RemoveReferral(e.Transport, e.Addr))
		}
	}
	for i := range s.cfg.Subsystems {
		errs = append(errs, s.shrink(&s.cfg.Subsystems[i], next, st))
	}
	if admitsNobody(st.auth) && !admitsNobody(s.auth) {
		s.log.Warn("no host can connect: each has to authenticate itself, and no secret of any is known",
			"remedy", "add lines of NQN SECRET to the file of secrets; nvmetgt gen-dhchap-key makes secrets")
	}
	st.taken = append(st.taken, unlistened...)
	s.auth = st.auth
	s.target.DisconnectRevoked()
	return errors.Join(errs...)
}

// setANA sets the ANA groups at an endpoint to the states in next.
func (s *server) setANA(next *config.Config, e cli.Endpoint) error {
	id, err := s.target.PortID(e.Transport, e.Addr)
	if err != nil {
		return err
	}
	for g := range uint32(target.MaxANAGroup) {
		if err := s.target.SetANAState(id, g+1, next.ANAState(e, g+1)); err != nil {
			return err
		}
	}
	return nil
}

// shrink takes away from hosts what sub has and next doesn't.
func (s *server) shrink(sub *config.Subsystem, next *config.Config, st *staged) error {
	to := next.Subsystem(sub.NQN)
	var errs []error
	if to == nil {
		wait, err := s.target.TakeSubsystem(sub.NQN)
		errs = append(errs, err)
		st.take(wait)
		if d := s.pools[sub.NQN]; d != nil {
			st.taken = append(st.taken, d.Close)
			delete(s.pools, sub.NQN)
		}
	}
	for i := range sub.Namespaces {
		nsid := sub.Namespaces[i].NSID
		switch {
		case to == nil: // it was removed with the subsystem
		case to.Namespace(nsid) == nil:
			wait, err := s.target.Subsystem(sub.NQN).TakeNamespace(nsid)
			errs = append(errs, err)
			st.take(wait)
		default:
			continue
		}
		s.takeExport(exportKey{sub.NQN, nsid}, st)
	}
	return errors.Join(errs...)
}

// take adds a wait for what was taken from hosts, before whatever is added next.
func (st *staged) take(wait func()) {
	if wait != nil {
		st.taken = append(st.taken, func() error { wait(); return nil })
	}
}

// takeExport takes a volume away from hosts; it is closed after the wait. Until then signals reach it.
func (s *server) takeExport(key exportKey, st *staged) {
	e := s.exports[key]
	e.remove()
	s.now.Lock()
	delete(s.exports, key)
	s.going[e] = true
	s.now.Unlock()
	st.taken = append(st.taken, func() error {
		err := e.volume.Close()
		s.now.Lock()
		delete(s.going, e)
		s.now.Unlock()
		return err
	})
}

// grow adds the staged namespaces to an existing subsystem.
func (s *server) grow(sub *config.Subsystem, st *staged) error {
	if s.cfg.Subsystem(sub.NQN) == nil {
		return nil // a new subsystem has them already
	}
	var errs []error
	for _, n := range st.namespaces(sub) {
		_, err := s.target.Subsystem(sub.NQN).AddNamespace(n)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
