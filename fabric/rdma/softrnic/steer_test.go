package softrnic

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs/verbstest"
)

// packetFor returns a packet for a queue pair.
func packetFor(num wire.QPN) []byte {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PKey: wire.DefaultPKey, DestQP: num, MigReq: true}}
	return wire.AppendTrailer(p.AppendHeader(nil), 0, 0)
}

// packetOf returns the packet of a MAD.
func packetOf(msg mad.Message) []byte {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: wire.QP1}, DETH: wire.DETH{QKey: wire.QP1QKey, SrcQP: wire.QP1}}
	return wire.AppendTrailer(mad.Append(p.AppendHeader(nil), 7, msg), 0, 0)
}

// TestSteer: packets go to the RNIC that has the queue pair, and MADs to the one that has the connection: by our ID, or,
// where they name none of ours, by the peer's.
func TestSteer(t *testing.T) {
	const ours, theirs = 0x12345605, 0x03000001
	ids := mad.CommIDs{Local: theirs, Remote: ours}
	for _, c := range []struct {
		name   string
		packet []byte
		want   int
	}{
		{"the first's queue pair", packetFor(0x80abcd), 0},
		{"the sixth's", packetFor(0xd00002), 5},
		{"the last's", packetFor(0xffffff), 7},
		{"REQ", packetOf(&mad.REQ{LocalCommID: theirs}), 2 % 6},
		{"REQ of one that counts in its high byte", packetOf(&mad.REQ{LocalCommID: 0x0f0000a0}), 7 % 6},
		{"REP", packetOf(&mad.REP{CommIDs: ids}), 5},
		{"RTU", packetOf(&mad.RTU{CommIDs: ids}), 5},
		{"MRA", packetOf(&mad.MRA{CommIDs: ids}), 5},
		{"REJ", packetOf(&mad.REJ{CommIDs: ids}), 5},
		{"REJ of a REQ that is given up", packetOf(&mad.REJ{CommIDs: mad.CommIDs{Local: theirs}, Reason: verbs.RejectTimeout}), 2},
		{"DREQ", packetOf(&mad.DREQ{CommIDs: ids}), 5},
		{"DREP", packetOf(&mad.DREP{CommIDs: ids}), 5},
		{"too short a MAD", packetFor(wire.QP1), 0},
		{"too short a packet", []byte{1, 2, 3}, 0},
	} {
		steer, err := steer(6)
		if err != nil {
			t.Fatal(err)
		}
		if got := steer(c.packet); got != c.want {
			t.Errorf("%s: to %d, want %d", c.name, got, c.want)
		}
	}
}

// TestStrays: a packet that the kernel has given to the wrong RNIC of a group reaches the right one, as packets of
// several queue pairs do that a network card has coalesced. Here the first RNIC gets all packets.
func TestStrays(t *testing.T) {
	toFirst := []bpf.Instruction{bpf.RetConstant{Val: 0}}
	verbstest.Run(t, verbstest.Config{New: func(t *testing.T) (host, target verbstest.RNIC) {
		var both [2]verbstest.RNIC
		for i := range both {
			g, err := openGroup(someLoopback(), Config{Engines: 3}, toFirst)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := g.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
					t.Error(err)
				}
				for _, nic := range g.rnics[1:] {
					if n := nic.dev.Counters()[roce.NoQP]; n != 0 {
						t.Errorf("%s: %d packets for no queue pair", nic.Name(), n)
					}
				}
			})
			both[i] = verbstest.RNIC{ConnectionManager: g, Addr: g.Addr(), Close: g.Close}
		}
		return both[0], both[1]
	}})
}

// TestGroupSpread: the connections of a group go to each RNIC of another in turn, whatever the numbers of RNICs are.
func TestGroupSpread(t *testing.T) {
	for _, c := range []struct{ host, target int }{{1, 4}, {2, 4}, {3, 2}, {4, 2}, {8, 8}} {
		for tries := 1; !testSpread(t, c.host, c.target); tries++ {
			if tries == 10 {
				t.Fatalf("%d RNICs to %d: some request is always repeated", c.host, c.target)
			}
		}
	}
}

// testSpread returns false if a request was repeated, as on a machine that stood still for so long: the counts then say
// nothing.
func testSpread(t *testing.T, hosts, targets int) bool {
	const rounds = 2
	host, target := openSome(t, hosts), openSome(t, targets)
	at := netip.AddrPortFrom(target.Addr(), 4420) // nobody listens there
	n := rounds * hosts * targets
	for range n {
		connectInVain(t, host, at)
	}
	sent := 0
	for _, nic := range host.rnics {
		sent += int(nic.Counters().Sent.Of(mad.AttrREQ).Load())
	}
	if sent != n {
		return false
	}
	for _, nic := range target.rnics {
		if got := nic.Counters().Received.Of(mad.AttrREQ).Load(); int(got) != n/targets {
			t.Errorf("%d RNICs to %d: %s has got %d of %d requests", hosts, targets, nic.Name(), got, n)
		}
	}
	for _, nic := range host.rnics {
		if got := nic.Counters().RejectsReceived.Of(verbs.RejectInvalidServiceID).Load(); int(got) != n/hosts {
			t.Errorf("%d RNICs to %d: %s has got %d of %d answers", hosts, targets, nic.Name(), got, n)
		}
	}
	return true
}

