package cm

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// first applies a filter only to the first message of a kind.
func first(a mad.AttributeID, copies ...time.Duration) func(wired) []time.Duration {
	done := false
	return func(w wired) []time.Duration {
		if done || w.msg.AttributeID() != a {
			return []time.Duration{0}
		}
		done = true
		return copies
	}
}

var exchange = []mad.AttributeID{mad.AttrREQ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP}

// One lost message costs 0.3 s, or a DREQ's interval if it is a DREQ or DREP, and nothing else.
func TestLoss(t *testing.T) {
	for _, a := range exchange {
		t.Run(a.String(), func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
				n.setFilter(first(a))
				start := time.Now()
				h := host.connect(target.addr)
				established(h, l)
				ended(h, l)
				want := 512 * time.Millisecond
				switch a {
				case mad.AttrDREQ, mad.AttrDREP:
					want += dreqInterval
				default:
					want += 300 * time.Millisecond
				}
				if got := time.Since(start); got != want {
					t.Errorf("took %v, want %v", got, want)
				}
				if total := host.m.Counters().Retransmits.Load() + target.m.Counters().Retransmits.Load(); total == 0 {
					t.Error("no retransmission counted")
				}
				h.wantNone()
				l.wantNone()
			})
		})
	}
}

// A message that arrives twice, at once or late, is handled once.
func TestDuplication(t *testing.T) {
	for _, a := range exchange {
		for _, late := range []time.Duration{time.Nanosecond, 300 * time.Millisecond, 20 * time.Second} {
			t.Run(a.String()+late.String(), func(t *testing.T) {
				pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
					n.setFilter(first(a, 0, late))
					h := host.connect(target.addr)
					established(h, l)
					time.Sleep(time.Second)
					ended(h, l)
					time.Sleep(time.Minute)
					h.wantNone()
					if a == mad.AttrREQ && late > 10*time.Second {
						// After TIMEWAIT it is a request like any other; the peer has long forgotten it.
						l.want(verbs.CMConnectRequest)
						l.want(verbs.CMRejected)
					}
					l.wantNone()
				})
			})
		}
	}
}

// A message that is later than the retransmission timer.
func TestDelay(t *testing.T) {
	for _, a := range exchange {
		t.Run(a.String(), func(t *testing.T) {
			pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
				n.setFilter(first(a, 4700*time.Millisecond))
				h := host.connect(target.addr)
				established(h, l)
				time.Sleep(10 * time.Second)
				ended(h, l)
				h.wantNone()
				l.wantNone()
			})
		})
	}
}

// badNetwork loses a tenth of the messages, and repeats or delays twice as many. If it lost a fifth, about one
// connection in ten thousand would lose all of its attempts, ten with answers or eight without, and rightly end.
func badNetwork(seed uint64) func(wired) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(wired) []time.Duration {
		d := time.Duration(r.IntN(int(6 * time.Second)))
		switch r.IntN(10) {
		case 0:
			return nil
		case 1:
			return []time.Duration{0, d}
		case 2:
			return []time.Duration{d}
		}
		return []time.Duration{0}
	}
}

// wantOnce checks that no event of an identifier was delivered twice.
func (e *end) wantOnce() {
	e.t.Helper()
	counts := map[verbs.CMID]map[verbs.CMEventType]int{}
	for len(e.events) > 0 {
		ev := <-e.events
		if counts[ev.ID] == nil {
			counts[ev.ID] = map[verbs.CMEventType]int{}
		}
		counts[ev.ID][ev.Type]++
	}
	for _, c := range counts {
		for typ, times := range c {
			if times != 1 {
				e.t.Errorf("event %d came %d times", typ, times)
			}
		}
	}
}

// Many connections at once over a network that loses, repeats and delays: each is established once and ends on both
// sides, and nothing is left behind.
func TestMetamorphic(t *testing.T) {
	for seed := range uint64(4) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			n.setFilter(badNetwork(seed))
			accept := l.handle
			l.handle = func(ev verbs.CMEvent) {
				accept(ev)
				if ev.Type == verbs.CMDisconnected {
					ev.ID.Disconnect()
				}
				if ev.Type == verbs.CMTimewaitExit || ev.Type == verbs.CMUnreachable || ev.Type == verbs.CMRejected {
					ev.ID.Destroy()
				}
			}
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					h := host.connect(target.addr)
					h.want(verbs.CMEstablished)
					time.Sleep(7 * time.Second) // past the last late MAD
					h.id.Disconnect()
					h.want(verbs.CMDisconnected)
					h.want(verbs.CMTimewaitExit)
					h.id.Destroy()
				})
			}
			wg.Wait()
			time.Sleep(5 * time.Minute)
			host.wantEmpty()
			target.wantEmpty()
			if h, g := host.dev.liveQPs(), target.dev.liveQPs(); h+g != 0 {
				t.Errorf("QPs left: %d %d", h, g)
			}
			l.wantOnce()
		})
	}
}
