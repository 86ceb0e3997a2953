package roce

import (
	"iter"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// FuzzPackets gives a connected queue pair any packets that a peer may make: nothing panics, nothing is written except
// where it may be, and the state is consistent afterwards.
//
// The input is a list of packets: a length byte, a control byte and the packet itself. Its destination QP is filled in,
// and, if the control byte says so, also a PSN near the expected one, and the key and address of registered memory.
func FuzzPackets(tf *testing.F) {
	f := fuzzing.New(tf)
	seed := func(ops ...wire.Opcode) {
		var b []byte
		for i, op := range ops {
			p := wire.Packet{BTH: wire.BTH{Opcode: op, PKey: wire.DefaultPKey, AckReq: true}}
			p.Payload = make([]byte, 4*i)
			switch op.Kind() {
			case wire.KindReadRequest, wire.KindAtomic, wire.KindAcknowledge, wire.KindAtomicAcknowledge:
				p.Payload = nil
			}
			p.RETH.Length = uint32(len(p.Payload))
			packet := p.Append(nil, wire.Flow{}, 0)
			b = append(b, byte(len(packet)), 7)
			b = append(b, packet...)
		}
		f.Add(uint8(0), b)
		f.Add(ofOurs, b)
	}
	seed(wire.RCSendOnly, wire.RCWriteOnly, wire.RCReadRequest, wire.RCFetchAdd, wire.RCAcknowledge)
	seed(wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCReadResponseFirst, wire.RCReadResponseLast)
	seed(wire.RCWriteFirst, wire.RCWriteLastWithImm, wire.RCAtomicAcknowledge, wire.CNP, wire.UDSendOnly)
	seed(wire.WriteSend, wire.WriteSendWithInv, wire.SelectiveAck, wire.RCAcknowledge)
	seed(wire.SendOnlyAck, wire.SendOnlyWithInvAck, wire.WriteSendAck, wire.WriteSendWithInvAck, wire.ReadRequestAck)
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		synctest.Test(t, func(t *testing.T) { // time passes only as the inputs say
			w := newFuzzWorld(t, how&ofOurs != 0)
			for data := range inputs {
				w.feed(data)
			}
			w.close()
		})
	})
}

// ofOurs, as how of an input, makes the peer of the packets one of our kind.
const ofOurs uint8 = 1

// fuzzWorld is a device with two queue pairs: one that is fed packets, and one whose peer is honest. Its network leads
// nowhere.
type fuzzWorld struct {
	t       *testing.T
	conn    *simnet.Endpoint
	d       *Device
	now     time.Duration
	fed, by *fuzzedQP
	packet  []byte
	honest  wire.Packet
}

// nowhere is an endpoint that looks at what it is to send as a socket does, and drops it: carrying packets that reach
// nobody took a third of the time.
type nowhere struct {
	*simnet.Endpoint
	t *testing.T
}

func (c nowhere) Send(trains []udp.Train) (int, error) {
	for i := range trains {
		t, total := &trains[i], 0
		for _, p := range t.Parts {
			total += len(p)
		}
		switch {
		case total != t.Bytes || total == 0 || t.SegmentSize <= 0 || t.SegmentSize > c.MTU():
			c.t.Fatalf("a train of %d bytes, segments of %d; its parts hold %d", t.Bytes, t.SegmentSize, total)
		case total > udp.MaxTrainBytes || len(t.Parts) > udp.MaxTrainParts || t.Datagrams() > udp.MaxTrainSegments:
			c.t.Fatalf("a train of %d bytes in %d parts and %d datagrams", total, len(t.Parts), t.Datagrams())
		case !t.Dst.IsValid() || !t.Dst.Addr().Unmap().Is4():
			c.t.Fatalf("a train for %v", t.Dst)
		}
	}
	return len(trains), nil
}

func newFuzzWorld(t *testing.T, ours bool) *fuzzWorld {
	t.Helper()
	conn, err := simnet.New(1).Listen(netip.AddrPortFrom(addrB, wire.Port), simnet.Config{MTU: 9000})
	check(t, err)
	d, err := newDevice(nowhere{conn, t}, Config{})
	check(t, err)
	w := &fuzzWorld{t: t, conn: conn, d: d, now: 1, fed: newFuzzedQP(t, d, addrA, ours), by: newFuzzedQP(t, d, addrB.Next().Next(), false)}
	w.fed.post()
	w.by.postRecv()
	w.honest = wire.Packet{
		BTH: wire.BTH{
			Opcode: wire.RCSendOnly, PKey: wire.DefaultPKey, AckReq: true, DestQP: wire.QPN(w.by.q.num), PSN: wire.MakePSN(fuzzPSN),
		},
		Payload: make([]byte, 16),
	}
	return w
}

