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

// bring plays events on a new connection until it is in the state that they lead to.
func bring(t *testing.T, active bool, events ...byte) *script {
	s := newScript(t, active)
	for _, b := range events {
		s.play(b)
	}
	return s
}

// TestOutOfTurn: a message that repeats another one, or that isn't one for the state, changes nothing. It is counted as
// what it is, and answered only where the peer may have missed the answer.
func TestOutOfTurn(t *testing.T) {
	const rep, ready, accept, rtu, dreq, drep, disconnect = 0, 1, 3, 5, 8, 9, 10 // of scriptEvents
	ids := mad.CommIDs{Local: 2, Remote: 1}
	requested := bring(t, false)
	replied := bring(t, false, accept)
	accepted := bring(t, false, accept, rtu)
	asked := bring(t, false, accept, rtu, dreq)
	requests := bring(t, true)
	answered := bring(t, true, rep)
	connected := bring(t, true, rep, ready)
	asks := bring(t, true, rep, ready, disconnect)
	over := bring(t, true, rep, ready, disconnect, drep)
	for _, x := range []struct {
		name     string
		s        *script
		message  mad.Message
		repeated bool        // otherwise it isn't one for the state
		again    mad.Message // what is sent once more
	}{
		{"REQ in REP_SENT", replied, &mad.REQ{}, true, &mad.REP{}},
		{"REQ in ESTABLISHED", accepted, &mad.REQ{}, true, nil},
		{"REP in REQ_RCVD", requested, &mad.REP{CommIDs: ids}, false, nil},
		{"REP in REP_RCVD", answered, &mad.REP{CommIDs: ids}, true, nil},
		{"REP in ESTABLISHED", connected, &mad.REP{CommIDs: ids}, true, &mad.RTU{}},
		{"REP of another connection", connected, &mad.REP{CommIDs: mad.CommIDs{Local: 3, Remote: 1}}, true, nil},
		{"RTU in ESTABLISHED", accepted, &mad.RTU{CommIDs: ids}, true, nil},
		{"MRA of the REQ in ESTABLISHED", connected, &mad.MRA{CommIDs: ids, Message: mad.AnswersREQ, ServiceTimeout: 9}, false, nil},
		{"MRA of the REP in ESTABLISHED", accepted, &mad.MRA{CommIDs: ids, Message: mad.AnswersREP, ServiceTimeout: 9}, false, nil},
		{"MRA in DREQ_SENT", asks, &mad.MRA{CommIDs: ids, Message: mad.AnswersOther, ServiceTimeout: 24}, false, nil},
		{"REJ of a REP in REQ_SENT", requests, &mad.REJ{CommIDs: ids, Message: mad.AnswersREP}, false, nil},
		{"REJ in TIMEWAIT", over, &mad.REJ{CommIDs: ids, Message: mad.AnswersOther}, false, nil},
		{"DREQ in REQ_RCVD", requested, &mad.DREQ{CommIDs: ids, RemoteQPN: 10}, false, nil},
		{"DREQ of another QP", connected, &mad.DREQ{CommIDs: ids, RemoteQPN: 11}, false, nil},
		{"DREQ in DREQ_RCVD", asked, &mad.DREQ{CommIDs: ids, RemoteQPN: 10}, true, nil},
		{"DREQ in TIMEWAIT", over, &mad.DREQ{CommIDs: ids, RemoteQPN: 10}, true, &mad.DREP{}},
		{"DREP in ESTABLISHED", connected, &mad.DREP{CommIDs: ids}, false, nil},
	} {
		c := x.s.c
		var fx effects
		switch m := x.message.(type) {
		case *mad.REQ:
			c.onDuplicateREQ(x.s.now, &fx)
		case *mad.REP:
			c.onREP(m, &fx)
		case *mad.RTU:
			c.onRTU(nil, &fx)
		case *mad.MRA:
			c.onMRA(x.s.now, m, &fx)
		case *mad.REJ:
			c.onREJ(x.s.now, m, &fx)
		case *mad.DREQ:
			c.onDREQ(x.s.now, 7, m, &fx)
		case *mad.DREP:
			c.onDREP(x.s.now, &fx)
		}
		if c.state != x.s.c.state || c.deadline != x.s.c.deadline || len(fx.events) != 0 {
			t.Errorf("%s: state %d, was %d; deadline %v, was %v; %d events", x.name, c.state, x.s.c.state, c.deadline, x.s.c.deadline, len(fx.events))
		}
		if fx.duplicate != x.repeated || fx.dropped == x.repeated {
			t.Errorf("%s: duplicate %v, dropped %v", x.name, fx.duplicate, fx.dropped)
		}
		switch {
		case x.again == nil && len(fx.sends) == 0:
		case x.again != nil && len(fx.sends) == 1 && fx.sends[0].again && fx.sends[0].msg.AttributeID() == x.again.AttributeID():
		default:
			t.Errorf("%s: %d messages, the first %+v", x.name, len(fx.sends), fx.sends)
		}
	}
}
