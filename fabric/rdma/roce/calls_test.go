package roce

import (
	"runtime"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestCallsOfWhoFailed: a goroutine that ends a queue pair, and so sends what others have to send, has the handlers
// called for what comes of that, even if the queue pair is gone when it has sent.
func TestCallsOfWhoFailed(t *testing.T) {
	var held *heldConn
	p := newPair(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
		if held == nil { // that of a, which is made first
			held = &heldConn{c, make(chan (<-chan struct{}), 1)}
			return held
		}
		return c
	}})
	p.cfg.timeout = 0 // no timer helps
	ending, far := another(p.a, p.cfg), another(p.b, p.cfg)
	p.connect(ending, far)
	check(t, far.qp.Destroy()) // nor does an answer

	// Both have something to send, as when it was posted at the end of the engine's turn. The data of one request is
	// nowhere.
	d := p.a.dev
	d.mu.Lock()
	for q, wr := range map[verbs.QP]verbs.SendWR{
		ending.qp: {Opcode: verbs.WRRDMAWrite},
		p.a.qp:    {WRID: 1, Opcode: verbs.WRSend, SGList: []verbs.SGE{{Length: 8}}},
	} {
		check(t, q.(*qp).queueSend(&wr))
		d.markReady(q.(*qp))
	}
	d.mu.Unlock()
	release, modified, destroyed := make(chan struct{}), make(chan error), make(chan error)
	held.hold <- release
	go func() { modified <- ending.qp.Modify(verbs.QPAttr{State: verbs.Err}) }()
	for len(held.hold) > 0 {
		runtime.Gosched()
	}
	go func() { destroyed <- ending.qp.Destroy() }()
	for d.mu.TryLock() { // until Destroy waits for what is being sent, with the lock
		d.mu.Unlock()
		runtime.Gosched()
	}
	close(release)
	check(t, <-destroyed)
	<-modified // which may find the queue pair gone
	p.a.want(1, verbs.WCLocProtErr)
}
