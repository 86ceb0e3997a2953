package roce

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestStraysOfBusyDevice: an engine that gives a packet to another device of its address goes on with its own packets,
// however much that one has to do meanwhile. Somebody else goes on with that.
func TestStraysOfBusyDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 100
		p := newPair(t, pairConfig{})
		s, d := p.b, p.b.dev
		w, err := s.pd.AllocMW()
		check(t, err)
		bind := verbs.SendWR{Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{
			MR: s.mr, Addr: s.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead,
		}}
		var calls atomic.Int32
		adopted := make(chan struct{})
		s.handle = func(wc *verbs.WC) { // each completion leads to another one
			n := calls.Add(1)
			if n > 1 {
				select {
				case <-adopted:
				case <-time.After(time.Second):
				}
			}
			switch {
			case n == rounds:
			case wc.Opcode == verbs.WCBindMW:
				s.post(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: w.RKey()})
			default:
				s.post(bind)
			}
		}
		d.mu.Lock() // as if it had been posted during a turn
		check(t, s.qp.(*qp).queueSend(&bind))
		d.markReady(s.qp.(*qp))
		d.mu.Unlock()
		began := time.Now()
		d.adopt(&stray{of: d, src: addrA})
		if took := time.Since(began); took > 0 {
			t.Errorf("the engine calls handlers of another device for %v", took)
		}
		close(adopted)
		time.Sleep(time.Millisecond)
		if n := calls.Load(); n != rounds {
			t.Errorf("the handler was called %d times, want %d", n, rounds)
		}
	})
}
