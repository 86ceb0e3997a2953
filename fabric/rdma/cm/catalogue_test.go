package cm

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// The catalogue: every message in every state of a connection, on both sides. What is not listed in
// a state is dropped there: no answer, no event, the same state. IBTA 12.9.7 has the states,
// 12.9.8.3 the stale connections.

// The peer's own numbers in the catalogue.
const (
	catID, catQPN   = 7, 8
	catTID, catDREQ = 99, 100
)

// stage is a connection with a raw peer in one state.
type stage struct {
	t    *testing.T
	node *node // ours
	peer *rawPeer
	end  *end // takes the events of the connection
	own  uint32
	qpn  uint32
	tid  uint64 // of the exchange that made the connection
	dreq uint64 // of our DREQ
}

func (s *stage) ids() mad.CommIDs { return mad.CommIDs{Local: catID, Remote: s.own} }

func (s *stage) send(tid uint64, m mad.Message) {
	s.peer.send(s.node.addr, tid, m)
	synctest.Wait()
}

// state returns the connection's state; stateClosed if it is gone.
func (s *stage) state() state {
	s.node.m.mu.Lock()
	defer s.node.m.mu.Unlock()
	if r := s.node.m.table.byLocal[s.own]; r != nil {
		return r.state
	}
	return stateClosed
}

// heard returns what the peer received, by name, a REJ with its reason, an APR with its status.
func (s *stage) heard() string {
	var all []string
	for {
		select {
		case w := <-s.peer.in:
			name := w.msg.AttributeID().String()
			switch m := w.msg.(type) {
			case *mad.REJ:
				name = fmt.Sprintf("REJ %d", m.Reason)
			case *mad.APR:
				name = fmt.Sprintf("APR %d", m.Status)
			}
			all = append(all, name)
		default:
			return strings.Join(all, ", ")
		}
	}
}

var catalogueEvents = map[verbs.CMEventType]string{
	verbs.CMConnectRequest: "request", verbs.CMRejected: "rejected", verbs.CMEstablished: "established",
	verbs.CMDisconnected: "disconnected", verbs.CMUnreachable: "unreachable", verbs.CMTimewaitExit: "timewait exit",
}

// told returns the events of the connection.
func (s *stage) told() string {
	var all []string
	for {
		select {
		case ev := <-s.end.events:
			all = append(all, catalogueEvents[ev.Type])
		default:
			return strings.Join(all, ", ")
		}
	}
}

// passive brings a connection that the peer asks for to a state.
func (s *stage) passive(l *end, want state) {
	s.tid = catTID
	if want == stateREQRcvd || want == stateMRAREQSent {
		l.handle = nil
	}
	req := s.peer.req(s.node.addr, catID, catQPN)
	s.send(catTID, req)
	s.end, l.id = l, l.want(verbs.CMConnectRequest).ID
	rec := l.id.(*cmID).rec
	s.own, s.qpn = rec.ids.Local, rec.localQPN
	switch want {
	case stateREQRcvd, stateREPSent:
		return
	case stateMRAREQSent:
		time.Sleep(codeDuration(req.RemoteResponse))
		s.send(catTID, req)
		return
	case stateMRAREPRcvd:
		s.send(catTID, &mad.MRA{CommIDs: s.ids(), Message: mad.AnswersREP, ServiceTimeout: 20})
		return
	}
	s.send(catTID, &mad.RTU{CommIDs: s.ids()})
	s.finish(want)
}

// active brings a connection that we ask for to a state.
func (s *stage) active(want state) {
	s.end = s.node.connect(s.peer.addr)
	tid, req := receive[*mad.REQ](s.peer)
	s.tid, s.own, s.qpn = tid, req.LocalCommID, req.LocalQPN
	switch want {
	case stateREQSent:
		return
	case stateMRAREQRcvd:
		s.send(tid, &mad.MRA{CommIDs: s.ids(), Message: mad.AnswersREQ, ServiceTimeout: 20})
		return
	}
	s.send(tid, &mad.REP{CommIDs: s.ids(), LocalQPN: catQPN, LocalCAGUID: 0x77})
	s.finish(want)
}

