package roce

import (
	"net/netip"
	"runtime/debug"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// isNear reports whether there is memory shared with dst.
func (d *Device) isNear(dst netip.AddrPort) bool { return d.near != nil && d.near.Shares(dst) }

// put sends a train of the packets from index first on through memory shared with their destination, and returns the
// index of the packet to go on with. The packets are put together in that memory, and each byte of their payload is
// read once, for both the copy and the ICRC.
func (d *Device) put(first int) (next int) {
	t := d.tx
	k := &t.packets[first]
	t.trains = append(t.trains[:0], udp.Train{Dst: k.dst, TrafficClass: k.trafficClass, SegmentSize: k.size})
	train := &t.trains[0]
	for next = first; next < len(t.packets); next++ {
		if k = &t.packets[next]; k.dst != train.Dst || k.trafficClass != train.TrafficClass || !train.Fits(k.size, 0) {
			break
		}
		train.Bytes += k.size
	}
	to := d.near.Begin(train)
	if to == nil { // its packets count as lost
		return next
	}
	whole := true
	for i := first; i < next; i++ {
		n := t.packets[i].size
		whole = t.write(to[:n], i, uint16(i-first)) && whole
		to = to[n:]
	}
	wire.Fence()
	d.near.End(train, whole)
	if whole {
		d.counters.inc(SentTrains)
	} else { // as when the system can't send it
		d.counters.inc(SendErrors)
	}
	return next
}

// write writes packet i to to, which has its length. If a page of its payload is missing, it records that and returns
// false.
func (t *txBatch) write(to []byte, i int, id uint16) bool {
	k := &t.packets[i]
	if k.onDemand == nil {
		t.writeTo(to, k, id, t.ahead(i))
		return true
	}
	if !t.writeOnDemand(to, k, id, t.ahead(i)) {
		t.missed = append(t.missed, missedPage{k.onDemand, k.psn})
		return false
	}
	return true
}

func (t *txBatch) writeOnDemand(to []byte, k *txPacket, id uint16, next []byte) (ok bool) {
	ok = true
	defer mem.Caught(&ok, debug.SetPanicOnFault(true), t.pieces[k.piece:k.piece+k.pieces]...)
	t.writeTo(to, k, id, next)
	return ok
}

func (t *txBatch) writeTo(to []byte, k *txPacket, id uint16, next []byte) {
	if k.pieces == 0 {
		if !k.noICRC {
			t.putICRC(k, id, next)
		}
		copy(to, t.arena[k.head:k.end])
		return
	}
	k.flow.Put(to, next, id, t.arena[k.head:k.data], t.pieces[k.piece:k.piece+k.pieces]...)
	if k.noICRC { // which costs nothing compared with the copy
		wire.PutICRC(to[k.size-wire.ICRCSize:], 0)
	}
}
