package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// One address can't take what others need, neither half-open connections nor connections in general.
func TestLimitsPerPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{MaxHalfOpenPerPeer: 2, MaxPerPeer: 3})
		defer target.m.Close()
		l := target.listen(10)
		greedy, honest := newRawPeer(t, n, "127.0.0.9"), newRawPeer(t, n, "127.0.0.8")
		// accepted returns our ID, 0 if the request was refused for lack of resources.
		accepted := func(p *rawPeer, i uint32) uint32 {
			t.Helper()
			p.send(target.addr, uint64(i), p.req(target.addr, i, 100+i))
			switch m := (<-p.in).msg.(type) {
			case *mad.REP:
				l.want(verbs.CMConnectRequest)
				return m.Local
			case *mad.REJ:
				if m.Reason == verbs.RejectNoResources {
					return 0
				}
			}
			t.Fatal("neither accepted nor refused for want of resources")
			return 0
		}
		confirm := func(p *rawPeer, i, ours uint32) {
			p.send(target.addr, uint64(i), &mad.RTU{CommIDs: mad.CommIDs{Local: i, Remote: ours}})
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

// The total number of connections is limited, whoever they belong to.
func TestMaxConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{MaxConnections: 2})
		defer target.m.Close()
		l := target.listen(10)
		for i := range uint32(3) {
			p := newRawPeer(t, n, fmt.Sprintf("127.0.0.%d", 7+i))
			p.send(target.addr, 1, p.req(target.addr, 7, 100))
			if i == 2 {
				if _, rej := receive[*mad.REJ](p); rej.Reason != verbs.RejectNoResources {
					t.Errorf("reason %d", rej.Reason)
				}
				break
			}
			_, rep := receive[*mad.REP](p)
			p.send(target.addr, 1, &mad.RTU{CommIDs: rep.Reversed()})
			l.want(verbs.CMConnectRequest)
			l.want(verbs.CMEstablished)
		}
		wrongly(t, "connect", target.prepare(target.addr).id.Connect(hostParam), verbs.ErrNoMemory)
	})
}

// A half-open connection that gives way is refused, and its owner is told.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{MaxHalfOpen: 1})
		defer target.m.Close()
		l := target.listen(10)
		first, second := newRawPeer(t, n, "127.0.0.8"), newRawPeer(t, n, "127.0.0.9")
		first.send(target.addr, 1, first.req(target.addr, 7, 100))
		receive[*mad.REP](first)
		id := l.want(verbs.CMConnectRequest).ID
		second.send(target.addr, 1, second.req(target.addr, 7, 100))
		receive[*mad.REP](second)
		if tid, rej := receive[*mad.REJ](first); tid != 1 || rej.Remote != 7 || rej.Reason != verbs.RejectTimeout {
			t.Errorf("TID %d %+v reason %d", tid, rej.CommIDs, rej.Reason)
		}
		if ev := l.want(verbs.CMUnreachable); ev.ID != id || !errors.Is(ev.Err, ErrGaveWay) {
			t.Errorf("%+v", ev)
		}
		c := target.m.Counters()
		if c.GaveWay.Load() != 1 || c.HalfOpen.Load() != 1 || c.Connections.Load() != 1 {
			t.Errorf("%d counted, want 1; %d half-open of %d connections, want 1", c.GaveWay.Load(), c.HalfOpen.Load(), c.Connections.Load())
		}
	})
}

