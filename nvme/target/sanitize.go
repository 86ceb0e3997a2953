package target

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Sanitize (NVMe base, "Sanitize Operations") erases every namespace of the subsystem, attached or not, in the
// background. Until it has succeeded, only a few admin commands are executed; after a restart it starts over, for the
// namespaces that existed when it began.

// sanicap is SANICAP. There is no cryptographic erase, because volumes have no key to erase.
const sanicap = nvme.SANICAPBlock | nvme.SANICAPOverwrite | nvme.SANICAPUnmodified

// Bytes that one operation erases: few enough for progress to show, and for the target to close soon.
const (
	eraseStep     = 64 << 20
	overwriteStep = 1 << 20
)

// sanitizer is the state of a subsystem's last sanitize operation.
type sanitizer struct {
	mu       sync.Mutex // one change at a time
	now      atomic.Pointer[sanitizeState]
	done     atomic.Int64  // bytes, of all passes
	total    atomic.Uint64 // bytes, of one pass
	complete atomic.Int32  // passes
}

// sanitizeState is that state as it is stored. It is never modified.
type sanitizeState struct {
	State nvme.SanitizeStatus `json:"state"` // without passes
	CDW10 uint32              `json:"cdw10"`
	CDW11 uint32              `json:"cdw11"`
	// UUIDs are those of the namespaces to erase: all that existed when it began. What the operator has added since, or
	// exports under the NSID of one of these, isn't the host's to erase. Nil: all.
	UUIDs []string `json:"uuids"`
	// Passes is the number of passes of an overwrite that completed.
	Passes int `json:"passes"`
	// Left says that a host left the failure mode.
	Left bool `json:"left,omitempty"`
}

// refuses returns the status of commands that can't be executed now.
func (s *sanitizeState) refuses() nvme.Status {
	switch {
	case s.State == nvme.SanitizeInProgress:
		return nvme.StatusSanitizeInProgress
	case s.State == nvme.SanitizeFailed && !s.Left:
		return nvme.StatusSanitizeFailed
	}
	return nvme.StatusSuccess
}

// restricted reports whether only another sanitize operation can end the failure mode.
func (s *sanitizeState) restricted() bool {
	return s.refuses() == nvme.StatusSanitizeFailed && s.CDW10&nvme.SanitizeAUSE == 0
}

// sanitizing returns the status with which the subsystem refuses commands, or success.
func (s *Subsystem) sanitizing() nvme.Status { return s.sanitize.now.Load().refuses() }

// sanitizeCommand executes Sanitize.
func (r *Request) sanitizeCommand() {
	a := r.Cmd.SanitizeAction()
	switch {
	case a != nvme.SanitizeExitFailure && a != nvme.SanitizeBlockErase && a != nvme.SanitizeOverwrite:
		r.fail(nvme.StatusInvalidField, nvme.SanitizeOffSANACT)
	case a != nvme.SanitizeExitFailure && r.Cmd.CDW10()&nvme.SanitizeEMVS != 0: // as SANICAP says
		r.fail(nvme.StatusInvalidField, nvme.SanitizeOffEMVS)
	default:
		r.engine.q.ctrl.sub.work.Go(r.startSanitize)
	}
}

// startSanitize continues where it may take time: what is going to happen is saved first.
func (r *Request) startSanitize() {
	s := r.engine.q.ctrl.sub
	s.sanitize.mu.Lock()
	st := r.changeSanitize()
	s.sanitize.mu.Unlock()
	if !st.OK() {
		r.fail(st, noLoc)
		return
	}
	r.respond(nvme.StatusSuccess)
}

// changeSanitize begins an operation, or leaves the failure mode of the last one. Called with sanitize.mu held.
func (r *Request) changeSanitize() nvme.Status {
	c := r.engine.q.ctrl
	s := c.sub
	old := s.sanitize.now.Load()
	if st := r.maySanitize(old); !st.OK() {
		return st
	}
	if r.Cmd.SanitizeAction() == nvme.SanitizeExitFailure {
		return s.leaveFailure(old)
	}
	next := sanitizeState{State: nvme.SanitizeInProgress, CDW10: r.Cmd.CDW10(), CDW11: r.Cmd.CDW(11), UUIDs: []string{}}
	for _, ns := range s.all() {
		next.UUIDs = append(next.UUIDs, nvme.HostID(ns.uuid).String())
	}
	// While the subsystem is being removed it has no namespaces any more; the next run would find none to erase.
	if s.ctx.Err() != nil || s.saveSanitize(&next) != nil {
		return nvme.StatusInternalError
	}
	s.noteEvent(nvme.PersistentSanitize, c, &nvme.SanitizeStartEvent{SANICAP: sanicap, CDW10: next.CDW10, CDW11: next.CDW11})
	s.t.log.Warn("sanitize operation: all namespaces are being erased", "subsystem", s.nqn, "host", c.hostNQN)
	s.clearSanitized()
	s.runSanitize(&next, c)
	return nvme.StatusSuccess
}

