package multipath

import (
	"errors"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

const (
	// maxTries is how often a request is sent again because of statuses that don't concern
	// ANA; it is Linux's.
	maxTries = 5
	// maxCuts is how often a request is sent again because its path was lost, for each path: all of
	// them may be lost with one target, and each cut it short. Linux bounds that for a controller
	// without multipath, by the same number.
	maxCuts = 5
	// pathPause is the pause before a path that failed internally is asked again, where there
	// is no other.
	pathPause = 100 * time.Millisecond
	// retryDelayUnit is that of CRDT1 to CRDT3.
	retryDelayUnit = 100 * time.Millisecond
)

// repeatable reports whether executing c twice gives what executing it once gives, as long as
// nobody else writes the same blocks at that time. Copy isn't: its ranges may overlap.
func repeatable(c *nvme.Command) bool {
	if c.Fuse() != 0 {
		return false
	}
	switch c.Opcode() {
	case nvme.OpFlush, nvme.OpWrite, nvme.OpRead, nvme.OpWriteUncorrectable, nvme.OpCompare,
		nvme.OpWriteZeroes, nvme.OpDSM, nvme.OpVerify:
		return true
	}
	return false
}

// again decides what becomes of a request that failed on a way: true where it is sent again,
// or will be. It is called in the transport's context.
func (n *space) again(w *way, r *host.Request) bool {
	if r.Cancelled() {
		return false
	}
	if r.Err != nil {
		return n.cutShort(w, r)
	}
	st := r.Status()
	if r.Cmd.Fuse() != 0 { // the other half would be missing
		return false
	}
	if st.Code() == nvme.StatusCommandSequence {
		// The controller isn't ready any more: it ends, or is being shut down, and has executed
		// nothing. Do Not Retry holds for that controller.
		if r.Tries++; r.Tries > maxTries {
			return false
		}
		return n.elsewhere(w, r)
	}
	if st.DNR() {
		return false
	}
	switch st.Code() {
	case nvme.StatusANAInaccessible, nvme.StatusANATransition, nvme.StatusANAPersistentLoss:
		w.doubt()
		n.refused(r)
		return true
	}
	if !repeatable(&r.Cmd) { // a part of it may have been executed
		return false
	}
	if r.Tries++; r.Tries > maxTries {
		return false
	}
	switch delay := retryDelay(w.ctrl, st); {
	case delay > 0:
		return n.later(r, delay)
	case st.SCT() == nvme.StatusInternalPathError.SCT():
		return n.elsewhere(w, r)
	}
	n.resend(r)
	return true
}

// cutShort is again for a request that was not answered. One with which every path that takes it is
// lost ends: it may be what its target can't bear, and would end each controller that comes.
func (n *space) cutShort(w *way, r *host.Request) bool {
	if !errors.Is(r.Err, host.ErrLost) && !errors.Is(r.Err, host.ErrClosed) || n.sub.isClosing() {
		return false
	}
	w.lost()
	if !r.Sent() && r.Cmd.Fuse() == 0 { // nothing was done, and it ended nothing
		n.resend(r)
		return true
	}
	if !repeatable(&r.Cmd) {
		return false
	}
	if r.Cuts++; r.Cuts > maxCuts*n.sub.pathCount() {
		n.sub.counters.Failed.Add(1)
		r.Err = &CutShortError{SubNQN: n.sub.SubNQN(), NSID: n.nsid, Opcode: r.Cmd.Opcode(), Blocks: r.Cmd.BlockRange(),
			Times: r.Cuts, Last: r.Err}
		return false
	}
	n.resend(r)
	return true
}

// refused sends again what was answered with an ANA status, or ends it where it has been refused
// for as long as requests wait for a path. A controller whose log keeps saying that the namespace
// can be used would have it otherwise for ever: to the log there is no outage.
func (n *space) refused(r *host.Request) {
	if r.Refused.IsZero() {
		r.Refused = time.Now()
	}
	s := n.sub
	s.mu.Lock()
	patience, since := s.patience(), time.Since(r.Refused)
	if patience < 0 || since < patience || s.closing || r.Cancelled() {
		s.mu.Unlock()
		n.resend(r)
		return
	}
	err := &NoPathError{SubNQN: s.SubNQN(), NSID: n.nsid, For: since, Paths: s.statuses(), Refusal: r.Check()}
	s.mu.Unlock()
	s.counters.Failed.Add(1)
	finish(r, err)
}

// retryDelay is what the controller asks for by CRD.
func retryDelay(c *host.Controller, st nvme.Status) time.Duration {
	id := c.Identify()
	times := [...]uint16{0, id.CRDT1, id.CRDT2, id.CRDT3}
	return time.Duration(times[st.CRD()]) * retryDelayUnit
}

// send gives r to a way, or lets it wait for one.
func (n *space) send(r *host.Request) {
	if w := n.choose(); w != nil {
		w.send(r)
		return
	}
	n.park(r)
}

// resend is send for a request that was sent before, and may have been cancelled meanwhile.
func (n *space) resend(r *host.Request) {
	if r.Cancelled() {
		finish(r, errCancelled)
		return
	}
	n.send(r)
	n.catch(r)
}

// catch cancels r where that was wanted before r was sent again: Cancel may have found it nowhere.
func (n *space) catch(r *host.Request) {
	if r.Cancelled() {
		carrier{n}.Cancel(r, false)
	}
}

// elsewhere sends r by another way than w, or as later does by the same.
func (n *space) elsewhere(w *way, r *host.Request) bool {
	for _, o := range *n.ways.Load() {
		if o.path != w.path {
			o.send(r)
			n.catch(r)
			return true
		}
	}
	return n.later(r, pathPause)
}

// later sends r after a time. It reports false where nothing is to wait any more, and r ends as it was answered.
func (n *space) later(r *host.Request, d time.Duration) bool {
	s := n.sub
	s.mu.Lock()
	switch {
	case s.closing || r.Cancelled():
		s.mu.Unlock()
		finish(r, n.refusal(r))
		return true
	case s.impatient:
		s.mu.Unlock()
		return false
	}
	n.delayed[r] = time.AfterFunc(d, func() {
		s.mu.Lock()
		_, mine := n.delayed[r]
		delete(n.delayed, r)
		s.mu.Unlock()
		if mine {
			n.resend(r)
		}
	})
	s.mu.Unlock()
	return true
}