// finish takes an established connection to the state in which it ends.
func (s *stage) finish(want state) {
	disconnect := func() {
		if err := s.end.id.Disconnect(); err != nil {
			s.t.Error(err)
		}
	}
	switch want {
	case stateDREQSent:
		s.heard()
		disconnect()
		s.dreq, _ = receive[*mad.DREQ](s.peer)
	case stateDREQRcvd, stateTimewait:
		s.send(catDREQ, &mad.DREQ{CommIDs: s.ids(), RemoteQPN: s.qpn})
		if want == stateTimewait {
			disconnect()
		}
	}
}

// messages returns the messages of the catalogue, as sent by the peer of s.
func (s *stage) messages() map[string]func(mad.CommIDs) (uint64, mad.Message) {
	msg := func(tid uint64, f func(mad.CommIDs) mad.Message) func(mad.CommIDs) (uint64, mad.Message) {
		return func(ids mad.CommIDs) (uint64, mad.Message) { return tid, f(ids) }
	}
	rej := func(answers mad.AnsweredMessage) func(mad.CommIDs) (uint64, mad.Message) {
		return msg(s.tid, func(ids mad.CommIDs) mad.Message {
			return &mad.REJ{CommIDs: ids, Message: answers, Reason: verbs.RejectConsumer}
		})
	}
	mra := func(answers mad.AnsweredMessage) func(mad.CommIDs) (uint64, mad.Message) {
		return msg(s.tid, func(ids mad.CommIDs) mad.Message { return &mad.MRA{CommIDs: ids, Message: answers, ServiceTimeout: 20} })
	}
	return map[string]func(mad.CommIDs) (uint64, mad.Message){
		"REQ again": msg(s.tid, func(ids mad.CommIDs) mad.Message { return s.peer.req(s.node.addr, ids.Local, catQPN) }),
		// The peer has restarted, and uses the same ID or the same QP.
		"REQ of the same ID": msg(555, func(ids mad.CommIDs) mad.Message { return s.peer.req(s.node.addr, ids.Local, 1000) }),
		"REQ of the same QP": msg(556, func(ids mad.CommIDs) mad.Message { return s.peer.req(s.node.addr, ids.Local+70, catQPN) }),
		"REP":                msg(s.tid, func(ids mad.CommIDs) mad.Message { return &mad.REP{CommIDs: ids, LocalQPN: catQPN, LocalCAGUID: 0x77} }),
		"RTU":                msg(s.tid, func(ids mad.CommIDs) mad.Message { return &mad.RTU{CommIDs: ids} }),
		"MRA of REQ":         mra(mad.AnswersREQ), "MRA of REP": mra(mad.AnswersREP), "MRA of other": mra(mad.AnswersOther),
		"REJ of REQ": rej(mad.AnswersREQ), "REJ of REP": rej(mad.AnswersREP), "REJ of other": rej(mad.AnswersOther),
		"REJ timeout": msg(s.tid, func(ids mad.CommIDs) mad.Message { // from a peer that never received our ID
			m := &mad.REJ{CommIDs: mad.CommIDs{Local: ids.Local}, Message: mad.AnswersOther, Reason: verbs.RejectTimeout}
			m.SetGUID(0x77)
			return m
		}),
		"DREQ":          msg(catDREQ, func(ids mad.CommIDs) mad.Message { return &mad.DREQ{CommIDs: ids, RemoteQPN: s.qpn} }),
		"DREQ other QP": msg(catDREQ, func(ids mad.CommIDs) mad.Message { return &mad.DREQ{CommIDs: ids, RemoteQPN: s.qpn ^ 1} }),
		"DREP":          msg(s.dreq, func(ids mad.CommIDs) mad.Message { return &mad.DREP{CommIDs: ids} }),
		"LAP":           msg(200, func(ids mad.CommIDs) mad.Message { return &mad.LAP{CommIDs: ids} }),
		"APR":           msg(200, func(ids mad.CommIDs) mad.Message { return &mad.APR{CommIDs: ids} }),
		"SIDR_REQ":      msg(201, func(mad.CommIDs) mad.Message { return &mad.SIDRREQ{RequestID: 3, ServiceID: mad.ServiceID(4420)} }),
		"SIDR_REP":      msg(201, func(mad.CommIDs) mad.Message { return &mad.SIDRREP{RequestID: 3} }),
	}
}