// TestStaleInGroup: a peer that has restarted is recognized by the number of its queue pair, whichever RNIC of a group
// its request comes to.
func TestStaleInGroup(t *testing.T) {
	target, peer := openSome(t, 2), openSome(t, 1).rnics[0]
	answers := make(chan mad.Message, 100) // some are repeated
	peer.dev.HandleMADs(func(_ netip.Addr, b []byte) {
		_, msg, err := mad.Parse(b)
		if err != nil {
			t.Error(err)
		}
		answers <- msg
	})
	listen(t, target)
	ask := func(commID uint32) (refused verbs.RejectReason) {
		t.Helper()
		from, to := peer.dev.Attr().Addr, target.Addr()
		req := &mad.REQ{
			LocalCommID: commID, ServiceID: mad.ServiceID(4420), LocalCAGUID: 7, LocalQPN: 8,
			RemoteResponse: 20, LocalResponse: 20, PKey: wire.DefaultPKey, PathMTU: verbs.MTU1024,
			Primary: mad.Path{LocalGID: verbs.GIDFrom(from), RemoteGID: verbs.GIDFrom(to), ACKTimeout: 18},
		}
		copy(req.PrivateData[:], mad.PrivateHeader{SourcePort: 50000, Source: from, Destination: to}.Bytes())
		if err := peer.dev.SendMAD(to, mad.Append(nil, uint64(commID), req)); err != nil {
			t.Fatal(err)
		}
		for {
			switch m := (<-answers).(type) {
			case *mad.REP:
				if m.Remote == commID {
					return 0
				}
			case *mad.REJ:
				if m.Remote == commID {
					return m.Reason
				}
			}
		}
	}
	if reason := ask(2); reason != 0 {
		t.Fatalf("the first request was refused: reason %d", reason)
	}
	if reason := ask(3); reason != verbs.RejectStale {
		t.Errorf("the request of the same queue pair: reason %d, want %d", reason, verbs.RejectStale)
	}
	for _, nic := range target.rnics {
		if n := nic.Counters().Received.Of(mad.AttrREQ).Load(); n != 1 {
			t.Errorf("%s got %d requests", nic.Name(), n)
		}
	}
}

// openSome opens RNICs at an address of this host until the test ends.
func openSome(t testing.TB, engines int) *Group {
	t.Helper()
	g, err := openLoopback(Config{Engines: engines})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// listen makes a group accept requests for port 4420.
func listen(t *testing.T, g *Group) {
	t.Helper()
	id, err := g.CreateID(func(ev verbs.CMEvent) {
		if ev.Type != verbs.CMConnectRequest {
			return
		}
		makeQP(t, ev.ID)
		if err := ev.ID.Accept(verbs.ConnParam{}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Listen(netip.AddrPortFrom(netip.Addr{}, 4420), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { id.Destroy() })
}

// makeQP makes the queue pair of an identifier.
func makeQP(t *testing.T, id verbs.CMID) {
	t.Helper()
	pd, err := id.Device().AllocPD()
	if err != nil {
		t.Error(err)
		return
	}
	cq, err := id.Device().CreateCQ(2, nil)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err = id.CreateQP(pd, verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq}); err != nil {
		t.Error(err)
	}
}

// connectInVain asks for a connection to at, and waits for the rejection.
func connectInVain(t *testing.T, g *Group, at netip.AddrPort) {
	t.Helper()
	events := make(chan verbs.CMEvent, 1)
	id, err := g.CreateID(func(ev verbs.CMEvent) { events <- ev })
	if err != nil {
		t.Fatal(err)
	}
	defer id.Destroy()
	step := func(want verbs.CMEventType, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if ev := <-events; ev.Type != want || ev.ID != id {
			t.Fatalf("event %d of %v, want %d of %v: %v", ev.Type, ev.ID, want, id, ev.Err)
		}
	}
	step(verbs.CMAddrResolved, id.ResolveAddr(netip.Addr{}, at, time.Second))
	step(verbs.CMRouteResolved, id.ResolveRoute(time.Second))
	makeQP(t, id)
	step(verbs.CMRejected, id.Connect(verbs.ConnParam{}))
}
