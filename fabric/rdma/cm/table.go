package cm

import (
	"container/heap"
	"net/netip"
	"time"
)

// record is a connection in the manager's table. It outlives its owner until its peer has been
// told and TIMEWAIT is over.
type record struct {
	conn
	owner    *cmID // nil when destroyed
	listener *cmID // of a request that waits for accept or reject

	was       state // as the counters know it
	removed   bool  // from the table
	heapIndex int   // -1 while no timer runs
}

// peerKey finds a connection by what the peer calls it: its communication ID, or its QPN.
type peerKey struct {
	addr netip.Addr
	guid uint64
	num  uint32
}

// table finds connections.
type table struct {
	byLocal map[uint32]*record  // own communication ID
	byID    map[peerKey]*record // duplicate REQs
	byQPN   map[peerKey]*record // stale connections
	uses    uses
	timers  timerHeap
}

func newTable() table {
	return table{map[uint32]*record{}, map[peerKey]*record{}, map[peerKey]*record{}, uses{}, nil}
}

func (r *record) idKey() peerKey {
	return peerKey{r.peer.Addr(), r.remoteGUID, r.ids.Remote}
}

func (r *record) qpnKey() peerKey {
	return peerKey{r.peer.Addr(), r.remoteGUID, r.remoteQPN}
}

// add enters r under its own ID, and under the peer's where they are known.
func (t *table) add(r *record) {
	r.heapIndex = -1
	t.byLocal[r.ids.Local] = r
	t.uses.add(r.peer.Addr(), 1, 0)
	if r.passive {
		t.learn(r)
	}
}

// learn enters r under what the peer calls it.
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
	if r.heapIndex >= 0 {
		heap.Remove(&t.timers, r.heapIndex)
	}
	delete(t.byLocal, r.ids.Local)
	t.uses.add(r.peer.Addr(), -1, 0)
	if t.byID[r.idKey()] == r {
		delete(t.byID, r.idKey())
	}
	if t.byQPN[r.qpnKey()] == r {
		delete(t.byQPN, r.qpnKey())
	}
}

// find is the connection that src names by our ID in its message.
func (t *table) find(src netip.Addr, ids CommIDs) *record {
	r := t.byLocal[ids.Remote]
	if r == nil || r.peer.Addr() != src {
		return nil
	}
	return r
}

// findPair is the connection that src names by both IDs.
func (t *table) findPair(src netip.Addr, ids CommIDs) *record {
	r := t.find(src, ids)
	if r == nil || r.ids.Remote != ids.Local {
		return nil
	}
	return r
}

// arm brings the timer of r in line with its deadline.
func (t *table) arm(r *record) {
	switch {
	case r.deadline.IsZero() && r.heapIndex >= 0:
		heap.Remove(&t.timers, r.heapIndex)
	case !r.deadline.IsZero() && r.heapIndex < 0:
		heap.Push(&t.timers, r)
	case r.heapIndex >= 0:
		heap.Fix(&t.timers, r.heapIndex)
	}
}

// next is the first deadline; zero for none.
func (t *table) next() time.Time {
	if len(t.timers) == 0 {
		return time.Time{}
	}
	return t.timers[0].deadline
}

// timerHeap orders the connections whose timer runs by deadline.
type timerHeap []*record

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *timerHeap) Push(x any) {
	r := x.(*record)
	r.heapIndex = len(*h)
	*h = append(*h, r)
}

func (h *timerHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.heapIndex = -1
	return r
}