// outcome is the effect of a message on a connection: the answers, the events, the state.
type outcome struct {
	answer, event string
	state         state
}

// everywhere is the answer to messages that is the same in every state.
var everywhere = map[string]string{"SIDR_REQ": "SIDR_REP"}

type catalogue map[state]map[string]outcome

var passiveCatalogue = catalogue{
	stateREQRcvd: {
		"REQ again":          {"", "", stateREQRcvd}, // the owner may take as long as the peer allows; after that see the next state
		"REQ of the same ID": {"REJ 10", "", stateREQRcvd}, "REQ of the same QP": {"REJ 10", "", stateREQRcvd},
		"REJ of REQ": {"", "rejected", stateClosed}, "REJ of REP": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		"REJ timeout": {"", "rejected", stateClosed},
	},
	stateMRAREQSent: {
		"REQ again":          {"MRA", "", stateMRAREQSent},
		"REQ of the same ID": {"REJ 10", "", stateMRAREQSent}, "REQ of the same QP": {"REJ 10", "", stateMRAREQSent},
		"REJ of REQ": {"", "rejected", stateClosed}, "REJ of REP": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		"REJ timeout": {"", "rejected", stateClosed},
	},
	stateREPSent: {
		"REQ again": {"REP", "", stateREPSent}, // the REP was lost
		// A DREQ is not allowed in this state: a REJ ends the connection, which the peer has lost.
		"REQ of the same ID": {"REJ 10, REJ 28", "disconnected", stateTimewait},
		"REQ of the same QP": {"REJ 10, REJ 28", "disconnected", stateTimewait},
		"RTU":                {"", "established", stateEstablished},
		"MRA of REP":         {"", "", stateMRAREPRcvd},
		"REJ of REQ":         {"", "rejected", stateClosed}, "REJ of REP": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		"REJ timeout": {"", "rejected", stateClosed},       // crossed with the REP
		"DREQ":        {"", "disconnected", stateDREQRcvd}, // the RTU was lost
	},
	stateMRAREPRcvd: {
		"REQ again":          {"REP", "", stateMRAREPRcvd},
		"REQ of the same ID": {"REJ 10, REJ 28", "disconnected", stateTimewait},
		"REQ of the same QP": {"REJ 10, REJ 28", "disconnected", stateTimewait},
		"RTU":                {"", "established", stateEstablished},
		"REJ of REQ":         {"", "rejected", stateClosed}, "REJ of REP": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		"REJ timeout": {"", "rejected", stateClosed},
		"DREQ":        {"", "disconnected", stateDREQRcvd},
	},
	stateEstablished: {
		"REQ of the same ID": {"REJ 10, DREQ", "", stateDREQSent}, "REQ of the same QP": {"REJ 10, DREQ", "", stateDREQSent},
		"REJ of REQ": {"", "disconnected", stateTimewait}, "REJ of REP": {"", "disconnected", stateTimewait},
		"REJ of other": {"", "disconnected", stateTimewait},
		"DREQ":         {"", "disconnected", stateDREQRcvd},
		"LAP":          {"APR 2", "", stateEstablished},
	},
	stateDREQSent: {
		"REQ of the same ID": {"REJ 10", "", stateDREQSent}, "REQ of the same QP": {"REJ 10", "", stateDREQSent},
		"REJ of REQ": {"", "disconnected", stateTimewait}, "REJ of REP": {"", "disconnected", stateTimewait},
		"REJ of other": {"", "disconnected", stateTimewait},
		"DREQ":         {"DREP", "disconnected", stateTimewait}, // crossed
		"DREP":         {"", "disconnected", stateTimewait},
	},
	stateDREQRcvd: {
		"REQ of the same ID": {"REJ 10", "", stateDREQRcvd}, "REQ of the same QP": {"REJ 10", "", stateDREQRcvd},
		"REJ of REQ": {"", "", stateTimewait}, "REJ of REP": {"", "", stateTimewait}, "REJ of other": {"", "", stateTimewait},
	},
	stateTimewait: {
		"REQ again":          {"REJ 10", "", stateTimewait},
		"REQ of the same ID": {"REJ 10", "", stateTimewait},
		"REQ of the same QP": {"REP", "request", stateTimewait}, // the peer uses it for the next connection, which is unrelated to this one
		"DREQ":               {"DREP", "", stateTimewait},       // the DREP was lost
	},
}

