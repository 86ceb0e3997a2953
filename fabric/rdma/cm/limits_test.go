package cm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// One address can't take what others need: neither half-open connections nor connections.
func TestLimitsPerPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{MaxHalfOpenPerPeer: 2, MaxPerPeer: 3})
		defer target.m.Close()
		l := target.listen(10)
		greedy, honest := newRawPeer(t, n, "127.0.0.9"), newRawPeer(t, n, "127.0.0.8")
		// accepted returns our ID, 0 where the request was refused for want of resources.
		accepted := func(p *rawPeer, i uint32) uint32 {
			t.Helper()
			p.send(target.addr, uint64(i), p.req(target.addr, i, 100+i))
			switch m := (<-p.in).msg.(type) {
			case *REP:
				l.want(verbs.CMConnectRequest)
				return m.Local
			case *REJ:
				if m.Reason == verbs.RejectNoResources {
					return 0
				}
			}
			t.Fatal("neither accepted nor refused for want of resources")
			return 0
		}
		confirm := func(p *rawPeer, i, ours uint32) {
			p.send(target.addr, uint64(i), &RTU{CommIDs: CommIDs{i, ours}})
			l.want(verbs.CMEstablished)
		}
		one, two := accepted(greedy, 1), accepted(greedy, 2)
		if one == 0 || two == 0 || accepted(greedy, 3) != 0 {
			t.Error("half-open connections: want two and no more")
		}
		if id := accepted(honest, 1); id == 0 {
			t.Error("another peer is refused")
		} else {
			confirm(honest, 1, id)
		}
		confirm(greedy, 1, one)
		confirm(greedy, 2, two)
		three := accepted(greedy, 4)
		if three == 0 {
			t.Fatal("a third connection is refused")
		}
		confirm(greedy, 4, three)
		if accepted(greedy, 5) != 0 {
			t.Error("a fourth connection is accepted")
		}
		if accepted(honest, 2) == 0 {
			t.Error("another peer is refused")
		}
		synctest.Wait()
	})
}

// A flood of messages of strangers is not answered with a flood.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{})
		defer target.m.Close()
		p := newRawPeer(t, n, "127.0.0.9")
		flood := func(count int) (answered int) {
			t.Helper()
			before := target.m.Counters().Unanswered.Load()
			for i := range uint32(count) {
				p.send(target.addr, uint64(i), &DREQ{CommIDs: CommIDs{i + 1, i + 1}})
				synctest.Wait() // the inbox takes it before the next one comes
			}
			return count - int(target.m.Counters().Unanswered.Load()-before)
		}
		if got := flood(3 * answerBurst); got != answerBurst {
			t.Errorf("%d answers at once, want %d", got, answerBurst)
		}
		time.Sleep(answerBurst / 4 * time.Second / answerRate)
		if got := flood(answerBurst); got < answerBurst/4-1 || got > answerBurst/4+1 {
			t.Errorf("%d answers a quarter of a burst later, want %d", got, answerBurst/4)
		}
	})
}

// A peer can't keep a connection half open for longer, whatever times and retries it asks for.
func TestHalfOpenTime(t *testing.T) {
	for _, code := range []uint8{0, 14, 20, 24, 31} { // 4 µs to hours
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			req := p.req(target.addr, 7, 8)
			req.LocalResponse, req.RemoteResponse, req.MaxCMRetries, req.Primary.ACKTimeout = code, code, 15, 31
			start := time.Now()
			p.send(target.addr, 99, req)
			l.want(verbs.CMConnectRequest)
			if n := target.m.Counters().HalfOpen.Load(); n != 1 {
				t.Errorf("code %d: %d half-open connections, want 1", code, n)
			}
			l.want(verbs.CMUnreachable)
			if took := time.Since(start); took > maxHalfOpenTime {
				t.Errorf("code %d: half open for %v", code, took)
			}
			for {
				m := (<-p.in).msg
				if rej, ok := m.(*REJ); ok {
					if rej.Reason != verbs.RejectTimeout {
						t.Errorf("code %d: rejected with reason %d, want a timeout", code, rej.Reason)
					}
					break
				}
			}
			if n := target.m.Counters().HalfOpen.Load(); n != 0 {
				t.Errorf("code %d: %d half-open connections", code, n)
			}
		})
	}
}
