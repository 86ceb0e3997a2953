package roce

import (
	"errors"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// rxState is the engine's own.
type rxState struct {
	received [udp.RecvBatch]udp.Received
	packet   wire.Packet
	turned   time.Duration // when the last turn began; the device's lock guards it
	late     bool          // what is received may have waited for long

	// The flow of the last packets.
	src  netip.AddrPort
	dst  netip.Addr
	flow wire.Flow

	// Not yet added to the counters. The device's lock guards them.
	unchecked int // packets without ICRC
	placed    int // bytes

	strays []stray // in what is being received
}

const congestionExperienced = 3

// verifiedAtOnce is how many packets are checked before the lock is taken for them.
const verifiedAtOnce = 64

// receive takes datagrams that came in one piece. The ICRCs are checked without the device's
// lock.
func (d *Device) receive(r *udp.Received, now time.Duration) {
	x := &d.rx
	if r.Src != x.src || r.Dst != x.dst {
		x.src, x.dst = r.Src, r.Dst
		x.flow = wire.NewFlow(r.Src, netip.AddrPortFrom(r.Dst, d.self.Port()))
	}
	src := bare(r.Src.Addr())
	size := r.SegmentSize
	if size <= 0 {
		size = len(r.Buf)
	}
	marked := r.ECN() == congestionExperienced
	unchecked := d.sendsNoICRC(src)
	packets, bytes := 0, 0
	for rest, index := r.Buf, r.Index; len(rest) > 0; {
		batch := rest
		var good uint64
		n := 0
		for ; n < verifiedAtOnce && len(rest) > 0; n++ {
			b := rest[:min(size, len(rest))]
			rest = rest[len(b):]
			if unchecked {
				good |= 1 << n
				continue
			}
			if d.verify(b, uint16(index+n), rest[:min(size, len(rest))]) {
				good |= 1 << n
			}
		}
		d.mu.Lock()
		for i := range n {
			b := batch[:min(size, len(batch))]
			batch = batch[len(b):]
			if good&(1<<i) != 0 && (!unchecked || d.permits(b, uint16(index+i))) {
				packets++
				bytes += len(b)
				d.take(b, src, marked, now)
			}
		}
		d.counters.add(PlacedBytes, x.placed)
		d.counters.add(NoICRC, x.unchecked)
		x.placed, x.unchecked = 0, 0
		d.mu.Unlock()
		index += n
	}
	d.passStrays(now)
	d.counters.add(ReceivedPackets, packets)
	d.counters.add(ReceivedBytes, bytes)
}

// verify checks the ICRC. index is the place among the datagrams received in one piece, which
// is the Identification that a sender like this one uses. The processor fetches next meanwhile.
func (d *Device) verify(b []byte, index uint16, next []byte) bool {
	verdict, _ := d.rx.flow.VerifyFetching(next, b, index)
	if verdict == wire.Bad {
		d.counters.inc(BadICRC)
		return false
	}
	if verdict == wire.Recovered {
		d.counters.inc(RecoveredICRC)
	}
	return true
}

// sendsNoICRC reports whether a peer has agreed on packets without ICRC for any of its queue pairs.
func (d *Device) sendsNoICRC(src netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.paths[src]
	return p != nil && p.noICRC > 0
}

// permits reports whether the packet b, from a peer that sends some without ICRC, is for a queue pair that takes those,
// or else has a good ICRC. The device's lock is held.
func (d *Device) permits(b []byte, index uint16) bool {
	if q := d.qps.lookup(wire.DestQPOf(b)); q == nil || !q.noICRC {
		return d.verify(b, index, nil)
	}
	d.rx.unchecked++
	return true
}

// take handles one packet. The device's lock is held.
func (d *Device) take(b []byte, src netip.Addr, marked bool, now time.Duration) {
	p := &d.rx.packet
	err := wire.Parse(p, b)
	if err != nil && !errors.Is(err, wire.ErrOpcode) {
		d.counters.inc(Malformed)
		return
	}
	if marked {
		d.counters.inc(ECNMarked)
	}
	if p.Opcode.IsUD() {
		if err != nil {
			d.counters.inc(Malformed)
			return
		}
		if !d.isStray(b, src, marked) {
			d.takeDatagram(p, src)
		}
		return
	}
	q := d.qps.lookup(p.DestQP)
	switch {
	case q == nil:
		if !d.isStray(b, src, marked) {
			d.counters.inc(NoQP)
		}
		return
	case q.attr.State < verbs.RTR || q.attr.State == verbs.Err:
		d.counters.inc(WrongState)
		return
	case q.path.remote != src:
		d.counters.inc(WrongPeer)
		return
	case p.Opcode == wire.CNP:
		q.onCNP(now)
		return
	case !q.takes(p.Opcode):
		d.counters.inc(Malformed)
		return
	case !wire.PKeyMatch(p.PKey, wire.DefaultPKey):
		d.counters.inc(BadPKey)
		return
	case p.Opcode.IsResponse():
		q.onResponse(p, now)
	default:
		q.onRequest(p, now)
	}
	if marked {
		d.onMark(q, p.Opcode, now)
	}
}

// onMark handles the congestion mark of a packet: the sender is told, and if it is an answer to a READ, less is asked
// of that sender.
func (d *Device) onMark(q *qp, op wire.Opcode, now time.Duration) {
	if q.attr.State != verbs.RTR && q.attr.State != verbs.RTS {
		return
	}
	q.congested(now)
	if op.Kind() == wire.KindReadResponse {
		q.path.reads.marked(now, q.path.rtt)
	}
}