var activeCatalogue = catalogue{
	stateREQSent: {
		"REP":        {"RTU", "established", stateEstablished},
		"MRA of REQ": {"", "", stateMRAREQRcvd},
		"REJ of REQ": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		// The peer's ID and QP are not known yet, so these concern no connection.
		"REQ again": {"REJ 8", "", stateREQSent}, "REQ of the same ID": {"REJ 8", "", stateREQSent}, "REQ of the same QP": {"REJ 8", "", stateREQSent},
		"DREQ": {"DREP", "", stateREQSent}, "DREQ other QP": {"DREP", "", stateREQSent}, "LAP": {"APR 1", "", stateREQSent},
	},
	stateMRAREQRcvd: {
		"REP":        {"RTU", "established", stateEstablished},
		"REJ of REQ": {"", "rejected", stateClosed}, "REJ of other": {"", "rejected", stateClosed},
		"REQ again": {"REJ 8", "", stateMRAREQRcvd}, "REQ of the same ID": {"REJ 8", "", stateMRAREQRcvd},
		"REQ of the same QP": {"REJ 8", "", stateMRAREQRcvd},
		"DREQ":               {"DREP", "", stateMRAREQRcvd}, "DREQ other QP": {"DREP", "", stateMRAREQRcvd}, "LAP": {"APR 1", "", stateMRAREQRcvd},
	},
	stateEstablished: {
		"REQ again":          {"REJ 10, DREQ", "", stateDREQSent},
		"REQ of the same ID": {"REJ 10, DREQ", "", stateDREQSent}, "REQ of the same QP": {"REJ 10, DREQ", "", stateDREQSent},
		"REP":        {"RTU", "", stateEstablished}, // the RTU was lost
		"REJ of REQ": {"", "disconnected", stateTimewait}, "REJ of REP": {"", "disconnected", stateTimewait},
		"REJ of other": {"", "disconnected", stateTimewait},
		"DREQ":         {"", "disconnected", stateDREQRcvd},
		"LAP":          {"APR 2", "", stateEstablished},
	},
	stateDREQSent: {
		"REQ again":          {"REJ 10", "", stateDREQSent},
		"REQ of the same ID": {"REJ 10", "", stateDREQSent}, "REQ of the same QP": {"REJ 10", "", stateDREQSent},
		"REJ of REQ": {"", "disconnected", stateTimewait}, "REJ of REP": {"", "disconnected", stateTimewait},
		"REJ of other": {"", "disconnected", stateTimewait},
		"DREQ":         {"DREP", "disconnected", stateTimewait},
		"DREP":         {"", "disconnected", stateTimewait},
	},
	stateDREQRcvd: {
		"REQ again":          {"REJ 10", "", stateDREQRcvd},
		"REQ of the same ID": {"REJ 10", "", stateDREQRcvd}, "REQ of the same QP": {"REJ 10", "", stateDREQRcvd},
		"REJ of REQ": {"", "", stateTimewait}, "REJ of REP": {"", "", stateTimewait}, "REJ of other": {"", "", stateTimewait},
	},
	stateTimewait: {
		"REQ again":          {"REJ 10", "", stateTimewait},
		"REQ of the same ID": {"REJ 10", "", stateTimewait}, "REQ of the same QP": {"REJ 8", "", stateTimewait},
		"DREQ": {"DREP", "", stateTimewait},
	},
}