// feed, and what it calls, does without t.Helper, which costs as much as everything else. It feeds packets to one queue
// pair, and then one to the other.
func (w *fuzzWorld) feed(data []byte) {
	d, q := w.d, w.fed
	for len(data) >= 2 && len(data) >= 2+int(data[0]) {
		control := data[1]
		w.packet = append(w.packet[:0], data[2:2+int(data[0])]...)
		data = data[2+int(data[0]):]
		fixPacket(w.packet, control, q.q, q.m)
		d.mu.Lock()
		d.take(w.packet, addrA, control&0x80 != 0, w.now)
		if control&0x40 == 0 {
			d.transmit(math.MaxInt)
		}
		w.now += time.Duration(control&0x30) * time.Millisecond
		q.q.onTimer(w.now)
		checkBooks(w.t, d, q.q, w.by.q)
		d.mu.Unlock()
	}
	clear(w.packet) // received bytes belong to the device while take runs
	if q.check(); q.q.attr.State == verbs.RTS {
		q.post()
	} else {
		q.again()
	}
	w.feedHonest()
}

// feedHonest makes the honest peer send a message, which arrives.
func (w *fuzzWorld) feedHonest() {
	w.honest.Payload[0]++
	w.packet = w.honest.Append(w.packet[:0], wire.Flow{}, 0)
	w.d.mu.Lock()
	w.d.take(w.packet, w.by.peer, false, w.now)
	w.d.transmit(math.MaxInt)
	w.d.mu.Unlock()
	w.honest.PSN = w.honest.PSN.Next()
	if b := w.by; b.check() != 1 || b.buf[fuzzGuard] != w.honest.Payload[0] {
		w.t.Fatal("a message of the honest peer didn't arrive")
	}
	w.by.postRecv()
}

func (w *fuzzWorld) close() {
	w.t.Helper()
	w.fed.close()
	w.by.close()
	w.d.mu.Lock()
	if n := len(w.d.qps.all); n != 0 || w.d.readBytes != 0 {
		w.t.Errorf("%d queue pairs and %d bytes of READs left", n, w.d.readBytes)
	}
	w.d.mu.Unlock()
	check(w.t, w.conn.Close())
	w.d.timer.Stop()
}

const (
	fuzzGuard = 8        // bytes of memory at both ends that are not registered
	fuzzPSN   = 0xfffffe // so that the numbers wrap soon
	fuzzQueue = 32       // the bit of a WRID that says that it is a receive's
)

// fuzzedQP is a queue pair and its memory, which is registered except for its first and last bytes.
type fuzzedQP struct {
	t      *testing.T
	peer   netip.Addr
	ours   bool // the peer is of our kind, and has agreed on all options
	p      verbs.PD
	c      verbs.CQ
	m      verbs.MR
	buf    []byte
	q      *qp
	posted [2]uint64 // how many sends and receives; their WRIDs count from 1
	ended  [2]uint64 // how many have completed
}

func newFuzzedQP(t *testing.T, d *Device, peer netip.Addr, ours bool) *fuzzedQP {
	t.Helper()
	f := &fuzzedQP{t: t, peer: peer, ours: ours, buf: make([]byte, 4096)}
	var err error
	f.p, err = d.AllocPD()
	check(t, err)
	f.c, err = d.CreateCQ(64, nil)
	check(t, err)
	f.m, err = f.p.RegMR(f.buf[fuzzGuard:len(f.buf)-fuzzGuard], allAccess)
	check(t, err)
	f.open()
	return f
}

// open makes the queue pair.
func (f *fuzzedQP) open() {
	v, err := f.p.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: f.c, RecvCQ: f.c, MaxSendWR: 16, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, SQSigAll: true,
	})
	check(f.t, err)
	check(f.t, v.Modify(verbs.QPAttr{State: verbs.Init, Access: allAccess}))
	rtr := verbs.QPAttr{State: verbs.RTR, Remote: f.peer, DestQPN: 7, PathMTU: verbs.MTU256, RQPSN: fuzzPSN, MaxDestRdAtomic: 2}
	if f.ours {
		rtr.PeerVendorID, rtr.VendorOptions = vendorID, OptionLongSend|OptionWriteSend|OptionJumboData|OptionAckAlong
	}
	check(f.t, v.Modify(rtr))
	check(f.t, v.Modify(verbs.QPAttr{State: verbs.RTS, SQPSN: fuzzPSN, Timeout: 10, RetryCnt: 3, RNRRetry: 3, MaxRdAtomic: 2}))
	f.q, f.posted, f.ended = v.(*qp), [2]uint64{}, [2]uint64{}
}

