package roce

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestLocalInvBehindAckedSend: a Local Invalidate waits until the answer to a READ through its window has left, and is
// complete as soon as an early ACK has waited for the same batch. Its place in the send queue may then be another
// request's, which leaves once, in its turn.
func TestLocalInvBehindAckedSend(t *testing.T) {
	for tries := 1; !localInvBehindAckedSend(t); tries++ {
		if tries == 100 {
			t.Fatal("no requests are posted between the ACK and the next batch")
		}
	}
}

// localInvBehindAckedSend returns false if it didn't come to that: the Local Invalidate didn't wait, or the ACK came
// after a retry had begun, or the goroutine that sends has put the next batch together before other requests were
// posted.
func localInvBehindAckedSend(t *testing.T) (inTime bool) {
	var held *heldConn
	r := newRaw(t, pairConfig{timeout: patient, wrap: func(c udp.Conn) udp.Conn {
		held = &heldConn{c, make(chan (<-chan struct{}), 1)}
		return held
	}})
	s, d := r.dev, r.dev.dev
	key := bindWindow(s, 0, 256)
	isHeld := func() {
		for len(held.hold) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	first, second, sent := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	held.hold <- first
	go func() { sent <- d.SendMAD(addrA, make([]byte, madSize)) }() // this goroutine sends what follows too
	isHeld()
	read := r.read(rawPSN, 0, 256)
	read.RETH.RKey = key
	r.send(read)
	for d.Counters()[RxReadRequests] == 0 {
		time.Sleep(time.Millisecond)
	}
	s.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend},
		verbs.SendWR{WRID: 2, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
	held.hold <- second
	close(first)
	isHeld()
	var batch uint64
	waits := inside(s, func(q *qp) bool { batch = d.tx.gen; return q.req.cur != q.req.tail })
	r.send(r.ack(rawPSN))
	awaitLockIn("(*Device).quiesce") // the engine waits for what is being sent, with the device's lock
	go func() {
		awaitLockIn("localInvBehindAckedSend")
		close(second)
	}()
	d.mu.Lock()
	more := fewSlots + 1
	if inTime = waits && d.tx.gen == batch && d.Counters()[EarlyRetransmit] == 0; inTime {
		q := s.qp.(*qp)
		for range more { // as PostSend does
			check(t, q.queueSend(&verbs.SendWR{WRID: 3, Opcode: verbs.WRSend}))
		}
		d.markReady(q)
	}
	d.mu.Unlock()
	check(t, <-sent)
	s.want(1, verbs.WCSuccess)
	s.want(2, verbs.WCSuccess)
	if !inTime {
		return false
	}
	for inside(s, func(q *qp) bool { return q.req.cur != q.req.tail }) {
		time.Sleep(time.Millisecond)
	}
	if n := inside(s, func(q *qp) int { return q.req.max.Diff(q.req.una) }); n != more {
		t.Errorf("%d requests are on their way, want %d", n, more)
	}
	return true
}

// awaitLockIn returns when a goroutine waits for a lock in a function of this package.
func awaitLockIn(function string) {
	stacks := make([]byte, 1<<20)
	for !slices.ContainsFunc(strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n"), func(stack string) bool {
		state, calls, _ := strings.Cut(stack, "\n")
		return strings.Contains(state, "[sync.Mutex.Lock") && strings.Contains(calls, "/roce."+function+"(")
	}) {
		time.Sleep(time.Millisecond)
	}
}