// TestCatalogue: each message in each state does what the specification says, and no more.
func TestCatalogue(t *testing.T) {
	for side, states := range map[string]catalogue{"passive": passiveCatalogue, "active": activeCatalogue} {
		for from, listed := range states {
			for _, name := range catalogueNames {
				t.Run(fmt.Sprintf("%s, state %d, %s", side, from, name), func(t *testing.T) {
					inState(t, side, from, func(s *stage) {
						want, ok := listed[name]
						if !ok {
							want = outcome{everywhere[name], "", from}
						}
						tid, m := s.messages()[name](s.ids())
						s.send(tid, m)
						if got := (outcome{s.heard(), s.told(), s.state()}); got != want {
							t.Errorf("got %+v, want %+v", got, want)
						}
					})
				})
			}
		}
	}
}

var catalogueNames = []string{
	"REQ again", "REQ of the same ID", "REQ of the same QP", "REP", "RTU", "MRA of REQ", "MRA of REP", "MRA of other",
	"REJ of REQ", "REJ of REP", "REJ of other", "REJ timeout", "DREQ", "DREQ other QP", "DREP", "LAP", "APR", "SIDR_REQ", "SIDR_REP",
}

// inState runs f in virtual time with a connection in one state of one side.
func inState(t *testing.T, side string, want state, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := &stage{t: t, node: newNode(t, n, "127.0.0.1", Config{}), peer: newRawPeer(t, n, "127.0.0.9")}
		if side == "passive" {
			s.passive(s.node.listen(0), want)
		} else {
			s.active(want)
		}
		synctest.Wait()
		if got := s.state(); got != want {
			t.Fatalf("prepared state %d, want %d", got, want)
		}
		s.heard()
		s.told()
		f(s)
		s.node.m.Close()
	})
}

// TestCatalogueStrangers: a message has no effect on a connection if it comes from another address, has one of the two
// IDs wrong, or answers the REQ with another transaction ID.
func TestCatalogueStrangers(t *testing.T) {
	for side, states := range map[string]catalogue{"passive": passiveCatalogue, "active": activeCatalogue} {
		for from := range states {
			t.Run(fmt.Sprintf("%s, state %d", side, from), func(t *testing.T) {
				inState(t, side, from, func(s *stage) {
					other := newRawPeer(t, s.peer.net, "127.0.0.10")
					for _, name := range catalogueNames {
						if strings.HasPrefix(name, "REQ ") {
							continue // from another peer it is a request like any other
						}
						message := s.messages()[name]
						for what, ids := range map[string]mad.CommIDs{
							"its ID": {Local: catID + 1, Remote: s.own}, "ours": {Local: catID, Remote: s.own + 1}, "none": {},
						} {
							if name == "REJ timeout" && ids.Local == catID {
								continue // it doesn't have ours
							}
							tid, m := message(ids)
							if s.awaited() && ids.Remote == s.own {
								tid++ // its ID isn't known: the transaction ID stands in
							}
							s.send(tid, m)
							s.untouched(from, name+" with a wrong number: "+what)
						}
						tid, m := message(s.ids())
						other.send(s.node.addr, tid, m)
						s.untouched(from, name+" from elsewhere")
					}
				})
			})
		}
	}
}

func (s *stage) awaited() bool { return s.state() == stateREQSent || s.state() == stateMRAREQRcvd }

func (s *stage) untouched(from state, what string) {
	s.t.Helper()
	synctest.Wait()
	if got, told := s.state(), s.told(); got != from || told != "" {
		s.t.Fatalf("%s: state %d, want %d; events %q", what, got, from, told)
	}
}