// leaveFailure leaves the failure mode, if the subsystem is in it. Called with sanitize.mu held.
func (s *Subsystem) leaveFailure(old *sanitizeState) nvme.Status {
	if old.refuses().OK() {
		return nvme.StatusSuccess
	}
	next := *old
	next.Left = true
	if s.saveSanitize(&next) != nil {
		return nvme.StatusInternalError
	}
	s.useSanitize(&next)
	return nvme.StatusSuccess
}

// maySanitize returns why an operation can't begin, or the failure mode not be left.
func (r *Request) maySanitize(old *sanitizeState) nvme.Status {
	c := r.engine.q.ctrl
	ause := r.Cmd.CDW10()&nvme.SanitizeAUSE != 0
	exit := r.Cmd.SanitizeAction() == nvme.SanitizeExitFailure
	switch {
	case old.refuses() == nvme.StatusSanitizeInProgress:
		return nvme.StatusSanitizeInProgress
	case old.restricted() && (exit || ause):
		return nvme.StatusSanitizeFailed
	case exit:
		return nvme.StatusSuccess
	}
	for _, ns := range c.sub.all() {
		if ns.protected.Load() {
			return nvme.StatusNamespaceWriteProtected
		}
		if st := r.mayChange(ns); !st.OK() {
			return st
		}
	}
	return nvme.StatusSuccess
}

// saveSanitize saves a state, if there is a Store.
func (s *Subsystem) saveSanitize(next *sanitizeState) error {
	if s.t.store == nil {
		return nil
	}
	err := s.saveState(stateSanitize, next)
	if err != nil {
		s.t.log.Error("the state of a sanitize operation can't be saved", "subsystem", s.nqn, "err", err)
	}
	return err
}

// useSanitize makes a state effective.
func (s *Subsystem) useSanitize(next *sanitizeState) {
	s.t.mu.Lock() // for namespaces that are being added (publish)
	defer s.t.mu.Unlock()
	s.sanitize.now.Store(next)
	for _, ns := range s.all() {
		ns.setState(nsSanitize, !next.refuses().OK())
	}
}

// loadSanitize loads the state of the last operation.
func (s *Subsystem) loadSanitize() error {
	var saved sanitizeState
	if err := s.loadState(stateSanitize, &saved); err != nil {
		return err
	}
	if saved.State > nvme.SanitizeFailed {
		return s.stateError(stateSanitize, fmt.Errorf("state %d", saved.State))
	}
	s.useSanitize(&saved)
	return nil
}

// resumeSanitize starts over an operation that was interrupted by the end of the target. All namespaces have been
// added.
func (s *Subsystem) resumeSanitize() {
	if now := s.sanitize.now.Load(); now.refuses() == nvme.StatusSanitizeInProgress {
		s.t.log.Warn("sanitize operation goes on after a restart", "subsystem", s.nqn)
		s.runSanitize(now, nil)
	}
}

// runSanitize erases in the background, for the controller that got the command, or for none. From here on no command
// reaches the namespaces.
func (s *Subsystem) runSanitize(now *sanitizeState, by *controller) {
	s.sanitize.done.Store(0)
	s.sanitize.total.Store(0)
	s.sanitize.complete.Store(0)
	s.useSanitize(now)
	s.work.Go(func() {
		err := s.eraseAll(now)
		if s.ctx.Err() != nil {
			return // the next run of the target starts over
		}
		s.endSanitize(now, by, err)
	})
}

// passes returns how often each block is written.
func (s *sanitizeState) passes() int {
	if nvme.SanitizeAction(s.CDW10&7) == nvme.SanitizeOverwrite {
		return nvme.SanitizePasses(s.CDW10)
	}
	return 1
}

