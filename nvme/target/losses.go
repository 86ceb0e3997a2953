package target

import (
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// losses are the flushes of a namespace that its volume failed. A volume tells only one flush that data may be lost,
// and not whose. But every host that wrote has to know: a Flush that succeeds afterwards would promise durability that
// isn't there. So a host's Flush fails until the host has been told of each loss by a Flush that it sent after the
// loss.
type losses struct {
	count atomic.Uint32 // while it is 0, nothing else is looked at

	mu     sync.Mutex
	status nvme.Status        // of the last one
	told   map[hostKey]uint32 // the last one that each host was told of
}

// hostKey identifies a host, whatever controllers it has.
type hostKey struct {
	nqn string
	id  nvme.HostID
}

// mostKnown bounds the hosts that a subsystem remembers.
const mostKnown = 4096

func (c *controller) host() hostKey { return hostKey{c.hostNQN, c.hostID} }

// add counts a flush that failed, and returns its number.
func (l *losses) add(st nvme.Status) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = st
	return l.count.Add(1)
}

// tell returns the status of a host's flush that the volume failed as number seen, or that was submitted after that
// one. reached says that the host is still there to be told.
func (l *losses) tell(h hostKey, seen uint32, reached bool) nvme.Status {
	if l.count.Load() == 0 {
		return nvme.StatusSuccess
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told[h]
	if told == l.count.Load() {
		return nvme.StatusSuccess
	}
	if reached {
		l.know(h, max(told, seen))
	}
	return l.status
}

// meet notes that a host is new, and can't have lost anything so far.
func (l *losses) meet(h hostKey) {
	if n := l.count.Load(); n > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.know(h, n)
	}
}

// know notes that a host knows of the first n losses. Called with mu held.
func (l *losses) know(h hostKey, n uint32) {
	if l.told == nil {
		l.told = map[hostKey]uint32{}
	}
	l.told[h] = n
}

func (l *losses) forget(h hostKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.told, h)
}

// meet remembers a host, so that it isn't taken for a new one when it connects again. If there are too many, another
// host is forgotten. Called with Target.mu held.
func (s *Subsystem) meet(h hostKey) {
	if s.known[h] || s.discovery {
		return
	}
	if len(s.known) >= mostKnown {
		for old := range s.known {
			delete(s.known, old)
			for _, ns := range s.all() {
				ns.losses.forget(old)
			}
			break
		}
	}
	if s.known == nil {
		s.known = map[hostKey]bool{}
	}
	s.known[h] = true
	for _, ns := range s.all() {
		ns.losses.meet(h)
	}
}

// flushed is called when the volume has answered a flush.
func (r *Request) flushed() {
	e := &r.engine
	if e.io.Err != nil {
		e.losses = e.ns.losses.add(volumeStatus(e.io.Op, e.io.Err))
	}
}

// flushStatus returns the status of a flush, which also fails for what others lost. It has Do Not Retry: a host that
// retried it by itself, as Linux does if allowed, would be told that all is durable, and the application that wrote
// would never know.
func (r *Request) flushStatus() nvme.Status {
	e := &r.engine
	st := e.ns.losses.tell(e.q.ctrl.host(), e.losses, e.q.state.Load() != queueDown)
	switch {
	case e.io.Err != nil:
		return r.volumeStatus(e.io.Err) | nvme.StatusDNR
	case !st.OK():
		e.q.t.log.Warn("a flush fails for what one before it lost", r.identity()...)
		return st | nvme.StatusDNR
	}
	return st
}