// TestCatalogueRepeated: a message that arrives three times at once has the effect of a single one. But a request that
// was refused because its QP was connected is a request like any other when that connection is over.
func TestCatalogueRepeated(t *testing.T) {
	for side, states := range map[string]catalogue{"passive": passiveCatalogue, "active": activeCatalogue} {
		for from, listed := range states {
			for name, want := range listed {
				t.Run(fmt.Sprintf("%s, state %d, %s", side, from, name), func(t *testing.T) {
					inState(t, side, from, func(s *stage) {
						tid, m := s.messages()[name](s.ids())
						for range 3 {
							s.peer.send(s.node.addr, tid, m)
						}
						synctest.Wait()
						if name == "REQ of the same QP" && from.awaitsRTU() {
							want.event += ", request"
						}
						if got := s.told(); got != want.event {
							t.Errorf("events %q, want %q", got, want.event)
						}
						if got := s.state(); got != want.state {
							t.Errorf("state %d, want %d", got, want.state)
						}
					})
				})
			}
		}
	}
}

// TestPeerOfIDZero: 0 is a communication ID like any other.
func TestPeerOfIDZero(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, l *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		p.send(target.addr, 99, p.req(target.addr, 0, 8))
		_, one := receive[*mad.REP](p)
		p.send(target.addr, 99, p.req(target.addr, 0, 8))
		if _, two := receive[*mad.REP](p); *one != *two {
			t.Errorf("a repeated request is another connection")
		}
		l.id = l.want(verbs.CMConnectRequest).ID
		p.send(target.addr, 99, &mad.REJ{
			CommIDs: mad.CommIDs{Local: 5, Remote: one.Local}, Message: mad.AnswersREP, Reason: verbs.RejectConsumer,
		})
		p.send(target.addr, 99, &mad.RTU{CommIDs: mad.CommIDs{Local: 0, Remote: one.Local}})
		l.want(verbs.CMEstablished)
		p.send(target.addr, 100, &mad.DREQ{CommIDs: mad.CommIDs{Local: 0, Remote: one.Local}, RemoteQPN: one.LocalQPN})
		l.want(verbs.CMDisconnected)
	})
}

// TestPeerBeginsAnew: after its restart a peer that draws the same numbers is refused once, and is accepted when its
// old connection is gone.
func TestPeerBeginsAnew(t *testing.T) {
	for _, again := range []struct {
		name    string
		id, qpn uint32
	}{{"same ID", catID, 1000}, {"same QP", catID + 1, catQPN}, {"both", catID, catQPN}} {
		t.Run(again.name, func(t *testing.T) {
			inState(t, "passive", stateEstablished, func(s *stage) {
				s.send(7000, s.peer.req(s.node.addr, again.id, again.qpn))
				if got := s.heard(); got != "REJ 10, DREQ" {
					t.Fatalf("heard %q", got)
				}
				// It knows nothing about that connection.
				s.send(s.node.m.nextTID, &mad.DREP{CommIDs: s.ids()})
				if got := s.told(); got != "disconnected" {
					t.Errorf("events %q", got)
				}
				time.Sleep(codeDuration(18) + time.Millisecond)
				synctest.Wait()
				s.told()
				s.send(7001, s.peer.req(s.node.addr, again.id, again.qpn))
				if got := s.heard(); got != "REP" {
					t.Errorf("heard %q", got)
				}
			})
		})
	}
}