// eraseAll erases the namespaces, and then those of them that the operator has meanwhile removed and added again.
func (s *Subsystem) eraseAll(now *sanitizeState) error {
	erased := map[*Namespace]bool{}
	for all := s.toErase(now, erased); len(all) > 0; all = s.toErase(now, erased) {
		for pass := range now.passes() {
			for _, ns := range all {
				if err := ns.eraseUnlessRemoved(s.ctx, now, pass); err != nil {
					return fmt.Errorf("namespace %d: %w", ns.nsid, err)
				}
			}
			s.sanitize.complete.Store(int32(pass + 1))
		}
	}
	s.sanitize.complete.Store(int32(now.passes())) // also if there is no namespace
	return nil
}

// toErase returns the namespaces to erase that aren't in erased, and adds them to it.
func (s *Subsystem) toErase(now *sanitizeState, erased map[*Namespace]bool) (all []*Namespace) {
	every := now.UUIDs == nil && len(erased) == 0 // what is added later isn't the host's to erase
	for _, ns := range s.all() {
		if !erased[ns] && (every || slices.Contains(now.UUIDs, nvme.HostID(ns.uuid).String())) {
			all, erased[ns] = append(all, ns), true
			s.sanitize.total.Add(ns.blocks.Load() << ns.shift)
		}
	}
	return all
}

// endSanitize notes how an operation ended. Only the controller that got the command has the event (NVMe base,
// "Sanitize Operation Types and Support"); if it is gone, all have it: otherwise no host would be told.
func (s *Subsystem) endSanitize(now *sanitizeState, by *controller, err error) {
	next := *now
	next.State = nvme.SanitizeDone
	if nvme.SanitizeAction(now.CDW10&7) == nvme.SanitizeOverwrite {
		next.Passes = int(s.sanitize.complete.Load())
	}
	if err != nil {
		next.State = nvme.SanitizeFailed
		s.t.log.Error("sanitize operation failed", "subsystem", s.nqn, "err", err)
	} else {
		s.t.log.Info("sanitize operation done", "subsystem", s.nqn)
	}
	s.sanitize.mu.Lock()
	if s.saveSanitize(&next) != nil && err == nil {
		next.State = nvme.SanitizeFailed // after a restart it would start over
	}
	s.useSanitize(&next)
	log := s.sanitizeLog()
	s.noteEvent(nvme.PersistentSanitizeEnd, nil, &nvme.SanitizeEndEvent{SPROG: log.SPROG, SSTAT: log.SSTAT})
	var out []answer
	if by != nil {
		out = by.tell(eventSanitize)
	}
	if by == nil || by.ended() { // perhaps before it had the event
		for _, c := range s.t.controllersOf(s) {
			out = append(out, c.tell(eventSanitize)...)
		}
	}
	s.sanitize.mu.Unlock()
	deliver(out)
}

// clearSanitized rearms the event of an operation's end when another operation begins.
func (s *Subsystem) clearSanitized() {
	for _, c := range s.t.controllersOf(s) {
		c.mu.Lock()
		c.rearm(eventSanitize)
		c.mu.Unlock()
	}
}

// sanitizeLog returns the Sanitize Status log.
func (s *Subsystem) sanitizeLog() nvme.SanitizeLog {
	const unknown = 0xffffffff
	now := s.sanitize.now.Load()
	p := nvme.SanitizeLog{
		SPROG: 0xffff, SSTAT: now.State.WithPasses(now.Passes), SCDW10: now.CDW10,
		OverwriteTime: unknown, BlockEraseTime: unknown, CryptoEraseTime: unknown,
		OverwriteTimeND: unknown, BlockEraseTimeND: unknown, CryptoEraseTimeND: unknown,
	}
	if now.State == nvme.SanitizeInProgress {
		total := float64(max(s.sanitize.total.Load(), 1)) * float64(now.passes())
		p.SPROG = uint16(min(float64(s.sanitize.done.Load())/total*65536, 65535))
		if now.passes() > 1 {
			p.SSTAT = now.State.WithPasses(int(s.sanitize.complete.Load()))
		}
	}
	return p
}

// sanitizeStatus returns the log page; without retain, reading it lets the next event through.
func (c *controller) sanitizeStatus(retain bool) []byte {
	if !retain {
		c.mu.Lock()
		c.rearm(eventSanitize)
		c.mu.Unlock()
	}
	p := c.sub.sanitizeLog()
	return p.AppendTo(nil)
}
