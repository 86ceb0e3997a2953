package roce

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestEvenSends: the packets of a SEND to a peer of our kind have one size, except the last, which may be shorter; to
// any other peer, each but the last carries the full path MTU (IBTA 9.7.5.2).
func TestEvenSends(t *testing.T) {
	const message = 64 + 4096 // a command and its data
	for _, c := range []struct {
		config pairConfig
		length int
		want   []int
	}{
		{pairConfig{ours: true}, rawMTU + 1, []int{132, 125}},
		{pairConfig{ours: true}, 4 * rawMTU, []int{256, 256, 256, 256}},
		{pairConfig{ours: true}, 1040, []int{208, 208, 208, 208, 208}},
		{pairConfig{ours: true, options: OptionLongSend}, 1040, []int{260, 260, 260, 260}},
		{pairConfig{}, rawMTU + 1, []int{256, 1}},
		{pairConfig{}, 1040, []int{256, 256, 256, 256, 16}},
	} {
		t.Run(fmt.Sprintf("%d bytes, ours %v, %#x", c.length, c.config.ours, c.config.options), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				if got := r.dev.qp.Query().EvenSends; got != c.config.ours {
					t.Errorf("EvenSends is %v", got)
				}
				r.dev.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: r.dev.sge(0, c.length)})
				var want []string
				for i, n := range c.want {
					op := "RC_SEND_MIDDLE"
					switch i {
					case 0:
						op = "RC_SEND_FIRST"
					case len(c.want) - 1:
						op = "RC_SEND_LAST"
					}
					want = append(want, fmt.Sprintf("%s %d +%d", op, rawPSN+i, n))
				}
				r.expect(want...)
			})
		})
	}
	for mtu := verbs.MTU256; mtu <= verbs.MTU2048; mtu++ { // at any path MTU, a command with a block of data doesn't end a train
		q := &qp{selective: true, sendMTU: sendMTU(mtu, OptionLongSend)}
		w := &sendWQE{op: verbs.WRSend, length: message}
		if q.cut(w); w.packets*w.mtu != message || w.mtu > q.sendMTU {
			t.Errorf("path MTU %d: %d bytes are cut into %d packets of %d", mtu.Bytes(), message, w.packets, w.mtu)
		}
	}
}

// TestEvenSendIsTaken: from a peer of our kind a SEND's packets may have any one size that there is room for, and the
// last may be shorter. Everything else is an invalid request, and so are short packets from any other peer (IBTA
// 9.7.4.1.6).
func TestEvenSendIsTaken(t *testing.T) {
	ours, strangers := pairConfig{ours: true, options: OptionLongSend}, pairConfig{}
	for _, c := range []struct {
		name   string
		config pairConfig
		sizes  []int
		taken  bool
	}{
		{"one size", ours, []int{200, 200, 200}, true},
		{"a shorter last one", ours, []int{200, 200, 1}, true},
		{"as much as there can be", ours, []int{rawLong, rawLong, rawLong}, true},
		{"a longer last one", ours, []int{200, 200, 204}, false},
		{"a shorter one in the midst", ours, []int{200, 196, 196}, false},
		{"a longer one in the midst", ours, []int{200, 204, 200}, false},
		{"an empty last one", ours, []int{200, 200, 0}, false},
		{"empty ones", ours, []int{0, 0, 0}, false},
		{"more than there can be", ours, []int{rawLong + 4, rawLong + 4, 4}, false},
		{"a stranger's", strangers, []int{rawMTU, rawMTU, 1}, true},
		{"a stranger's of another size", strangers, []int{200, 200, 200}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRaw(t, c.config)
				r.dev.recv(1, r.dev.sge(1000, 4096)...)
				var packets []*wire.Packet
				for i, op := range []wire.Opcode{wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast} {
					packets = append(packets, r.packet(op, rawPSN+i, c.sizes[i]))
				}
				r.send(packets...)
				if !c.taken {
					r.answers()
					r.dev.want(1, verbs.WCWRFlushErr)
					return
				}
				r.expect("ACK 102 msn 1")
				wc := r.dev.want(1, verbs.WCSuccess)
				if want := c.sizes[0] + c.sizes[1] + c.sizes[2]; int(wc.ByteLen) != want {
					t.Errorf("%d bytes came, want %d", wc.ByteLen, want)
				}
				at := 1000
				for _, p := range packets {
					if got := r.dev.buf[at:][:len(p.Payload)]; string(got) != string(p.Payload) {
						t.Errorf("other data at %d", at)
					}
					at += len(p.Payload)
				}
			})
		})
	}
}

// TestEvenTrains: several SENDs of several packets, and the answers to several READs, are one train each.
func TestEvenTrains(t *testing.T) {
	const requests = 8
	for _, c := range []struct {
		name   string
		op     verbs.WROpcode
		length int
	}{
		{"SEND", verbs.WRSend, 1040},
		{"READ", verbs.WRRDMARead, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{mtu: verbs.MTU256, options: OptionLongSend, ours: true, rnrRetry: 7,
					endpoint: simnet.Config{MTU: 1500, Coalesce: true}})
				p.net.SetDefault(simnet.Link{Latency: rawLatency}) // otherwise requests might arrive one by one
				sender := p.a.dev
				if c.op == verbs.WRRDMARead {
					sender = p.b.dev
				}
				var wrs []verbs.SendWR
				for i := range requests {
					p.b.recv(uint64(i), p.b.sge(i*c.length, c.length)...)
					wrs = append(wrs, verbs.SendWR{WRID: uint64(i), Opcode: c.op, Flags: verbs.SendSignaled, SGList: p.a.sge(i*c.length, c.length),
						RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
				}
				before := sender.Counters()
				p.a.post(wrs...)
				for _, wc := range p.a.wait(requests) {
					if wc.Status != verbs.WCSuccess {
						t.Errorf("completion of %d: %v", wc.WRID, wc.Status)
					}
				}
				synctest.Wait() // trains are counted once the socket has them, perhaps after their effects
				after := sender.Counters()
				packets, trains := after[SentPackets]-before[SentPackets], after[SentTrains]-before[SentTrains]
				if packets < 4*requests || trains > 2 { // and an ACK
					t.Errorf("%d packets left in %d trains", packets, trains)
				}
			})
		})
	}
}
