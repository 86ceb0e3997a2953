package multipath

import (
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// isClosing reports whether Close was called.
func (s *Subsystem) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// refusal returns why r can't wait.
func refusal(r *host.Request) error {
	if r.Cancelled() {
		return errCancelled
	}
	return errClosed
}

// park makes r wait for a way, or ends it if none will come in time.
func (n *space) park(r *host.Request) {
	s := n.sub
	s.mu.Lock()
	var err error
	switch {
	case s.closing || r.Cancelled():
		err = refusal(r)
	case len(*n.ways.Load()) > 0: // one has appeared in the meantime
		s.mu.Unlock()
		n.send(r)
		return
	case n.tooLate() || n.hopeless():
		err = n.noPath()
		s.counters.Failed.Add(1)
	}
	if err != nil {
		s.mu.Unlock()
		finish(r, err)
		return
	}
	s.counters.Waited.Add(1)
	n.waiting = append(n.waiting, r)
	if n.timer == nil {
		n.watch()
	}
	s.mu.Unlock()
}

// deadline returns when requests have waited long enough in this outage; zero means never. Called with Subsystem.mu
// held.
func (n *space) deadline() (at time.Time) {
	s := n.sub
	if patience := s.patience(); patience >= 0 {
		at = n.outage.Add(patience)
	}
	if fast := s.cfg.FastIOFail; fast > 0 && !s.dark.IsZero() {
		if fails := s.dark.Add(fast); at.IsZero() || fails.Before(at) {
			at = fails
		}
	}
	return at
}

// tooLate reports whether the deadline has passed. Called with Subsystem.mu held.
func (n *space) tooLate() bool {
	at := n.deadline()
	return !at.IsZero() && !time.Now().Before(at)
}

// watch has expire called at the deadline, if requests wait. Called with Subsystem.mu held.
func (n *space) watch() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if at := n.deadline(); len(n.waiting) > 0 && !at.IsZero() {
		n.timer = time.AfterFunc(time.Until(at), n.expire)
	}
}

// expire ends all waiting requests if the deadline has passed.
func (n *space) expire() {
	s := n.sub
	s.mu.Lock()
	if n.outage.IsZero() || s.closing {
		s.mu.Unlock()
		return
	}
	if !n.tooLate() { // the timer was for an earlier deadline
		n.watch()
		s.mu.Unlock()
		return
	}
	err := n.noPath()
	left := n.takeWaiting()
	s.work.Add(1) // Close has not begun to wait
	defer s.work.Done()
	s.mu.Unlock()
	for _, r := range left {
		s.counters.Failed.Add(1)
		finish(r, err)
	}
}

// takeWaiting removes and returns the requests that wait for a way. Called with Subsystem.mu held.
func (n *space) takeWaiting() []*host.Request {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	rs := n.waiting
	n.waiting = nil
	return rs
}

// takeDelayed removes and returns the requests that wait for their delay. Called with Subsystem.mu held.
func (n *space) takeDelayed() (rs []*host.Request) {
	for r, t := range n.delayed {
		t.Stop()
		rs = append(rs, r)
	}
	clear(n.delayed)
	return rs
}

// forget removes r from the waiting and delayed requests, and reports whether it was there. Called with
// Subsystem.mu held.
func (n *space) forget(r *host.Request) bool {
	if t := n.delayed[r]; t != nil {
		t.Stop()
		delete(n.delayed, r)
		return true
	}
	i := slices.Index(n.waiting, r)
	if i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
	}
	return i >= 0
}
