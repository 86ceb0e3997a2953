package multipath

import (
	"errors"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

const (
	// maxTries is how often a request is sent again because of statuses that don't concern ANA; the number is
	// Linux's.
	maxTries = 5
	// maxCuts is how often, for each path, a request is sent again because its path was lost: one target may lose
	// all paths, and each of them cut the request short. Linux has the same bound for a controller without
	// multipath.
	maxCuts = 5
	// pathPause is the pause before a path that failed internally is tried again, if there is no other.
	pathPause = 100 * time.Millisecond
	// retryDelayUnit is the unit of CRDT1 to CRDT3.
	retryDelayUnit = 100 * time.Millisecond
)

// repeatable reports whether executing c twice has the same result as executing it once, as long as nobody else
// writes the same blocks in the meantime. Copy isn't repeatable: its ranges may overlap.
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

// again decides what becomes of a request that failed on a way. It returns true if the request has been or will be
// sent again, or has ended here. It is called in the transport's context.
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
	switch st.Code() {
	case nvme.StatusCommandSequence, nvme.StatusOperationDenied, nvme.StatusAuthenticationRequired:
		// The controller is no longer ready: it has ended or is being shut down, or this host has failed to
		// authenticate itself again, which ends the connection. It has executed nothing, and Do Not Retry only applies
		// to that controller.
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
	if !repeatable(&r.Cmd) { // part of it may have been executed
		return false
	}
	if r.Tries++; r.Tries > maxTries {
		return false
	}
	switch delay := retryDelay(w.ctrl, st); {
	case delay > 0:
		return n.later(r, delay)
	case st.SCT() == nvme.StatusInternalPathError.SCT(), st.Code() == nvme.StatusAbortSQDeleted: // the connection ends
		return n.elsewhere(w, r)
	}
	n.resend(r)
	return true
}

// cutShort is again for a request that was not answered. A request that is lost with every path that takes it is
// ended: it may be what crashes its target, and would end every further controller.
func (n *space) cutShort(w *way, r *host.Request) bool {
	if !errors.Is(r.Err, host.ErrLost) && !errors.Is(r.Err, host.ErrClosed) {
		return false
	}
	if n.sub.isClosing() { // also if the path was lost at that moment: it won't be sent again because of Close
		r.Err = errClosed
		r.CQE.SetStatus(nvme.StatusHostAborted)
		return false
	}
	w.lost()
	if !r.Sent() && r.Cmd.Fuse() == 0 { // it did nothing, and can't be the cause of the loss
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

// refused sends a request again that was answered with an ANA status, or ends it if it has been refused for as long
// as requests wait for a path. Without that, a controller whose log keeps saying that the namespace can be used
// would hold up the request forever: by the log there is no outage.
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

// retryDelay returns the delay that the controller asks for by CRD.
func retryDelay(c *host.Controller, st nvme.Status) time.Duration {
	id := c.Identify()
	times := [...]uint16{0, id.CRDT1, id.CRDT2, id.CRDT3}
	return time.Duration(times[st.CRD()]) * retryDelayUnit
}

// send sends r by a way, or makes it wait for one.
func (n *space) send(r *host.Request) {
	if w := n.choose(); w != nil {
		w.send(r)
		return
	}
	n.park(r)
}

// resend is send for a request that was sent before, and may have been cancelled in the meantime.
func (n *space) resend(r *host.Request) {
	if r.Cancelled() {
		finish(r, errCancelled)
		return
	}
	n.send(r)
	n.catch(r)
}

// catch cancels r if that was requested just before r was sent again: Cancel may have found it nowhere. By now r may have
// ended.
func (n *space) catch(r *host.Request) {
	r.IfCancelled(func() { carrier{n}.Cancel(r, false) })
}

// elsewhere sends r by a way of another path than w's, or if there is none, after a pause. It returns false as
// later does.
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

// later sends r after d. It returns false if requests must not wait any more, or no path can come: then r ends as it
// was answered.
func (n *space) later(r *host.Request, d time.Duration) bool {
	s := n.sub
	s.mu.Lock()
	switch {
	case s.closing || r.Cancelled():
		s.mu.Unlock()
		finish(r, refusal(r))
		return true
	case s.impatient || n.hopeless():
		s.mu.Unlock()
		return false
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		s.mu.Lock()
		mine := n.delayed[r] == t // otherwise r has been taken, and may be delayed anew
		if mine {
			delete(n.delayed, r)
			s.work.Add(1) // before Close waits, since it would have taken r
		}
		s.mu.Unlock()
		if mine {
			n.resend(r)
			s.work.Done()
		}
	})
	n.delayed[r] = t
	s.mu.Unlock()
	return true
}
