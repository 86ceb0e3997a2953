package roce

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// silently makes packets that ask for no acknowledgement.
func silently(ps ...*wire.Packet) []*wire.Packet {
	for _, p := range ps {
		p.AckReq = false
	}
	return ps
}

// TestGapClosedInTime: what arrives before its NAK could be sent isn't asked for, even if the packet that closes the
// gap asks for no answer: a peer would repeat everything outstanding. What is still missing is asked for.
func TestGapClosedInTime(t *testing.T) {
	write := func(r *rawPeer, psn int) *wire.Packet { return r.write(wire.RCWriteOnly, psn, 4, 4) }
	all := func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 101), write(r, 100))...)
		r.expect("ACK 101 msn 2")
		r.send(silently(write(r, 102))...)
		r.expect()
	}
	rawTest("all, another kind", t, all)
	selectiveTest("all, our kind", t, all)
	rawTest("some, another kind", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 102), write(r, 100))...)
		r.expect("NAK PSN sequence error 101 msn 1")
		r.send(silently(write(r, 103))...)
		r.expect()
		r.send(write(r, 101))
		r.expect("ACK 101 msn 2")
	})
	selectiveTest("some, our kind", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 102), write(r, 100))...)
		r.expect("SELECTIVE_ACK 101 +1")
	})
	rawTest("a READ that wasn't held", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 103), r.read(101, 0, 4), write(r, 100))...)
		r.expect("NAK PSN sequence error 101 msn 1")
		r.send(r.read(101, 0, 4), write(r, 102))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 101 +4", "ACK 102 msn 3")
	})
	rawTest("only a READ that wasn't held", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(r.read(101, 0, 4), write(r, 100))...)
		r.expect("NAK PSN sequence error 101 msn 1")
	})
	rawTest("before what was held for another gap", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 101), write(r, 105))...)
		r.expect("NAK PSN sequence error 100 msn 0")
		r.send(write(r, 100))
		r.expect("ACK 100 msn 1")
		r.send(silently(write(r, 103), write(r, 102))...)
		r.expect("NAK PSN sequence error 104 msn 4")
	})
	rawTest("by a READ", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 100), write(r, 102), r.read(101, 0, 4))...)
		r.expect("ACK 100 msn 1", "RC_RDMA_READ_RESPONSE_ONLY 101 +4")
	})
	rawTest("by a SEND that finds no receive", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 101), r.packet(wire.RCSendOnly, 100, 4))...)
		r.expect("RNR NAK (640µs) 100 msn 0")
	})
	rawTest("by what is refused", t, func(t *testing.T, r *rawPeer) {
		r.send(silently(write(r, 101), r.packet(wire.RCSendMiddle, 100, 256))...)
		r.expect("NAK invalid request 100 msn 0")
	})
}
