package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// errStopped is the error of a change that comes too late.
var errStopped = errors.New("the target stops: nothing is changed any more")

// apply changes the target to next as a single change: completely or, if there is an error, not at all. Connections
// that the change doesn't concern don't notice it. If tag isn't empty, it must be that of the current
// configuration. What is taken away from hosts may remain in use for long, by commands of a volume that hangs: gone
// is closed when none of it is in use any more, and other changes may be made in the meantime.
func (s *server) apply(next *config.Config, tag string) (gone <-chan struct{}, err error) {
	if err := next.Validate(); err != nil {
		return nil, err
	}
	next.Complete()
	s.change.Lock()
	defer s.change.Unlock()
	if s.stopped {
		return nil, errStopped
	}
	if tag != "" && tag != s.tag() {
		return nil, control.ErrChanged
	}
	if err := s.fixed(next); err != nil {
		return nil, err
	}
	if gone, err = s.become(next); err != nil {
		return nil, err
	}
	s.log.Info("the configuration is changed", "endpoints", len(next.Listen), "subsystems", len(next.Subsystems), "namespaces", len(s.exports))
	if !s.target.Draining() {
		s.service.say("STATUS=" + s.exported())
	}
	return gone, nil
}

// staged holds what a change has made that can still be undone.
type staged struct {
	auth      *target.Authentication
	exports   map[exportKey]*export
	pools     map[string]*blockdev.Directory
	made      []string // directories that weren't there before, each after its parent
	listeners map[cli.Endpoint]*listener
	undo      []func() error // for what hosts already see; last done, first undone
	taken     []func() error // wait for what was taken from hosts, and close it
}

func newStaged() *staged {
	return &staged{exports: map[exportKey]*export{}, pools: map[string]*blockdev.Directory{}, listeners: map[cli.Endpoint]*listener{}}
}

// become opens everything new in next while hosts can't see it, or while what next forbids is already forbidden.
// Once all of that is open, it takes away what is no longer in next, and then gives hosts what is new: no host ever
// has both. Problems in those steps are logged: the change is made, and no error is returned. The change lock is
// held, or no other goroutine exists yet.
func (s *server) become(next *config.Config) (gone <-chan struct{}, err error) {
	st := newStaged()
	if err := s.stage(next, st); err != nil {
		return nil, errors.Join(err, s.drop(st))
	}
	if err := s.add(next, st); err != nil {
		return nil, errors.Join(s.stateError(err), s.drop(st))
	}
	s.logBadly(s.commit(next, st))
	s.now.Lock()
	defer s.now.Unlock()
	s.cfg = next
	s.changes++
	return s.finish(st), nil
}

// finish closes what a change, successful or not, has taken from hosts, once nothing uses it any more.
func (s *server) finish(st *staged) (gone <-chan struct{}) {
	done := make(chan struct{})
	s.finishing.Go(func() {
		defer close(done)
		for _, f := range st.taken {
			if err := f(); err != nil {
				s.log.Error("what hosts have no more is closed, but not all of that went well", "err", err)
			}
		}
	})
	return done
}

func (s *server) logBadly(err error) {
	if err != nil {
		s.log.Error("the configuration is changed, but not all of that went well", "err", err)
	}
}

// stateError says where the unusable saved state is, and what to do.
func (s *server) stateError(err error) error {
	if !errors.Is(err, target.ErrState) {
		return err
	}
	return fmt.Errorf("%sstate %s: %w; bring back the .state file of that name as it was, or move it away, and with it what it keeps", s.mark, s.cfg.State, err)
}

