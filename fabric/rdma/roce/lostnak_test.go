package roce

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// isNAK reports whether a packet is a NAK of any kind, including RNR NAKs and those that only our kind sends.
func isNAK(b []byte) bool {
	switch wire.Opcode(b[0]) {
	case wire.SelectiveAck:
		return true
	case wire.RCAcknowledge:
		return !wire.Syndrome(b[wire.BTHSize]).IsACK()
	}
	return false
}

// TestLostNAK loses each packet of a request in turn, and then the NAKs that ask for it again, one or several: it is
// sent again because of silence, or because of the next packet.
func TestLostNAK(t *testing.T) {
	const packets = 5
	for _, foreign := range []bool{false, true} {
		for _, op := range []operation{operations[0], operations[3], operations[4], unready} {
			for _, naks := range []int{1, 3} {
				t.Run(fmt.Sprintf("foreign=%v/%s/naks=%d", foreign, op.name, naks), func(t *testing.T) {
					for victim := range packets {
						synctest.Test(t, func(t *testing.T) {
							p := newPair(t, pairConfig{mtu: verbs.MTU256, psn: 0xfffffe, rnrRetry: 7, foreign: foreign})
							p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
							seen, lost := 0, 0
							p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
								if isNAK(d.Payload) && lost < naks {
									lost++
									return simnet.Action{Drop: true}
								}
								seen++
								return simnet.Action{Drop: seen-1 == victim}
							})
							op.run(p, packets*256)
							p.checkQuiet()
							if lost == 0 && victim < packets-1 {
								t.Errorf("packet %d: no NAK was sent", victim)
							}
						})
					}
				})
			}
		}
	}
}

// TestLostFatalNAK: if the NAK that refuses a request is lost, the responder answers no more, and the requester uses up
// its retries.
func TestLostFatalNAK(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{retryCnt: 2, foreign: foreign})
			p.net.SetFilter(func(d *simnet.Datagram) simnet.Action { return simnet.Action{Drop: isNAK(d.Payload)} })
			p.a.post(
				verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 8), RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey() + 1},
				verbs.SendWR{WRID: 2, Opcode: verbs.WRSend})
			p.a.want(1, verbs.WCRetryExcErr)
			p.a.want(2, verbs.WCWRFlushErr)
			synctest.Wait()
			if !p.b.hasEvent(verbs.EventQPAccess) || p.b.qp.Query().State != verbs.Err {
				t.Errorf("responder: events %v, state %v", p.b.events, p.b.qp.Query().State)
			}
		})
	}
}

// failingConn is a socket that fails when it is told to.
type failingConn struct {
	udp.Conn
	fails atomic.Bool
}

var errSocket = errors.New("the socket failed")

func (c *failingConn) Recv(rx []udp.Received) (int, error) {
	n, err := c.Conn.Recv(rx)
	if c.fails.Load() {
		return 0, errSocket
	}
	return n, err
}

// TestSocketFails: a device whose socket fails ends everything: the oldest request with a fatal error, the others
// flushed.
func TestSocketFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken *failingConn
		p := newPair(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
			broken = &failingConn{Conn: c} // b's, which is made last
			return broken
		}})
		p.net.Cut(addrB, addrA)
		p.b.recv(5, p.b.sge(0, 10)...)
		p.b.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.b.sge(0, 10)}, verbs.SendWR{WRID: 2, Opcode: verbs.WRSend})
		broken.fails.Store(true)
		p.a.post(verbs.SendWR{WRID: 9, Opcode: verbs.WRRDMAWrite}) // has Recv return
		p.b.want(1, verbs.WCFatalErr)
		p.b.want(2, verbs.WCWRFlushErr)
		p.b.want(5, verbs.WCWRFlushErr)
		synctest.Wait()
		if !p.b.hasEvent(verbs.EventQPFatal) {
			t.Errorf("events %v", p.b.events)
		}
	})
	t.Run("while nothing is sent", func(t *testing.T) { // so no timer runs
		synctest.Test(t, func(t *testing.T) {
			var broken *failingConn
			p := newPair(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
				broken = &failingConn{Conn: c}
				return broken
			}})
			p.b.recv(5, p.b.sge(0, 10)...)
			broken.fails.Store(true)
			p.a.post(verbs.SendWR{WRID: 9, Opcode: verbs.WRRDMAWrite})
			p.b.want(5, verbs.WCWRFlushErr)
		})
	})
}
