package cm

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// offsets returns when the messages were sent, relative to the first; all have to be repetitions of it.
func offsets(t *testing.T, sent []wired) (at []time.Duration) {
	t.Helper()
	for _, w := range sent {
		if w.tid != sent[0].tid {
			t.Errorf("transaction ID %#x, the first has %#x", w.tid, sent[0].tid)
		}
		at = append(at, w.at.Sub(sent[0].at))
	}
	return at
}

// earlyOffsets are 0 and the times at which a message is sent again earlier than by Linux.
var earlyOffsets = []time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second, 4300 * time.Millisecond}

// every returns the first times multiples of interval.
func every(interval time.Duration, times int) (at []time.Duration) {
	for k := range times {
		at = append(at, time.Duration(k+1)*interval)
	}
	return at
}

// A target that is away for a moment is reached soon after it is back, whenever that is.
func TestTargetComesBack(t *testing.T) {
	for _, c := range []struct{ away, met time.Duration }{
		{100 * time.Millisecond, 300 * time.Millisecond}, {700 * time.Millisecond, 900 * time.Millisecond},
		{1500 * time.Millisecond, 2 * time.Second}, {4 * time.Second, 4300 * time.Millisecond}, {5 * time.Second, 2 * 4608 * time.Millisecond},
	} {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			began := time.Now()
			n.setFilter(func(w wired) []time.Duration {
				if w.at.Sub(began) < c.away {
					return nil
				}
				return atOnce
			})
			h := host.connect(target.addr)
			established(h, l)
			if took := time.Since(began); took != c.met {
				t.Errorf("away for %v: connected after %v, want %v", c.away, took, c.met)
			}
			h.wantNone()
			l.wantNone()
		})
	}
}

// A REP is sent again early as well, since Linux doesn't answer a repeated REQ with it: if the REP was lost, and if the
// RTU was.
func TestREPAgain(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 7, 8))
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMUnreachable)
		want := slices.Concat(earlyOffsets[:4], every(4096*time.Millisecond, 3)) // the fourth is after the first interval
		if got := offsets(t, n.sent(target.addr, mad.AttrREP)); !slices.Equal(got, want) {
			t.Errorf("REPs at %v, want %v", got, want)
		}

		short := p.req(target.addr, 70, 80)
		short.LocalResponse, short.MaxCMRetries = 17, 2 // 512 ms
		n.forget(p)
		p.send(target.addr, 99, short)
		l.want(verbs.CMConnectRequest)
		l.want(verbs.CMUnreachable)
		want = slices.Concat(earlyOffsets[:2], every(512*time.Millisecond, 2))
		if got := offsets(t, n.sent(target.addr, mad.AttrREP)); !slices.Equal(got, want) {
			t.Errorf("interval of 512 ms: REPs at %v, want %v", got, want)
		}
	})
}

// An MRA ends the early tries: the peer has said how long it takes.
func TestMRAEndsEarlyTries(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		p.send(host.addr, tid, &mad.MRA{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, Message: mad.AnswersREQ, ServiceTimeout: 20})
		time.Sleep(20 * time.Second)
		patient := codeDuration(20) + codeDuration(17)
		want := []time.Duration{0, patient, patient + 4608*time.Millisecond, patient + 2*4608*time.Millisecond, patient + 3*4608*time.Millisecond}
		if got := offsets(t, n.sent(host.addr, mad.AttrREQ)); !slices.Equal(got, want) {
			t.Errorf("REQs at %v, want %v", got, want)
		}
	})
}

// While the owner of a request hasn't answered, a peer that asks again early gets no answer, as with Linux: an MRA
// would make it wait for a minute. The MRA is sent when the time is over in which the peer wants an answer.
func TestMRAWhenDue(t *testing.T) {
	for _, code := range []uint8{0, 8, 18, 20} {
		pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
			l.handle = nil
			p := newRawPeer(t, n, "127.0.0.9")
			req := p.req(target.addr, 7, 8)
			req.RemoteResponse = code
			p.send(target.addr, 99, req)
			l.want(verbs.CMConnectRequest)
			time.Sleep(codeDuration(code) - 1)
			p.send(target.addr, 99, req)
			synctest.Wait()
			p.nothing()
			time.Sleep(time.Nanosecond)
			p.send(target.addr, 99, req)
			if tid, mra := receive[*mad.MRA](p); tid != 99 || mra.Remote != 7 || mra.Message != mad.AnswersREQ {
				t.Errorf("code %d: TID %d %+v", code, tid, mra)
			}
		})
	}
}