// post posts work where there is little: receives, a READ, an atomic, a WRITE and a SEND, and the last two together.
func (f *fuzzedQP) post() {
	for f.posted[1]-f.ended[1] < 4 {
		f.postRecv()
	}
	if f.posted[0]-f.ended[0] > 4 {
		return
	}
	sge, word := f.sge(600), f.sge(8)
	for _, wrs := range [][]verbs.SendWR{
		{{Opcode: verbs.WRSend, SGList: sge}},
		{{Opcode: verbs.WRRDMARead, SGList: sge}},
		{{Opcode: verbs.WRAtomicFetchAndAdd, SGList: word}},
		{{Opcode: verbs.WRRDMAWrite, SGList: sge}},
		{{Opcode: verbs.WRRDMAWrite, SGList: word}, {Opcode: verbs.WRSend, SGList: word}},
	} {
		for i := range wrs {
			f.posted[0]++
			wrs[i].WRID = f.posted[0]
		}
		if _, err := f.q.PostSend(wrs); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fuzzedQP) postRecv() {
	f.posted[1]++
	if _, err := f.q.PostRecv([]verbs.RecvWR{{WRID: 1<<fuzzQueue | f.posted[1], SGList: f.sge(600)}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fuzzedQP) sge(n uint32) []verbs.SGE {
	return []verbs.SGE{{Addr: f.m.Addr(), Length: n, LKey: f.m.LKey()}}
}

// check checks that nothing was written outside the registered range, and that work completed in order and once. It
// returns how many receives did.
func (f *fuzzedQP) check() (received int) {
	var wcs [32]verbs.WC
	for _, wc := range wcs[:f.c.Poll(wcs[:])] {
		queue := wc.WRID >> fuzzQueue
		if f.ended[queue]++; wc.WRID&^(1<<fuzzQueue) != f.ended[queue] || f.ended[queue] > f.posted[queue] || wc.QPNum != f.q.num {
			f.t.Fatalf("%+v after %d of %d", wc, f.ended[queue]-1, f.posted[queue])
		}
		received += int(queue)
	}
	for i := range fuzzGuard {
		if f.buf[i] != 0 || f.buf[len(f.buf)-1-i] != 0 {
			f.t.Fatal("written outside of the registered range")
		}
	}
	return received
}

// again replaces the queue pair with a new one.
func (f *fuzzedQP) again() {
	check(f.t, f.q.Destroy())
	f.open()
	f.post()
}

func (f *fuzzedQP) close() {
	f.t.Helper()
	check(f.t, f.q.Destroy())
	check(f.t, f.c.Destroy())
	check(f.t, f.m.Dereg())
	check(f.t, f.p.Dealloc())
}

// fixPacket makes random bytes meaningful if control asks for it.
func fixPacket(b []byte, control byte, q *qp, m verbs.MR) {
	if len(b) < wire.BTHSize {
		return
	}
	var h wire.BTH
	_ = wire.ParseBTH(&h, b)
	h.DestQP = wire.QPN(q.num)
	if control&1 != 0 {
		base := q.resp.expected
		if h.Opcode.IsResponse() {
			base = q.req.una
		}
		h.PSN = base.Add(int(int8(b[11])) / 16)
	}
	if control&2 != 0 {
		h.PKey = wire.DefaultPKey
	}
	h.Append(b[:0])
	if control&4 != 0 && h.Opcode.Headers()&wire.HasRETH != 0 && len(b) >= wire.BTHSize+wire.RETHSize {
		var r wire.RETH
		_ = wire.ParseRETH(&r, b[wire.BTHSize:])
		r.VA, r.RKey = m.Addr()+r.VA%4096, m.RKey()
		r.Append(b[wire.BTHSize:wire.BTHSize])
	}
}

// checkBooks checks invariants that hold between any two packets. The queue pairs are all that d has.
func checkBooks(t *testing.T, d *Device, qs ...*qp) {
	reads := 0
	for _, q := range qs {
		checkQueues(t, q)
		reads += q.req.readBytes
	}
	if d.readBytes != reads {
		t.Fatalf("device has %d bytes of READs, requesters %d", d.readBytes, reads)
	}
}

func checkQueues(t *testing.T, q *qp) {
	r := &q.req
	switch {
	case q.path.window.inflight != r.inflight || r.inflight < 0:
		t.Fatalf("window has %d bytes, requester %d", q.path.window.inflight, r.inflight)
	case q.path.reads.inflight != r.readBytes || r.readBytes < 0:
		t.Fatalf("READ window has %d bytes, requester %d", q.path.reads.inflight, r.readBytes)
	case r.next.Before(r.una) || r.max.Before(r.next):
		t.Fatalf("PSNs una %d, next %d, max %d", r.una, r.next, r.max)
	case r.cur-r.head > r.tail-r.head:
		t.Fatalf("requests head %d, cur %d, tail %d", r.head, r.cur, r.tail)
	case q.resp.queue.n > len(q.resp.queue.ring):
		t.Fatalf("%d responses", q.resp.queue.n)
	case q.resp.tail-q.resp.head > q.rq.limit:
		t.Fatalf("receives %d to %d", q.resp.head, q.resp.tail)
	}
}
