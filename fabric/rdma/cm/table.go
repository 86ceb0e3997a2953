package cm

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/internal/crowd"
	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// record is a connection in the manager's table. It outlives its owner until its peer has been told and TIMEWAIT is
// over.
type record struct {
	conn
	owner    *cmID // nil when destroyed
	listener *cmID // for a request that waits for accept or reject

	was     state // the state before the current step
	removed bool  // from the table
	timer   int   // in table.timers; -1 while no timer runs

	unconfirmed *crowd.Member[*record] // in the table's crowd, while it waits for its peer
}

// peerKey identifies a connection by the peer's number for it: its communication ID, or its QPN.
type peerKey struct {
	addr netip.Addr
	guid uint64
	num  uint32
}

// table indexes the connections.
type table struct {
	byLocal map[uint32]*record  // our communication ID
	byID    map[peerKey]*record // duplicate REQs
	byQPN   map[peerKey]*record // stale connections: not those in TIMEWAIT, whose QPNs are free
	uses    uses
	timers  pqueue.Queue[*record] // those whose timer runs, by deadline

	unconfirmed crowd.Crowd[*record] // those that wait for their peer
}

func newTable() table {
	return table{
		byLocal: map[uint32]*record{}, byID: map[peerKey]*record{}, byQPN: map[peerKey]*record{}, uses: uses{},
		timers: pqueue.New(
			func(a, b *record) bool { return a.deadline.Before(b.deadline) },
			func(r *record, index int) { r.timer = index },
		),
	}
}

// peerAddr returns the peer's address as its messages contain it: without a zone, which is this host's own name for a
// link.
func (r *record) peerAddr() netip.Addr { return r.peer.Addr().WithZone("") }

func (r *record) idKey() peerKey {
	return peerKey{r.peerAddr(), r.remoteGUID, r.ids.Remote}
}

func (r *record) qpnKey() peerKey {
	return peerKey{r.peerAddr(), r.remoteGUID, r.remoteQPN}
}

// add enters r under our ID, and under the peer's ID and QPN if they are known.
func (t *table) add(r *record) {
	r.timer = -1
	t.byLocal[r.ids.Local] = r
	t.uses.add(r.peerAddr(), use{connections: 1})
	if r.passive {
		t.learn(r)
	}
}

// learn enters r under the peer's ID and QPN.
func (t *table) learn(r *record) {
	if t.byID[r.idKey()] == nil {
		t.byID[r.idKey()] = r
	}
	if t.byQPN[r.qpnKey()] == nil {
		t.byQPN[r.qpnKey()] = r
	}
}

// remove takes r out.
func (t *table) remove(r *record) {
	if r.timer >= 0 {
		t.timers.Remove(r.timer)
	}
	delete(t.byLocal, r.ids.Local)
	t.uses.add(r.peerAddr(), use{connections: -1})
	if t.byID[r.idKey()] == r {
		delete(t.byID, r.idKey())
	}
	t.freeQPN(r)
}

// freeQPN forgets which QP of its peer r is connected to.
func (t *table) freeQPN(r *record) {
	if t.byQPN[r.qpnKey()] == r {
		delete(t.byQPN, r.qpnKey())
	}
}

// find returns the connection from src that a message names by our ID.
func (t *table) find(src netip.Addr, ids mad.CommIDs) *record {
	r := t.byLocal[ids.Remote]
	if r == nil || r.peerAddr() != src {
		return nil
	}
	return r
}

// findPair returns the connection from src that a message names by both IDs.
func (t *table) findPair(src netip.Addr, ids mad.CommIDs) *record {
	r := t.find(src, ids)
	if r == nil || r.ids.Remote != ids.Local {
		return nil
	}
	return r
}

// moved updates the table after r has changed its state.
func (t *table) moved(r *record) {
	more := use{halfOpen: change(r.was.halfOpen(), r.state.halfOpen()), standing: change(r.was.stands(), r.state.stands())}
	if more != (use{}) {
		t.uses.add(r.peerAddr(), more)
	}
	if r.state == stateTimewait {
		t.freeQPN(r)
	}
	switch change(r.was.awaitsRTU(), r.state.awaitsRTU()) {
	case 1:
		r.unconfirmed = t.unconfirmed.Add(r.peerAddr(), r)
	case -1:
		t.unconfirmed.Remove(r.unconfirmed)
		r.unconfirmed = nil
	}
}

// change returns 1 for what has begun, and -1 for what has ended.
func change(was, is bool) int {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// arm sets the timer of r to its deadline.
func (t *table) arm(r *record) {
	switch {
	case r.deadline.IsZero() && r.timer >= 0:
		t.timers.Remove(r.timer)
	case !r.deadline.IsZero() && r.timer < 0:
		t.timers.Push(r)
	case r.timer >= 0:
		t.timers.Fix(r.timer)
	}
}

// next returns the first deadline; zero for none.
func (t *table) next() time.Time {
	if t.timers.Len() == 0 {
		return time.Time{}
	}
	return t.timers.First().deadline
}