// A flood of messages from strangers is not answered with a flood, and one stranger's flood leaves answers for the
// others.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		target := newNode(t, n, "127.0.0.1", Config{})
		defer target.m.Close()
		flood := func(from string) (answered int) {
			t.Helper()
			p := newRawPeer(t, n, from)
			for i := range uint32(2 * perSecond) {
				p.send(target.addr, uint64(i), &mad.DREQ{CommIDs: mad.CommIDs{Local: i + 1, Remote: i + 1}})
				synctest.Wait() // the inbox accepts it before the next one comes
			}
			return len(p.in)
		}
		for i, want := range []int{perSecond / 2, perSecond / 4, perSecond / 8} {
			if got := flood([]string{"127.0.0.7", "127.0.0.8", "127.0.0.9"}[i]); got != want {
				t.Errorf("%d answers for stranger %d, want %d", got, i, want)
			}
		}
		time.Sleep(time.Second)
		if got := flood("127.0.0.7"); got != perSecond/2 {
			t.Errorf("%d answers a second later, want %d", got, perSecond/2)
		}
		for i := range 2 * perSecond {
			flooded := newRawPeer(t, n, netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}).String())
			flooded.send(target.addr, 1, &mad.DREQ{CommIDs: mad.CommIDs{Local: 1, Remote: 1}})
			synctest.Wait()
		}
		if c := target.m.Counters(); c.Sent.Of(mad.AttrDREP).Load() > 3*perSecond || len(target.m.answers.of) > perSecond {
			t.Errorf("%d answers in two seconds, %d addresses remembered", c.Sent.Of(mad.AttrDREP).Load(), len(target.m.answers.of))
		}
	})
}

// An address that floods with connection requests, and takes them back so that they don't count as half open, doesn't
// prevent another from connecting: not one message of the other is lost, or it would take longer. Bursts come while the
// target does something else, so that it can't keep up with them.
func TestFloodOfRequests(t *testing.T) {
	for _, floods := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			n.unrecorded = true
			target := newNode(t, n, "127.0.0.1", Config{})
			defer target.m.Close()
			l := target.listen(0)
			l.events = make(chan verbs.CMEvent, 1<<16)
			l.handle = func(ev verbs.CMEvent) {
				switch ev.Type {
				case verbs.CMConnectRequest:
					l.createQP(ev.ID)
					if ev.ID.Accept(acceptParam) != nil { // taken back in the meantime
						_ = ev.ID.Destroy()
					}
				case verbs.CMRejected, verbs.CMUnreachable, verbs.CMDisconnected:
					_ = ev.ID.Destroy()
				}
			}
			var peers []*rawPeer
			for k := range floods {
				p := newRawPeer(t, n, fmt.Sprintf("127.0.1.%d", k))
				p.in = make(chan wired, 1<<16)
				peers = append(peers, p)
			}
			for k := range uint32(12) {
				release := target.busy()
				for _, p := range peers {
					p.burst(target.addr, k*boxSize)
				}
				host := newNode(t, n, fmt.Sprintf("127.0.2.%d", k), Config{})
				began := time.Now()
				h := host.connect(target.addr)
				release()
				h.want(verbs.CMEstablished)
				if took := time.Since(began); took != 0 {
					t.Errorf("%d floods: connected after %v", floods, took)
				}
				host.m.Close()
				time.Sleep(50 * time.Millisecond)
			}
			if c := target.m.Counters(); c.Unanswered.Load() == 0 || c.Overruns.Load() == 0 {
				t.Errorf("%d floods: %d requests unanswered, %d overruns: nothing is shown", floods, c.Unanswered.Load(), c.Overruns.Load())
			}
		})
	}
}

// burst sends requests with IDs from first on, and takes each back: more than the inbox of dst has room for.
func (p *rawPeer) burst(dst netip.Addr, first uint32) {
	for i := first + 1; i <= first+boxSize; i++ {
		req := p.req(dst, i, i)
		p.send(dst, uint64(i), req)
		rej := &mad.REJ{CommIDs: mad.CommIDs{Local: i}, Reason: verbs.RejectTimeout}
		rej.SetGUID(req.LocalCAGUID)
		p.send(dst, uint64(i), rej)
	}
}

