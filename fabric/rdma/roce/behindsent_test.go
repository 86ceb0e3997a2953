package roce

import (
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestLocalInvBehindAckedSend: a Local Invalidate waits until the answer to a READ through its window has left, and is
// complete as soon as an early ACK has waited for the same batch. Its place in the send queue may then be another
// request's, which leaves once, in its turn.
func TestLocalInvBehindAckedSend(t *testing.T) {
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
	r.send(r.ack(rawPSN))
	for kept := 0; kept < 20; { // until the engine waits for what is being sent, with the lock
		time.Sleep(time.Millisecond)
		if kept++; d.mu.TryLock() {
			d.mu.Unlock()
			kept = 0
		}
	}
	more := make([]verbs.SendWR, fewSlots+1)
	for i := range more {
		more[i] = verbs.SendWR{WRID: 3, Opcode: verbs.WRSend}
	}
	posted := make(chan error, 1)
	go func() {
		_, err := s.qp.PostSend(more)
		posted <- err
	}()
	time.Sleep(20 * time.Millisecond) // in which it begins to wait for the lock
	close(second)
	check(t, <-posted)
	check(t, <-sent)
	s.want(1, verbs.WCSuccess)
	s.want(2, verbs.WCSuccess)
	for inside(s, func(q *qp) bool { return q.req.cur != q.req.tail }) {
		time.Sleep(time.Millisecond)
	}
	if n := inside(s, func(q *qp) int { return q.req.max.Diff(q.req.una) }); n != len(more) {
		t.Errorf("%d requests are on their way, want %d", n, len(more))
	}
}
