package cm

import (
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// script plays a sequence of events, one per byte, on a connection, and checks the invariants of every state after
// each.
type script struct {
	t      *testing.T
	c      conn
	now    time.Time
	counts [64]int // of events, by their type
	gone   bool    // closed once
	b      []byte  // for messages
}

func newScript(t *testing.T, active bool) *script {
	s := &script{t: t, now: time.Unix(0, 0)}
	s.c = conn{ids: mad.CommIDs{Local: 1}, localQPN: 10, tid: 5, dreqTID: 6, qpACK: 17}
	if active {
		var fx effects
		s.c.connect(s.now, &mad.REQ{LocalCommID: 1}, &fx)
		return s
	}
	s.c.onREQ(s.now, 5, &mad.REQ{LocalCommID: 2, LocalQPN: 20, LocalResponse: 20, MaxCMRetries: 3})
	return s
}

// scriptEvents are the bytes that have a meaning.
const scriptEvents = 15

func (s *script) play(b byte) {
	var fx effects
	ids := mad.CommIDs{Local: 2, Remote: 1}
	switch before := s.c.state; b % scriptEvents {
	case 0:
		s.c.onREP(&mad.REP{CommIDs: ids, LocalQPN: 20}, &fx)
	case 1:
		if before == stateREPRcvd {
			s.c.ready(verbs.ConnParam{}, &fx)
		}
	case 2:
		if before == stateREPRcvd {
			s.c.refuse(verbs.RejectNoResources, &fx)
		}
	case 3:
		if s.c.state.awaitsOwner() {
			s.c.accept(s.now, &mad.REP{CommIDs: s.c.ids, LocalQPN: 10}, &fx)
		}
	case 4:
		if s.c.state.awaitsOwner() {
			s.c.reject(verbs.RejectConsumer, nil, &fx)
		}
	case 5:
		s.c.onRTU(nil, &fx)
	case 6:
		s.c.onMRA(s.now, &mad.MRA{CommIDs: ids, Message: mad.AnsweredMessage(b >> 6), ServiceTimeout: 9}, &fx)
	case 7:
		s.c.onREJ(s.now, &mad.REJ{CommIDs: ids, Message: mad.AnsweredMessage(b >> 6)}, &fx)
	case 8:
		s.c.onDREQ(s.now, 7, &mad.DREQ{CommIDs: ids, RemoteQPN: 10 + uint32(b>>7)}, &fx)
	case 9:
		s.c.onDREP(s.now, &fx)
	case 10:
		s.c.disconnect(s.now, &fx)
	case 11:
		if s.c.state.awaitsOwner() && b>>7 == 1 {
			s.now = s.now.Add(time.Second) // the owner thinks
		}
		s.c.onDuplicateREQ(s.now, &fx)
	case 12:
		s.c.commEst(&fx)
	case 13:
		s.c.abandon(s.now, &fx)
	case 14:
		if !s.c.deadline.IsZero() {
			s.now = s.c.deadline
			s.c.timeout(s.now, &fx)
		}
	}
	s.check(&fx)
}

// timed reports whether connections in a state have a deadline.
func timed(s state) bool {
	switch s {
	case stateREQSent, stateMRAREQRcvd, stateREPSent, stateMRAREPRcvd, stateDREQSent, stateTimewait:
		return true
	}
	return false
}

// check doesn't call t.Helper, which would cost more than everything else.
func (s *script) check(fx *effects) {
	if timed(s.c.state) == s.c.deadline.IsZero() {
		s.t.Fatalf("state %d with deadline %v", s.c.state, s.c.deadline)
	}
	if timed(s.c.state) && s.c.deadline.Before(s.now) {
		s.t.Fatalf("state %d is late", s.c.state)
	}
	if s.gone && (s.c.state != stateClosed || len(fx.sends)+len(fx.events) > 0) {
		s.t.Fatalf("state %d, %d messages, %d events after the end", s.c.state, len(fx.sends), len(fx.events))
	}
	s.gone = s.c.state == stateClosed
	for _, e := range fx.events {
		if e.replied {
			continue
		}
		if s.counts[e.Type]++; s.counts[e.Type] > 1 {
			s.t.Fatalf("event %d a second time", e.Type)
		}
	}
	if s.counts[verbs.CMTimewaitExit] > 0 && s.counts[verbs.CMRejected]+s.counts[verbs.CMUnreachable] > 0 {
		s.t.Fatal("refused, and yet there was a TIMEWAIT")
	}
	for _, o := range fx.sends {
		s.b = mad.Append(s.b[:0], o.tid, o.msg)
	}
}

// No order of events makes a connection break its rules, stay forever, or send after its end.
func FuzzConn(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(true, []byte{0, 1, 10, 9, 14})
	f.Add(true, []byte{6, 14, 14, 0, 1, 0, 8, 10, 8, 14})
	f.Add(true, []byte{14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14})
	f.Add(false, []byte{146, 3, 11, 14, 5, 8, 8, 10, 11, 14})
	f.Add(false, []byte{3, 14, 14, 14, 14})
	f.Add(false, []byte{3, 12, 10, 8, 14})
	f.Add(false, []byte{3, 8, 13, 8, 14})
	f.Fuzz(func(t *testing.T, active bool, events []byte) {
		s := newScript(t, active)
		for _, b := range events[:min(len(events), 1000)] {
			s.play(b)
		}
		// Once its owner has gone, time alone ends it.
		s.play(13)
		for range 64 {
			s.play(14)
		}
		if s.c.state != stateClosed {
			t.Fatalf("state %d for ever", s.c.state)
		}
	})
}
