package roce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// FuzzPackets gives a connected queue pair whatever packets a peer may make: nothing panics,
// nothing is written but where it may be, and the books are in order afterwards.
//
// The input is a list of packets: a length byte, a control byte and the packet itself, whose
// destination QP is filled in, and where the control byte says so also a PSN that is near what
// is expected, and the key and address of registered memory.
func FuzzPackets(f *testing.F) {
	seed := func(ops ...wire.Opcode) {
		var b []byte
		for i, op := range ops {
			p := wire.Packet{BTH: wire.BTH{Opcode: op, PKey: wire.DefaultPKey, AckReq: true}}
			p.Payload = make([]byte, 4*i)
			if !op.HasPayload() {
				p.Payload = nil
			}
			p.RETH.Length = uint32(len(p.Payload))
			packet := p.Append(nil, wire.Flow{}, 0)
			b = append(b, byte(len(packet)), 7)
			b = append(b, packet...)
		}
		f.Add(b)
	}
	seed(wire.RCSendOnly, wire.RCWriteOnly, wire.RCReadRequest, wire.RCFetchAdd, wire.RCAcknowledge)
	seed(wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCReadResponseFirst, wire.RCReadResponseLast)
	seed(wire.RCWriteFirst, wire.RCWriteLastWithImm, wire.RCAtomicAcknowledge, wire.CNP, wire.UDSendOnly)
	f.Fuzz(func(t *testing.T, data []byte) {
		net := simnet.New(1)
		conn, err := net.Listen(netip.AddrPortFrom(addrB, wire.Port), simnet.Config{MTU: 9000})
		check(t, err)
		d, err := newDevice(conn, Config{})
		check(t, err)
		q, m, buf := fuzzQP(t, d)
		now := time.Duration(1)
		for len(data) >= 2 && len(data) >= 2+int(data[0]) {
			b, control := append([]byte(nil), data[2:2+int(data[0])]...), data[1]
			data = data[2+int(data[0]):]
			fixPacket(b, control, q, m)
			d.mu.Lock()
			d.take(b, addrA, control&0x80 != 0, now)
			if control&0x40 == 0 {
				d.transmit(unbounded)
			}
			now += time.Duration(control&0x30) * time.Millisecond
			q.onTimer(now)
			checkBooks(t, d, q)
			d.mu.Unlock()
		}
		for i := range 8 {
			if buf[i] != 0 || buf[len(buf)-1-i] != 0 {
				t.Fatal("written outside of the registered range")
			}
		}
		check(t, conn.Close())
		d.timer.Stop()
	})
}

// fuzzQP makes a queue pair with receives, READs, an atomic and a SEND outstanding. The memory
// is registered but for its first and last eight bytes.
func fuzzQP(t *testing.T, d *Device) (*qp, verbs.MR, []byte) {
	p, err := d.AllocPD()
	check(t, err)
	c, err := d.CreateCQ(64, nil)
	check(t, err)
	buf := make([]byte, 4096)
	m, err := p.RegMR(buf[8:len(buf)-8], allAccess)
	check(t, err)
	v, err := p.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: c, RecvCQ: c, MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1})
	check(t, err)
	check(t, v.Modify(verbs.QPAttr{State: verbs.Init, Access: allAccess}))
	check(t, v.Modify(verbs.QPAttr{State: verbs.RTR, Remote: addrA, DestQPN: 7, PathMTU: verbs.MTU256, RQPSN: 0xfffffe, MaxDestRdAtomic: 2}))
	check(t, v.Modify(verbs.QPAttr{State: verbs.RTS, SQPSN: 0xfffffe, Timeout: 10, RetryCnt: 3, RNRRetry: 3, MaxRdAtomic: 2}))
	sge := []verbs.SGE{{Addr: m.Addr(), Length: 600, LKey: m.LKey()}}
	for range 4 {
		_, err = v.PostRecv([]verbs.RecvWR{{SGList: sge}})
		check(t, err)
	}
	word := []verbs.SGE{{Addr: m.Addr(), Length: 8, LKey: m.LKey()}}
	_, err = v.PostSend([]verbs.SendWR{
		{Opcode: verbs.WRSend, SGList: sge},
		{Opcode: verbs.WRRDMARead, SGList: sge},
		{Opcode: verbs.WRAtomicFetchAndAdd, SGList: word},
		{Opcode: verbs.WRRDMAWrite, SGList: sge},
	})
	check(t, err)
	return v.(*qp), m, buf
}

// fixPacket makes random bytes meaningful where control asks for it.
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

// checkBooks checks what holds between any two packets.
func checkBooks(t *testing.T, d *Device, q *qp) {
	t.Helper()
	r := &q.req
	switch {
	case q.path.window.inflight != r.inflight || r.inflight < 0:
		t.Fatalf("window has %d bytes, requester %d", q.path.window.inflight, r.inflight)
	case q.path.reads.inflight != r.readBytes || d.readBytes != r.readBytes || r.readBytes < 0:
		t.Fatalf("READ window has %d bytes, device %d, requester %d", q.path.reads.inflight, d.readBytes, r.readBytes)
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
