package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// watchedConn is a socket that calls a function before it sends trains.
type watchedConn struct {
	udp.Conn
	before func(trains []udp.Train)
}

func (c *watchedConn) Send(trains []udp.Train) (int, error) {
	if c.before != nil {
		c.before(trains)
	}
	return c.Conn.Send(trains)
}

// TestLocalInvWaitsForAnswer: a Local Invalidate isn't complete while the answer to a READ through the window has yet to
// be sent: its owner may then use the memory for something else. The key itself opens nothing as soon as the request's
// turn has come, so that the peer can't put off the completion with further READs.
func TestLocalInvWaitsForAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watched *watchedConn
		r := newRaw(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
			watched = &watchedConn{Conn: c}
			return watched
		}})
		s := r.dev
		key := bindWindow(s, 0, 256)
		s.recv(1, s.sge(512, 100)...)
		s.handle = func(wc *verbs.WC) { // in the engine's turn, before it sends anything
			if wc.WRID == 1 {
				s.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
			}
		}
		answers := 0
		watched.before = func(trains []udp.Train) {
			for i := range trains {
				if wire.Opcode(trains[i].Parts[0][0]).Kind() != wire.KindReadResponse {
					continue
				}
				answers++
				var wc [1]verbs.WC
				if s.cq.Poll(wc[:]) > 0 {
					t.Errorf("the answer is being sent after %+v", wc[0])
				}
			}
		}
		read := r.read(100, 0, 256)
		read.RETH.RKey = key
		again := r.read(102, 0, 256)
		again.RETH.RKey = key
		r.send(read, r.packet(wire.RCSendOnly, 101, 10))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100 +256", "ACK 101 msn 2")
		s.want(1, verbs.WCSuccess)
		s.want(2, verbs.WCSuccess)
		if answers != 1 {
			t.Errorf("%d answers were seen", answers)
		}
		r.send(again)
		r.expect("NAK remote access error 102 msn 2")
	})
}

// TestWindowEndsAfterAnswer: nor does a window end in another way, on request of its owner or of the peer, while the
// answer to a READ through it is being sent.
func TestWindowEndsAfterAnswer(t *testing.T) {
	const while = 20 * time.Millisecond // in which it would end
	t.Run("freed", func(t *testing.T) {
		_, w, release := answeringWindow(t)
		freed := make(chan error, 1)
		go func() { freed <- w.Dealloc() }()
		time.Sleep(while)
		if len(freed) > 0 {
			t.Error("it is freed before the answer has left")
		}
		release()
		check(t, <-freed)
	})
	t.Run("invalidated by the peer", func(t *testing.T) {
		r, w, release := answeringWindow(t)
		r.dev.recv(1, r.dev.sge(512, 100)...)
		send := r.packet(wire.RCSendOnlyWithInv, 101, 10)
		send.IETH.RKey = w.RKey()
		r.send(send)
		time.Sleep(while)
		r.dev.mu.Lock()
		if len(r.dev.got) > 0 {
			t.Errorf("done before the answer has left: %+v", r.dev.got)
		}
		r.dev.mu.Unlock()
		release()
		r.dev.want(1, verbs.WCSuccess)
	})
}

// TestDeregWaitsForAnswer: nor is a memory region deregistered while an answer from it is being sent.
func TestDeregWaitsForAnswer(t *testing.T) {
	var mr verbs.MR
	_, release := answering(t, func(s *side) (addr uint64, key uint32) {
		var err error
		mr, err = s.pd.RegMR(make([]byte, 256), verbs.AccessRemoteRead)
		check(t, err)
		return mr.Addr(), mr.RKey()
	})
	ended := make(chan error, 1)
	go func() { ended <- mr.Dereg() }()
	time.Sleep(20 * time.Millisecond) // in which it would end
	if len(ended) > 0 {
		t.Error("it is deregistered before the answer has left")
	}
	release()
	check(t, <-ended)
}

// TestRepetitionLeavesFirst: a request whose late ACK arrives while it is being sent again isn't complete before that
// has left.
func TestRepetitionLeavesFirst(t *testing.T) {
	r, release := sending(t, pairConfig{ours: true, timeout: patient}, PacketSeqErr, func(r *rawPeer) *wire.Packet {
		r.post(1, verbs.WRRDMAWrite, 2*rawMTU)
		for r.dev.dev.Counters()[SentPackets] < 2 {
			time.Sleep(time.Millisecond)
		}
		return r.arrived(100, 1) // asks for the first packet again
	})
	r.send(r.ack(101))
	time.Sleep(20 * time.Millisecond) // in which it would be complete
	r.dev.mu.Lock()
	if len(r.dev.got) > 0 {
		t.Errorf("complete before its packet has left: %+v", r.dev.got)
	}
	r.dev.mu.Unlock()
	release()
	r.dev.want(1, verbs.WCSuccess)
}

// answeringWindow is answering for a READ through w.
func answeringWindow(t *testing.T) (r *rawPeer, w verbs.MW, release func()) {
	t.Helper()
	r, release = answering(t, func(s *side) (addr uint64, key uint32) {
		var err error
		w, err = s.pd.AllocMW()
		check(t, err)
		s.post(verbs.SendWR{WRID: 9, Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{
			MR: s.mr, Addr: s.mr.Addr(), Length: 256, Access: verbs.AccessRemoteRead,
		}})
		s.want(9, verbs.WCSuccess)
		return s.mr.Addr(), w.RKey()
	})
	return r, w, release
}

// answering makes a device whose answer to a READ from the memory that open offers is being sent until release is
// called.
func answering(t *testing.T, open func(s *side) (addr uint64, key uint32)) (r *rawPeer, release func()) {
	t.Helper()
	return sending(t, pairConfig{}, RxReadRequests, func(r *rawPeer) *wire.Packet {
		read := r.read(100, 0, 256)
		read.RETH.VA, read.RETH.RKey = open(r.dev)
		return read
	})
}

// sending makes a device that until release is called is sending what a packet of the peer, which counts as counted,
// makes it send. Its engine goes on.
func sending(t *testing.T, c pairConfig, counted Counter, packet func(r *rawPeer) *wire.Packet) (r *rawPeer, release func()) {
	t.Helper()
	var held *heldConn
	c.wrap = func(c udp.Conn) udp.Conn {
		held = &heldConn{c, make(chan (<-chan struct{}), 1)}
		return held
	}
	r = newRaw(t, c)
	s, p := r.dev, packet(r)
	isHeld := func() {
		for len(held.hold) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	first, second, sent := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	held.hold <- first
	go func() { sent <- s.dev.SendMAD(addrA, make([]byte, madSize)) }() // this goroutine sends what follows too
	isHeld()
	r.send(p)
	for s.dev.Counters()[counted] == 0 {
		time.Sleep(time.Millisecond)
	}
	held.hold <- second
	close(first)
	isHeld()
	return r, func() {
		close(second)
		check(t, <-sent)
	}
}