// Addresses that ask for connections and never confirm them don't prevent another from connecting at once, however many
// they are, as long as requests come at no more than the rate at which they are looked at: not one message of the other
// is lost, or it would take longer.
func TestHalfOpenShares(t *testing.T) {
	for _, c := range []struct{ addresses, rate int }{ // requests per second, all together
		{1, 900}, {8, 900}, {100, 900}, {1000, 450}, {1000, 900}, {20000, 900},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, target := newCrowdedTarget(t)
			defer target.m.Close()
			stop := make(chan struct{})
			defer close(stop)
			go n.halfOpen(target.addr, c.addresses, c.rate, stop)
			time.Sleep(6*time.Second + time.Millisecond/2) // all places are taken
			taken := target.m.counters.HalfOpen.Load()
			if want := min(defaultHalfOpen, int64(256*c.addresses)); taken != want {
				t.Errorf("%d addresses at %d/s: %d half-open connections, want %d", c.addresses, c.rate, taken, want)
			}
			for k := range 20 {
				if took := connectOnce(t, n, fmt.Sprintf("127.0.2.%d", k), target.addr); took > 10*time.Millisecond {
					t.Errorf("%d addresses at %d/s: connected after %v", c.addresses, c.rate, took)
				}
				time.Sleep(77 * time.Millisecond)
			}
			target.m.mu.Lock()
			u, open := len(target.m.table.uses), target.m.counters.HalfOpen.Load()
			target.m.mu.Unlock()
			if u > defaultHalfOpen+20 || open > defaultHalfOpen {
				t.Errorf("%d addresses at %d/s: %d are remembered, %d half-open connections", c.addresses, c.rate, u, open)
			}
		})
	}
}

// A peer that has confirmed a connection gets more of them at once, even if forged requests come at ten times the rate
// at which requests are looked at, which leaves others one chance in ten per attempt.
func TestForgedRequestsAndKnownHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, target := newCrowdedTarget(t)
		defer target.m.Close()
		host := newNode(t, n, "127.0.2.1", Config{})
		defer host.m.Close()
		host.connect(target.addr).want(verbs.CMEstablished)
		stop := make(chan struct{})
		defer close(stop)
		go n.halfOpen(target.addr, 1<<16, 10*perSecond, stop)
		time.Sleep(time.Second)
		for range 15 {
			began := time.Now()
			host.connect(target.addr).want(verbs.CMEstablished)
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("connected after %v", took)
			}
			time.Sleep(77 * time.Millisecond)
		}
		if target.m.counters.Unanswered.Load() < 10*perSecond {
			t.Error("no flood")
		}
	})
}

const defaultHalfOpen = 512

// newCrowdedTarget is a target whose consumer destroys every connection that fails.
func newCrowdedTarget(t *testing.T) (*network, *node) {
	n := newNetwork()
	n.unrecorded = true
	target := newNode(t, n, "127.0.0.1", Config{})
	l := target.listen(0)
	l.events = make(chan verbs.CMEvent, 1<<18)
	l.handle = func(ev verbs.CMEvent) {
		switch ev.Type {
		case verbs.CMConnectRequest:
			l.createQP(ev.ID)
			if err := ev.ID.Accept(acceptParam); err != nil {
				t.Errorf("accept: %v", err)
			}
		case verbs.CMRejected, verbs.CMUnreachable, verbs.CMDisconnected:
			_ = ev.ID.Destroy()
		}
	}
	return n, target
}

// halfOpen sends requests from the given number of addresses in turn, and answers nothing.
func (n *network) halfOpen(dst netip.Addr, addresses, rate int, stop chan struct{}) {
	p := &rawPeer{net: n}
	for i := uint32(1); ; i++ {
		k := int(i) % addresses
		p.addr = netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)})
		p.send(dst, uint64(i), p.req(dst, i, i&0xffffff))
		select {
		case <-stop:
			return
		case <-time.After(time.Second / time.Duration(rate)):
		}
	}
}

// connectOnce makes a connection from a host of its own, and ends it.
func connectOnce(t *testing.T, n *network, from string, dst netip.Addr) time.Duration {
	t.Helper()
	host := newNode(t, n, from, Config{})
	defer host.m.Close()
	began := time.Now()
	host.connect(dst).want(verbs.CMEstablished)
	return time.Since(began)
}

// A peer can't keep a connection half open beyond the limit, whatever times and retries it asks for.
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
				if rej, ok := m.(*mad.REJ); ok {
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