func (s *server) stage(next *config.Config, st *staged) (err error) {
	if st.auth, err = s.authentication(next); err != nil {
		return err
	}
	for i := range next.Subsystems {
		sub := &next.Subsystems[i]
		if err := s.stagePool(sub, st); err != nil {
			return err
		}
		for j := range sub.Namespaces {
			n := &sub.Namespaces[j]
			key := exportKey{sub.NQN, n.NSID}
			if s.exports[key] != nil {
				continue
			}
			e, err := s.openExport(key, n)
			if err != nil {
				return err
			}
			st.exports[key] = e
			engine := e.namespace(n)
			if err := engine.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stagePool opens the directory in which the hosts of a new subsystem create namespaces.
func (s *server) stagePool(sub *config.Subsystem, st *staged) error {
	if sub.Create == nil || s.pools[sub.NQN] != nil {
		return nil
	}
	st.made = append(st.made, absent(sub.Create.Directory)...)
	d, err := blockdev.OpenDirectory(sub.Create.Directory, uint64(sub.Create.Capacity), blockdev.Options{Preallocate: sub.Create.Preallocate})
	if err != nil {
		return cli.Say(err, "create.directory %s: %v", sub.Create.Directory, err)
	}
	st.pools[sub.NQN] = d
	return nil
}

// absent returns those of a path and its parents that don't exist, each after its parent.
func absent(path string) (all []string) {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		all = append(all, path)
	}
	slices.Reverse(all)
	return all
}

// drop undoes everything. Hosts may already have connected to new listeners: those are closed when the hosts are
// done.
func (s *server) drop(st *staged) error {
	errs := []error{undo(st.undo)}
	for _, l := range st.listeners {
		errs = append(errs, l.stop())
		st.taken = append(st.taken, l.close)
	}
	s.finish(st)
	for _, e := range st.exports {
		errs = append(errs, e.abandon())
	}
	for _, path := range slices.Backward(st.made) {
		_ = os.Remove(path) // it stays if somebody else has put something there
	}
	for _, d := range st.pools { // only now, as another program may use its directory then
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// add opens what is new in next: the endpoints, over which nobody gets what next forbids, and the subsystems, which
// nobody may use yet. It can fail: an address may be in use, or the saved state of a namespace unreadable.
func (s *server) add(next *config.Config, st *staged) error {
	st.undo = append(st.undo, func() error { return s.target.SetAuthentication(s.auth) })
	if err := s.target.SetAuthentication(st.auth); err != nil {
		return err
	}
	if err := s.narrow(next, st); err != nil {
		return err
	}
	for _, e := range next.Listen {
		if s.listeners[e] != nil {
			continue
		}
		l := &listener{}
		st.listeners[e] = l
		if err := s.listen(next, e, l); err != nil {
			return err
		}
	}
	for i := range next.Subsystems {
		if err := s.addSubsystem(&next.Subsystems[i], st); err != nil {
			return err
		}
	}
	return nil
}

// addSubsystem adds a new subsystem, or checks that the new namespaces of an existing one can be added.
func (s *server) addSubsystem(sub *config.Subsystem, st *staged) error {
	if t := s.target.Subsystem(sub.NQN); t != nil {
		return t.CheckNamespaces(s.removed(sub), st.namespaces(sub))
	}
	c := target.SubsystemConfig{
		NQN: sub.NQN, Serial: sub.Serial, Model: sub.Model,
		MaxControllers: sub.MaxControllers, Namespaces: st.namespaces(sub),
	}
	if d := st.pools[sub.NQN]; d != nil {
		c.Pool = d
	}
	if _, err := s.target.AddSubsystem(c); err != nil {
		return err
	}
	st.undo = append(st.undo, func() error { return s.target.RemoveSubsystem(sub.NQN) })
	return nil
}

// removed returns the NSIDs that sub, as it will be, has no more.
func (s *server) removed(sub *config.Subsystem) (all []uint32) {
	for _, n := range s.cfg.Subsystem(sub.NQN).Namespaces {
		if sub.Namespace(n.NSID) == nil {
			all = append(all, n.NSID)
		}
	}
	return all
}

// namespaces returns the staged namespaces of sub.
func (st *staged) namespaces(sub *config.Subsystem) (all []target.NamespaceConfig) {
	for i := range sub.Namespaces {
		n := &sub.Namespaces[i]
		if e := st.exports[exportKey{sub.NQN, n.NSID}]; e != nil {
			all = append(all, e.namespace(n))
		}
	}
	return all
}
