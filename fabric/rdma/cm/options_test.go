package cm

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestOptionsGolden pins the options that docs/recovery.md gives: another program of our kind, of another version,
// knows us by them.
func TestOptionsGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		host, target := newNodeOf(t, n, "127.0.0.2", 0x4e5641), newNodeOf(t, n, "127.0.0.1", 0x4e5641)
		host.m.cfg.VendorOptions = func(netip.Addr) uint32 { return 0x3e }
		target.m.cfg.VendorOptions = func(netip.Addr) uint32 { return 0x2f }
		defer host.m.Close()
		defer target.m.Close()
		l := target.listen(0)
		h := host.connect(target.addr)
		established(h, l)
		req := n.sent(host.addr, mad.AttrREQ)[0].msg.(*mad.REQ)
		rep := n.sent(target.addr, mad.AttrREP)[0].msg.(*mad.REP)
		if req.Options != 0x4e564103+24+32+64+128 || rep.Options != 0x4e564100+24+32+128 {
			t.Errorf("options %#x and %#x", req.Options, rep.Options)
		}
	})
}

// TestForeignAnswer: another vendor's answer is ignored, whatever its features would mean here.
func TestForeignAnswer(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		const ours, all = 0x4e5641, featureMask
		host.m.attr.VendorID, host.m.cfg.VendorOptions = ours, func(netip.Addr) uint32 { return all }
		p := newRawPeer(t, n, "127.0.0.9")
		h := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		p.send(host.addr, tid, &mad.REP{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, Options: (ours+1)<<8 | all | answered})
		h.want(verbs.CMEstablished)
		if a := h.qp().Query(); a.VendorOptions != 0 || a.PeerVendorID != 0 {
			t.Errorf("vendor %#x with options %#x", a.PeerVendorID, a.VendorOptions)
		}
	})
}

// TestAnswerBeyondOffer: of the features that an answer names, only those that were offered are used.
func TestAnswerBeyondOffer(t *testing.T) {
	pair(t, func(t *testing.T, n *network, host, _ *node, _ *end) {
		const ours, offer = 0x4e5641, 5
		host.m.attr.VendorID, host.m.cfg.VendorOptions = ours, func(netip.Addr) uint32 { return offer }
		p := newRawPeer(t, n, "127.0.0.9")
		h := host.connect(p.addr)
		tid, req := receive[*mad.REQ](p)
		p.send(host.addr, tid, &mad.REP{CommIDs: mad.CommIDs{Local: 5, Remote: req.LocalCommID}, Options: ours<<8 | featureMask | answered})
		h.want(verbs.CMEstablished)
		if got := h.qp().Query().VendorOptions; got != offer {
			t.Errorf("options %#x, want %#x", got, offer)
		}
	})
}

// TestVendorOptions: the options that both sides name are used, on both sides, and none of another vendor's.
func TestVendorOptions(t *testing.T) {
	const ours = 0x4e5641
	for _, c := range []struct {
		name           string
		host, target   uint32
		targetVendor   uint32
		want           uint32
		offeredForPeer string
	}{
		{"both", 5, 3, ours, 1, ""},
		{"only the host", 1, 0, ours, 0, ""},
		{"only the target", 0, 1, ours, 0, ""},
		{"another vendor", 1, 1, ours + 1, 0, ""},
		{"for another peer", 1, 1, ours, 0, "127.0.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				offer := func(options uint32, to string) func(netip.Addr) uint32 {
					if options == 0 {
						return nil
					}
					return func(peer netip.Addr) uint32 {
						if peer.String() != to {
							return 0
						}
						return options
					}
				}
				to := "127.0.0.1"
				if c.offeredForPeer != "" {
					to = c.offeredForPeer
				}
				host := newNode(t, n, "127.0.0.2", Config{VendorOptions: offer(c.host, to)})
				target := newNode(t, n, "127.0.0.1", Config{VendorOptions: offer(c.target, "127.0.0.2")})
				host.m.attr.VendorID, target.m.attr.VendorID = ours, c.targetVendor
				l := target.listen(0)
				h := host.prepare(target.addr)
				if err := h.id.Connect(hostParam); err != nil {
					t.Fatal(err)
				}
				established(h, l)
				for who, id := range map[string]verbs.CMID{"host": h.id, "target": l.id} {
					if got := id.QP().Query().VendorOptions; got != c.want {
						t.Errorf("options of the %s: %#x, want %#x", who, got, c.want)
					}
				}
				ended(h, l)
				host.m.Close()
				target.m.Close()
			})
		})
	}
}
