package roce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestWhoAsksForAck: the last packet of a request asks for an ACK if somebody waits for its completion, or if no later
// request is posted that will ask for one soon.
func TestWhoAsksForAck(t *testing.T) {
	type request = func(r *rawPeer) verbs.SendWR
	write := func(n int, flags verbs.SendFlags) request {
		return func(r *rawPeer) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: flags, SGList: r.dev.sge(0, n), RemoteAddr: 1 << 40, RKey: 7}
		}
	}
	of := func(op verbs.WROpcode, flags verbs.SendFlags) request {
		return func(r *rawPeer) verbs.SendWR {
			return verbs.SendWR{Opcode: op, Flags: flags, SGList: r.dev.sge(0, 8), RemoteAddr: 1 << 40, RKey: 7}
		}
	}
	local := func(r *rawPeer) verbs.SendWR {
		w, err := r.dev.pd.AllocMW()
		check(t, err)
		return verbs.SendWR{Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{
			MR: r.dev.mr, Addr: r.dev.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead,
		}}
	}
	const signaled = verbs.SendSignaled
	unsignaled := pairConfig{unsignaled: true}
	along := pairConfig{unsignaled: true, ours: true, options: OptionWriteSend}
	for _, c := range []struct {
		name   string
		config pairConfig
		posts  []request
		want   string // of each packet, whether it asks
	}{
		{"signaled", unsignaled, []request{write(8, signaled), write(8, signaled), write(8, 0)}, "AAA"},
		{"all signaled", pairConfig{}, []request{write(8, 0), write(8, 0), write(8, 0)}, "AAA"},
		{"unsignaled before a signaled one", unsignaled, []request{write(8, 0), write(8, 0), write(8, signaled)}, "--A"},
		{"the last one posted", unsignaled, []request{write(8, 0), write(8, 0), of(verbs.WRSend, 0)}, "--A"},
		{"two packets", unsignaled, []request{write(2*rawMTU, signaled), write(2*rawMTU, 0), of(verbs.WRSend, 0)}, "-A--A"},
		{"before a READ", unsignaled, []request{write(8, 0), of(verbs.WRRDMARead, 0), write(8, 0)}, "A-A"},
		{"before an atomic", unsignaled, []request{write(8, 0), of(verbs.WRAtomicFetchAndAdd, 0), write(8, 0)}, "A-A"},
		{"before a local operation", unsignaled, []request{write(8, 0), local, write(8, 0)}, "AA"},
		{"before a fence", unsignaled, []request{write(8, 0), of(verbs.WRSend, verbs.SendFence), write(8, 0)}, "A-A"},
		{"with an unsignaled SEND along", along,
			[]request{write(8, 0), of(verbs.WRSend, 0), write(8, 0)}, "-A"},
		{"with a signaled SEND along", along,
			[]request{write(8, 0), of(verbs.WRSend, signaled), write(8, 0)}, "AA"},
		{"signaled, with an unsignaled SEND along", along,
			[]request{write(8, signaled), of(verbs.WRSend, 0), write(8, 0)}, "AA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				var wrs []verbs.SendWR
				for _, post := range c.posts {
					wrs = append(wrs, post(r))
				}
				r.dev.post(wrs...)
				r.answers()
				if got := r.asks(); got != c.want {
					t.Errorf("%s ask for an ACK, want %s", got, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // what is sent again always asks
		r := newRaw(t, pairConfig{unsignaled: true})
		r.dev.post(write(8, 0)(r), write(8, 0)(r), write(8, signaled)(r))
		r.answers()
		r.send(r.nak(wire.NAKPSNSequenceError, 100))
		r.expect("RC_RDMA_WRITE_ONLY 100 +8", "RC_RDMA_WRITE_ONLY 101 +8", "RC_RDMA_WRITE_ONLY 102 +8")
		if got := r.asks(); got != "AAA" {
			t.Errorf("%s of what is sent again ask for an ACK", got)
		}
	})
}

// asks returns A for each packet of the last answers that asks for an ACK, and - for each other.
func (r *rawPeer) asks() (text string) {
	for _, p := range r.got {
		if p.AckReq {
			text += "A"
		} else {
			text += "-"
		}
	}
	return text
}

// TestAsksWithinWindow: in a long request at least each quarter of the window asks for an ACK, so that the window never
// stays full until the end.
func TestAsksWithinWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{unsignaled: true})
		const packets = 100 // half a window
		r.dev.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, packets*rawMTU), RemoteAddr: 1 << 40, RKey: 7})
		r.answers()
		silent := 0
		for i, asks := range r.asks() {
			silent += rawMTU + packetCost
			if asks == 'A' {
				if i < packets-1 && silent < initialWindow/8 {
					t.Errorf("the %dth packet asks, %d bytes after another", i, silent)
				}
				silent = 0
			}
			if silent > initialWindow/4 {
				t.Fatalf("after %d packets the last %d bytes ask for no ACK", i, silent)
			}
		}
		if len(r.got) != packets {
			t.Fatalf("%d packets, want %d", len(r.got), packets)
		}
	})
}

