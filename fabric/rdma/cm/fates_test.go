package cm

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// fates are what may happen to a message: how much later than others each of its copies arrives.
var fates = map[string][]time.Duration{
	"lost": {}, "twice": {0, time.Microsecond}, "late": {5 * time.Millisecond}, "very late": {350 * time.Millisecond},
	"twice, late": {0, 5 * time.Millisecond}, "twice, very late": {0, 350 * time.Millisecond},
}

// life is one connection of two consumers. Each of them may end it at some time, with Disconnect or with Destroy; each
// disconnects when the other one does, and destroys its identifier when all is over.
type life struct {
	nodes [2]*node // host and target
	ends  [2]endAt

	mu     sync.Mutex // guards the rest
	ids    [2]verbs.CMID
	events [2][]verbs.CMEventType
	gone   [2]bool // destroyed
}

// endAt is when a consumer ends the connection; 0: it doesn't.
type endAt struct {
	at      time.Duration
	destroy bool
}

// TestFates: whatever happens to one message of a connection, which either or both of its sides may end at any time,
// both sides learn whether there is a connection, and how it ended, once and in order; and nothing is left of it.
func TestFates(t *testing.T) {
	never := endAt{}
	all := []endAt{never} // messages take 1 ms to the target, and 1.3 ms to the host
	for _, µs := range []int{500, 1500, 2600, 3100, 4000, 310_000} {
		at := time.Duration(µs) * time.Microsecond
		all = append(all, endAt{at, false}, endAt{at, true})
	}
	for _, host := range all {
		for _, target := range all {
			if target != never {
				target.at += 10 * time.Microsecond
			}
			ends := [2]endAt{host, target}
			for victim := range runLife(t, ends, -1, "") {
				for fate := range fates {
					runLife(t, ends, victim, fate)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// runLife runs a connection; the message number victim has a fate. It returns how many were sent.
func runLife(t *testing.T, ends [2]endAt, victim int, fate string) (sent int) {
	synctest.Test(t, func(t *testing.T) {
		n, start := newNetwork(), time.Now()
		l := &life{ends: ends}
		for i, addr := range []string{"127.0.0.2", "127.0.0.1"} {
			l.nodes[i] = newNode(t, n, addr, Config{})
		}
		n.filter = func(w wired) []time.Duration {
			usual, copies := time.Millisecond, atOnce
			if w.src == l.nodes[1].addr {
				usual = 1300 * time.Microsecond
			}
			if sent == victim {
				copies = fates[fate]
			}
			sent++
			var after []time.Duration
			for _, late := range copies {
				after = append(after, usual+late)
			}
			return after
		}
		l.run(t)
		l.judge(t)
		if t.Failed() {
			t.Logf("host %+v, target %+v; message %d %s; told %v", ends[0], ends[1], victim, fate, l.events)
			for i, w := range n.log {
				t.Log(i, w.at.Sub(start), w.src, w.msg.AttributeID())
			}
		}
		for _, nd := range l.nodes {
			nd.m.Close()
		}
	})
	return sent
}

// run connects, ends the connection as planned, and has the host end it later if it is still there.
func (l *life) run(t *testing.T) {
	listener, err := l.nodes[1].m.CreateID(func(ev verbs.CMEvent) { l.requested(t, ev) })
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Listen(netip.AddrPortFrom(netip.Addr{}, 4420), 0); err != nil {
		t.Fatal(err)
	}
	host := l.nodes[0].prepare(l.nodes[1].addr).id
	l.ids[0] = host // before there is anybody else to use it
	host.SetHandler(func(ev verbs.CMEvent) { l.told(0, ev) })
	if err := host.Connect(hostParam); err != nil {
		t.Fatal(err)
	}
	for i, e := range l.ends {
		if e.at > 0 {
			time.AfterFunc(e.at, func() { l.end(i, e.destroy) })
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if host, target := l.up(0), l.up(1); host != target {
		t.Errorf("connected: host %v, target %v", host, target)
	}
	l.end(0, false)
	time.Sleep(time.Minute)
	synctest.Wait()
	_ = listener.Destroy()
}

// requested accepts the connection.
func (l *life) requested(t *testing.T, ev verbs.CMEvent) {
	l.mu.Lock()
	first, over := l.ids[1] == nil, l.gone[1]
	if first {
		l.ids[1] = ev.ID
	}
	l.mu.Unlock()
	if !first {
		_ = ev.ID.Destroy()
		if !over { // a copy of a request that was withdrawn is one like any other
			t.Error("a second request while the first is there")
		}
		return
	}
	ev.ID.SetHandler(func(ev verbs.CMEvent) { l.told(1, ev) })
	pd, _ := l.nodes[1].dev.AllocPD()
	if _, err := ev.ID.CreateQP(pd, verbs.QPInitAttr{Type: verbs.RC}); err != nil {
		t.Error(err)
	}
	if err := ev.ID.Accept(acceptParam); err != nil {
		t.Error(err)
	}
}

// told is the handler of side i.
func (l *life) told(i int, ev verbs.CMEvent) {
	l.mu.Lock()
	l.events[i] = append(l.events[i], ev.Type)
	l.mu.Unlock()
	switch ev.Type {
	case verbs.CMDisconnected:
		l.end(i, false)
	case verbs.CMTimewaitExit, verbs.CMRejected, verbs.CMUnreachable:
		l.end(i, true)
	}
}

func (l *life) end(i int, destroy bool) {
	l.mu.Lock()
	id := l.ids[i]
	if l.gone[i] {
		id = nil
	}
	l.gone[i] = l.gone[i] || destroy && id != nil
	l.mu.Unlock()
	switch {
	case id == nil:
	case destroy:
		_ = id.Destroy()
	default:
		_ = id.Disconnect() // fails while there is no connection
	}
}

// up reports whether side i has a connection.
func (l *life) up(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.events[i]) - 1
	return !l.gone[i] && last >= 0 && l.events[i][last] == verbs.CMEstablished
}

// judge checks what the sides were told, and that nothing is left.
func (l *life) judge(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, nd := range l.nodes {
		all := [][]verbs.CMEventType{
			{verbs.CMEstablished, verbs.CMDisconnected, verbs.CMTimewaitExit},
			{verbs.CMDisconnected, verbs.CMTimewaitExit}, // it ended before the target knew that there was one
			{verbs.CMRejected}, {verbs.CMUnreachable},
		}
		legal := func(want []verbs.CMEventType) bool {
			n := len(l.events[i]) // a side that destroys its identifier is told nothing more
			return n <= len(want) && slices.Equal(l.events[i], want[:n]) && (n == len(want) || l.ends[i].destroy || l.ids[i] == nil)
		}
		if !slices.ContainsFunc(all, legal) {
			t.Errorf("side %d was told %v", i, l.events[i])
		}
		nd.wantEmpty()
		if n := nd.dev.liveQPs(); n != 0 {
			t.Errorf("side %d: %d QPs are left", i, n)
		}
	}
}
