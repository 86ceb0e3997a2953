package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestCounters: what isn't answered, refused, or can't be sent is counted.
func TestCounters(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, target *node, _ *end) {
		expect := func(what string, got, want uint64) {
			t.Helper()
			if got != want {
				t.Errorf("%d %s, want %d", got, what, want)
			}
		}
		c := host.m.Counters()
		host.connect(netip.MustParseAddr("127.0.0.99")).want(verbs.CMUnreachable)
		expect("attempts without an answer", c.Unreachable.Load(), 1)
		expect("REQs sent", c.Sent.Of(mad.AttrREQ).Load(), 20)
		expect("of them again", c.Retransmits.Load(), 19)
		expect("attempts given up", c.RejectsSent.Of(verbs.RejectTimeout).Load(), 1)
		expect("connections made", c.Connects.Load(), 0)

		h := host.prepare(target.addr)
		host.dev.setSendErr(errors.New("network is unreachable"))
		if err := h.id.Connect(hostParam); err != nil {
			t.Fatal(err)
		}
		h.want(verbs.CMUnreachable)
		host.dev.setSendErr(nil)
		expect("send errors", c.SendErrors.Load(), 1)
		expect("attempts in vain", c.Unreachable.Load(), 2)

		p := newRawPeer(t, n, "127.0.0.9")
		req := p.req(target.addr, 7, 100)
		req.ServiceID++
		p.send(target.addr, 1, req)
		receive[*mad.REJ](p)
		p.send(target.addr, 2, &mad.REP{CommIDs: mad.CommIDs{Local: 7, Remote: 8}})
		receive[*mad.REJ](p)
		c = target.m.Counters()
		expect("REQs received", c.Received.Of(mad.AttrREQ).Load(), 1)
		expect("REJs sent", c.Sent.Of(mad.AttrREJ).Load(), 2)
		expect("REQs for no listener", c.RejectsSent.Of(verbs.RejectInvalidServiceID).Load(), 1)
		expect("REPs for no REQ", c.RejectsSent.Of(rejectInvalidCommID).Load(), 1)
	})
}

// TestCounterOf: there is a counter for each message, and for each reason of IBTA table 109. Other reasons share one.
func TestCounterOf(t *testing.T) {
	var m MessageCounters
	if m.Of(mad.AttrREQ) != &m[0] || m.Of(mad.AttrAPR) != &m[len(m)-1] || m.Of(mad.AttrREQ-1) != nil || m.Of(mad.AttrAPR+1) != nil {
		t.Error("wrong counters of messages")
	}
	var r ReasonCounters
	if r.Of(1) != &r[1] || r.Of(35) != &r[35] || r.Of(36) != &r[0] || r.Of(0xffff) != &r[0] {
		t.Error("wrong counters of reasons")
	}
}