// TestSolicited: the last packet of a SEND has the SE bit, if the consumer wants that, and no packet of anything else
// (IBTA 9.2). For a peer of our kind all packets of a WRITE but the last have it.
func TestSolicited(t *testing.T) {
	for _, c := range []struct {
		name   string
		config pairConfig
		op     verbs.WROpcode
		flags  verbs.SendFlags
		n      int
		want   string
	}{
		{"SEND", pairConfig{}, verbs.WRSend, verbs.SendSolicited, 3 * rawMTU, "[false false true]"},
		{"SEND of one packet", pairConfig{}, verbs.WRSendWithImm, verbs.SendSolicited, 1, "[true]"},
		{"SEND, not solicited", pairConfig{}, verbs.WRSend, 0, 3 * rawMTU, "[false false false]"},
		{"WRITE with immediate", pairConfig{}, verbs.WRRDMAWriteWithImm, verbs.SendSolicited, 3 * rawMTU, "[false false true]"},
		{"WRITE", pairConfig{}, verbs.WRRDMAWrite, 0, 3 * rawMTU, "[false false false]"},
		{"WRITE to a peer of our kind", pairConfig{ours: true}, verbs.WRRDMAWrite, 0, 3 * rawMTU, "[true true false]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				r.dev.post(verbs.SendWR{Opcode: c.op, Flags: c.flags, SGList: r.dev.sge(0, c.n), RemoteAddr: 1 << 40, RKey: 7})
				r.answers()
				if got := r.solicited(); got != c.want {
					t.Errorf("SE bits %s, want %s", got, c.want)
				}
			})
		})
	}
	for _, solicited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{ours: true, options: OptionWriteSend})
			wrs := r.rawWriteSend(8, 16)
			if solicited {
				wrs[1].Flags |= verbs.SendSolicited
			}
			r.dev.post(wrs...)
			r.expect("RDMA_WRITE_ONLY_SEND_WITH_INV 100 +24")
			if got, want := r.solicited(), fmt.Sprint([]bool{solicited}); got != want {
				t.Errorf("a SEND that goes along has SE bits %s, want %s", got, want)
			}
		})
	}
}

func (r *rawPeer) solicited() string {
	var bits []bool
	for _, p := range r.got {
		bits = append(bits, p.Solicited)
	}
	return fmt.Sprint(bits)
}

// TestOutstandingFitScoreboard: however large the window, no more packets are outstanding than a scoreboard has places
// for, and all leave in the end.
func TestOutstandingFitScoreboard(t *testing.T) {
	for _, ours := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const packets = 2 * scoreSize
			r := newRaw(t, pairConfig{ours: ours, memory: packets * rawMTU, endpoint: simnet.Config{RecvBuffer: 64 << 20}})
			d := r.dev.dev
			d.mu.Lock()
			d.paths[addrA].window = newWindow(1<<30, minWindow, 1<<30)
			d.mu.Unlock()
			r.dev.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: r.dev.sge(0, packets*rawMTU), RemoteAddr: 1 << 40, RKey: 7})
			for sent, out := 0, 0; sent < packets; {
				time.Sleep(time.Millisecond)
				n := len(r.answers())
				if sent, out = sent+n, out+n; out > scoreSize {
					t.Fatalf("%d packets are outstanding, and a scoreboard has %d places", out, scoreSize)
				}
				if n == 0 && sent < packets {
					if out < scoreSize/2 {
						t.Fatalf("only %d packets may be outstanding", out)
					}
					r.send(r.ack(100 + sent - 1))
					out = 0
				}
			}
			r.send(r.ack(100 + packets - 1))
			r.dev.want(1, verbs.WCSuccess)
		})
	}
}