// TestMRAsAreBounded: a peer that asks again and again for more time gets no more than the total limit.
func TestMRAsAreBounded(t *testing.T) {
	for _, c := range []struct {
		side    string
		from    state
		answers mad.AnsweredMessage
		most    time.Duration
	}{
		{"active", stateREQSent, mad.AnswersREQ, (maxCMRetries+1)*reqInterval + maxService},
		{"passive", stateREPSent, mad.AnswersREP, maxHalfOpenTime},
	} {
		for _, code := range []uint8{0, 10, 21, 31} {
			t.Run(fmt.Sprintf("%s, service timeout %d", c.side, code), func(t *testing.T) {
				inState(t, c.side, c.from, func(s *stage) {
					start := time.Now()
					for s.state() != stateClosed && time.Since(start) <= 2*c.most {
						s.send(s.tid, &mad.MRA{CommIDs: s.ids(), Message: c.answers, ServiceTimeout: code})
						s.heard()
						time.Sleep(100 * time.Millisecond)
						synctest.Wait()
					}
					if took := time.Since(start); took > c.most+100*time.Millisecond {
						t.Errorf("waited for %v, at most %v", took, c.most)
					}
					if got := s.told(); got != "unreachable" {
						t.Errorf("events %q", got)
					}
				})
			})
		}
	}
}

// TestTimesOfPeers: whatever times a peer claims for its path and its acknowledgements, a QP whose peer has died
// notices it, and TIMEWAIT ends. Nor is a peer given up that stalls for some milliseconds.
func TestTimesOfPeers(t *testing.T) {
	const shortest, longest = 64 * time.Millisecond, 8192 * time.Millisecond // 4.096 µs × 2^21, as Linux rounds it
	for code := range uint8(32) {
		pair(t, func(t *testing.T, n *network, host, target *node, l *end) {
			p := newRawPeer(t, n, "127.0.0.9")
			req := p.req(target.addr, 7, 8)
			req.Primary.ACKTimeout = code
			p.send(target.addr, 99, req)
			_, rep := receive[*mad.REP](p)
			p.send(target.addr, 99, &mad.RTU{CommIDs: mad.CommIDs{Local: 7, Remote: rep.Local}})
			l.id = l.want(verbs.CMConnectRequest).ID
			l.want(verbs.CMEstablished)

			h := host.connect(p.addr)
			tid, asked := receive[*mad.REQ](p)
			p.send(host.addr, tid, &mad.REP{
				CommIDs:  mad.CommIDs{Local: 70, Remote: asked.LocalCommID},
				LocalQPN: 80, LocalCAGUID: 0x77, TargetACKDelay: code,
			})
			h.want(verbs.CMEstablished)
			receive[*mad.RTU](p)

			for who, e := range map[string]*end{"passive": l, "active": h} {
				if got := e.qp().Query().Timeout; codeDuration(got) < shortest || codeDuration(got) > longest {
					t.Errorf("%s, code %d: ACK timeout %d", who, code, got)
				}
				start := time.Now()
				if err := e.id.Disconnect(); err != nil {
					t.Error(err)
				}
				tid, dreq := receive[*mad.DREQ](p)
				p.send(e.addr, tid, &mad.DREP{CommIDs: dreq.Reversed()})
				e.want(verbs.CMDisconnected)
				e.want(verbs.CMTimewaitExit)
				if took := time.Since(start); took > longest {
					t.Errorf("%s, code %d: TIMEWAIT of %v", who, code, took)
				}
			}
		})
	}
}

// TestAlternatePath: a REQ with an alternate path is accepted without it, and the REP says so (IBTA 12.6.8, Failover
// Accepted).
func TestAlternatePath(t *testing.T) {
	pair(t, func(t *testing.T, n *network, _, target *node, _ *end) {
		p := newRawPeer(t, n, "127.0.0.9")
		req := p.req(target.addr, 7, 8)
		p.send(target.addr, 99, req)
		if _, rep := receive[*mad.REP](p); rep.FailoverAccepted != 0 {
			t.Errorf("without an alternate path: %d", rep.FailoverAccepted)
		}
		req = p.req(target.addr, 70, 80)
		req.Alternate = req.Primary
		req.Alternate.LocalLID = 5
		p.send(target.addr, 100, req)
		if _, rep := receive[*mad.REP](p); rep.FailoverAccepted != 1 {
			t.Errorf("with an alternate path: %d, want 1 (not supported)", rep.FailoverAccepted)
		}
	})
}
