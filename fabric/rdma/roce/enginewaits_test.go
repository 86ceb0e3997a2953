package roce

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// countingConn counts receive calls that don't wait. From many on it has done called.
type countingConn struct {
	udp.Conn
	calls atomic.Int32
	done  func()
}

func (c *countingConn) TryRecv(rx []udp.Received) (int, error) {
	const many = 1000
	if c.calls.Add(1) == many {
		c.done()
	}
	return c.Conn.TryRecv(rx)
}

// TestEngineWaitsForTheTurn: while another goroutine calls handlers, and will send what was posted meanwhile, the engine
// waits for packets. It doesn't receive in vain again and again.
func TestEngineWaitsForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		over := func() { t.Error("the engine polls"); close(release) }
		conn := &countingConn{}
		p := newPair(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
			if conn.Conn != nil {
				return c
			}
			conn.Conn, conn.done = c, over // that of a, which is made first
			return conn
		}})
		ending := another(p.a, p.cfg)
		ending.handle = func(*verbs.WC) { <-release }
		check(t, ending.qp.Modify(verbs.QPAttr{State: verbs.Err}))
		ending.post(verbs.SendWR{Opcode: verbs.WRSend}) // which gives a completion, whose handler the timer's goroutine calls
		time.Sleep(time.Millisecond)
		p.b.recv(2)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend}) // for the one that has the turn
		check(t, p.b.dev.SendMAD(addrA, make([]byte, madSize)))
		time.Sleep(time.Millisecond)
		if !t.Failed() {
			close(release)
		}
		p.b.want(2, verbs.WCSuccess)
		p.a.want(1, verbs.WCSuccess)
	})
}
