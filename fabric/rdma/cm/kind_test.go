package cm

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// newNodeOf is newNode with a device of the given vendor.
func newNodeOf(t *testing.T, n *network, addr string, vendor uint32) *node {
	t.Helper()
	dev := newDevice(n, addr)
	dev.attr.VendorID = vendor
	m, err := New(dev, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &node{t, dev, m, dev.attr.Addr}
}

// ours and other are vendors of devices.
const ours, other = 0x4e5641, 0x123456

// TestKind: devices of one vendor recognize each other, and nobody else is told of a vendor.
func TestKind(t *testing.T) {
	for _, c := range []struct{ host, target, known uint32 }{
		{ours, ours, ours}, {ours, other, 0}, {ours, 0, 0}, {0, ours, 0}, {0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			host, target := newNodeOf(t, n, "127.0.0.2", c.host), newNodeOf(t, n, "127.0.0.1", c.target)
			defer host.m.Close()
			defer target.m.Close()
			l := target.listen(0)
			h := host.connect(target.addr)
			established(h, l)
			if a, b := h.qp().Query().PeerVendorID, l.qp().Query().PeerVendorID; a != c.known || b != c.known {
				t.Errorf("%+v: peers' vendor IDs %#x and %#x", c, a, b)
			}
			req := n.sent(host.addr, mad.AttrREQ)[0].msg.(*mad.REQ)
			rep := n.sent(target.addr, mad.AttrREP)[0].msg.(*mad.REP)
			if req.VendorID != 0 || rep.VendorID != 0 {
				t.Errorf("%+v: vendor IDs %#x and %#x in the messages", c, req.VendorID, rep.VendorID)
			}
			if c.known == 0 && rep.Options != 0 {
				t.Errorf("%+v: options %#x for a stranger", c, rep.Options)
			}
		})
	}
}

// TestKindOfStrangers: a device isn't recognized because it sends back what it received, nor if it is of an older
// version, which behaves differently towards its kind: its REQ had 1, its REP 2.
func TestKindOfStrangers(t *testing.T) {
	for name, answer := range map[string]func(*mad.REQ, *mad.REP){
		"sends back what it got":     func(req *mad.REQ, rep *mad.REP) { rep.VendorID, rep.Options = req.VendorID, req.Options },
		"has options of its own":     func(_ *mad.REQ, rep *mad.REP) { rep.VendorID, rep.Options = other, other<<8|answered },
		"has our ID, and no options": func(_ *mad.REQ, rep *mad.REP) { rep.VendorID = ours },
		"is of before":               func(_ *mad.REQ, rep *mad.REP) { rep.Options = ours<<8 | 2 },
	} {
		t.Run("passive peer "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				host, p := newNodeOf(t, n, "127.0.0.2", ours), newRawPeer(t, n, "127.0.0.9")
				defer host.m.Close()
				h := host.connect(p.addr)
				tid, req := receive[*mad.REQ](p)
				rep := &mad.REP{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, LocalQPN: 6, LocalCAGUID: 0x77}
				answer(req, rep)
				p.send(host.addr, tid, rep)
				h.want(verbs.CMEstablished)
				if id := h.qp().Query().PeerVendorID; id != 0 {
					t.Errorf("taken for one of %#x", id)
				}
			})
		})
	}
	for name, c := range map[string]struct{ vendor, options uint32 }{
		"of another vendor": {other, other<<8 | offered},
		"of before":         {0, ours<<8 | 1},
	} {
		t.Run("active peer "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				target, p := newNodeOf(t, n, "127.0.0.1", ours), newRawPeer(t, n, "127.0.0.9")
				defer target.m.Close()
				target.listen(0)
				req := p.req(target.addr, 7, 8)
				req.VendorID, req.Options = c.vendor, c.options
				p.send(target.addr, 1, req)
				if _, rep := receive[*mad.REP](p); rep.VendorID != 0 || rep.Options != 0 {
					t.Errorf("REP with vendor ID %#x and options %#x", rep.VendorID, rep.Options)
				}
			})
		})
	}
}
