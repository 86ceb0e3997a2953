package roce

import (
	"net/netip"
	"runtime/debug"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Bounds of one batch: what is put together before it is sent. They keep the latency of the
// first packet low and the system calls few.
const (
	batchPackets = 256
	batchBytes   = 512 << 10
	qpQuota      = 128 // packets of one queue pair and direction in a batch
	minQuota     = 32  // the least of these, however few requests wait
	quotaLooks   = 8   // requests looked at for a large one
	answerQuota  = 32  // packets of answers, to a peer that may ask for more than it can take

	// bulkBytes is how much the first part of a batch may have before no further queue pair adds to it: four trains of
	// large packets. The responses behind them should not have to wait for more.
	bulkBytes = 240 << 10

	// sealBytes is how much is summed before it is handed to the socket: while the peer takes that, the rest is summed.
	sealBytes = 120 << 10

	// copyBelow is the smallest payload for which a piece of its own in the gather list costs less than copying.
	copyBelow = 192

	arenaPerPacket = wire.MaxHeader + copyBelow + wire.MaxTrailer
)

// txBatch is what is sent at once. Packets are added under the device's lock: headers, room for pad and ICRC, and short
// payloads go one after another into an arena; longer payloads stay where they are. Sealing, without the lock, forms
// trains and computes the ICRCs.
type txBatch struct {
	packet   wire.Packet // being made
	gathered [][]byte    // its payload …
	message  []byte      // … and what follows it and is copied; nil for nothing

	arena   []byte
	pieces  [][]byte // payloads that are not in the arena
	packets []txPacket
	bytes   int
	staged  int    // bytes of data in the arena
	gen     uint64 // counts batches

	parts     [][]byte
	trains    []udp.Train
	firstOf   []int            // packet that begins the train
	partStart int              // of the last part, if it is in the arena
	partEnd   int              // −1 if it isn't
	missed    []missedPage     // what sealing found
	arrived   [maxArrived]byte // payload of a SelectiveAck, until it is in the arena
}

// txPacket is a packet of a batch. The offsets are in the arena: of the header, of what follows it (the payload, if it
// was copied), of the trailer, and of the end.
type txPacket struct {
	dst           netip.AddrPort
	engine        engine // at dst
	flow          wire.Flow
	trafficClass  uint8
	piece, pieces int  // payload in txBatch.pieces …
	message       bool // … of which the last lies in the arena, in front of the trailer
	size          int  // of the whole datagram
	noICRC        bool
	onDemand      *qp      // the payload's owner, if pages of that may be missing …
	psn           wire.PSN // … and the packet's

	head, data, tail, end int
}

func newTxBatch() *txBatch {
	return &txBatch{
		gathered: make([][]byte, 0, maxSGE),
		arena:    make([]byte, 0, batchPackets*arenaPerPacket),
		pieces:   make([][]byte, 0, 2*batchPackets),
		packets:  make([]txPacket, 0, batchPackets),
		parts:    make([][]byte, 0, 4*batchPackets),
		trains:   make([]udp.Train, 0, batchPackets),
		firstOf:  make([]int, 0, batchPackets),
		gen:      1,
	}
}

// reset empties the batch, and lets go of the payloads.
func (t *txBatch) reset() {
	clear(t.pieces)
	clear(t.parts)
	clear(t.trains)
	clear(t.packets)
	clear(t.missed)
	t.arena, t.pieces, t.packets, t.bytes, t.staged = t.arena[:0], t.pieces[:0], t.packets[:0], 0, 0
	t.parts, t.trains, t.firstOf, t.missed = t.parts[:0], t.trains[:0], t.firstOf[:0], t.missed[:0]
}

func (t *txBatch) full() bool {
	return len(t.packets) == batchPackets || t.bytes >= batchBytes || cap(t.arena)-len(t.arena) < 2*madSize
}

// add appends q's packet in t.packet with the n bytes in t.gathered.
func (t *txBatch) add(q *qp, n int) {
	t.addTo(q.path.dst, q.engine, q.path.flow, q.class, n, n < copyBelow)
	t.packets[len(t.packets)-1].noICRC = q.noICRC
}

// addOnDemand is add for data with pages that may be missing. The data isn't copied: a missing page shows when the
// packet is sealed.
func (t *txBatch) addOnDemand(q *qp, n int) {
	t.addTo(q.path.dst, q.engine, q.path.flow, q.class, n, false)
	k := &t.packets[len(t.packets)-1]
	k.noICRC, k.onDemand, k.psn = q.noICRC, q, t.packet.PSN
}

func (t *txBatch) addTo(dst netip.AddrPort, of engine, flow wire.Flow, trafficClass uint8, n int, copied bool) {
	pad := wire.Pad(n + len(t.message))
	t.packet.PadCnt = uint8(pad)
	k := txPacket{dst: dst, engine: of, flow: flow, trafficClass: trafficClass, head: len(t.arena), piece: len(t.pieces)}
	t.arena = t.packet.AppendHeader(t.arena)
	k.data = len(t.arena)
	if copied {
		for _, b := range t.gathered {
			t.arena = append(t.arena, b...)
		}
		t.staged += n
	} else {
		t.pieces = append(t.pieces, t.gathered...)
	}
	k.tail = len(t.arena)
	if m := t.message; m != nil {
		t.message = nil
		t.arena = append(t.arena, m...)
		t.staged += len(m)
		n += len(m)
		if k.message = !copied; k.message {
			t.pieces = append(t.pieces, t.arena[k.tail:])
		}
	}
	k.pieces = len(t.pieces) - k.piece
	t.arena = wire.AppendTrailer(t.arena, n, 0)
	k.end = len(t.arena)
	k.size = k.data - k.head + n + pad + wire.ICRCSize
	t.packets = append(t.packets, k)
	t.bytes += k.size
}

// askAck makes packet i ask for an acknowledgement.
func (t *txBatch) askAck(i int) {
	const offset, ackReq = 8, 0x80 // of the BTH (IBTA 9.2)
	t.arena[t.packets[i].head+offset] |= ackReq
}

// seal forms trains of the packets from index first on, and computes their ICRCs: the IPv4 Identification that a packet
// will have is its place in the train. It returns the index of the packet to go on with, at the latest that of the next
// one whose destination is near.
func (t *txBatch) seal(first int, segments, near func(netip.AddrPort) bool) int {
	t.trains, t.parts, t.firstOf = t.trains[:0], t.parts[:0], t.firstOf[:0]
	var train *udp.Train
	var of engine // whose packets are in the train
	long := false // it may have several
	start := 0    // of the train's parts
	bytes := 0
	for i := first; i < len(t.packets); i++ {
		k := &t.packets[i]
		if train == nil || !long || train.Dst != k.dst || !k.engine.joins(of) ||
			train.TrafficClass != k.trafficClass || !train.Fits(k.size, k.pieces+2) {
			if bytes >= sealBytes || i > first && near(k.dst) {
				return i
			}
			t.trains = append(t.trains, udp.Train{Dst: k.dst, TrafficClass: k.trafficClass, SegmentSize: k.size})
			t.firstOf = append(t.firstOf, i)
			train, of, long = &t.trains[len(t.trains)-1], k.engine, segments(k.dst)
			start, t.partEnd = len(t.parts), -1
		}
		switch id, next := uint16(train.Datagrams()), t.ahead(i); {
		case k.noICRC:
		case k.onDemand == nil:
			t.putICRC(k, id, next)
		case !t.putICRCOnDemand(k, id, next): // the system can't send it either
			t.missed = append(t.missed, missedPage{k.onDemand, k.psn})
		}
		t.addParts(k)
		train.Bytes += k.size
		train.Parts = t.parts[start:len(t.parts):len(t.parts)]
		bytes += k.size
	}
	return len(t.packets)
}

// ahead returns what to fetch while packet i is summed: data of a later packet, since fetching memory takes longer than
// summing a short packet.
func (t *txBatch) ahead(i int) []byte {
	const far = 4 << 10
	n := 1
	if k := &t.packets[i]; k.pieces > 0 {
		n = (far + k.size - 1) / k.size
	}
	return t.payload(i + n)
}

// payload returns the data of packet i to be summed that isn't in the arena, or the first piece of it.
func (t *txBatch) payload(i int) []byte {
	if i >= len(t.packets) || t.packets[i].pieces == 0 || t.packets[i].noICRC {
		return nil
	}
	return t.pieces[t.packets[i].piece]
}

// putICRC computes the ICRC of a packet, while the processor fetches what is to be summed next.
func (t *txBatch) putICRC(k *txPacket, id uint16, next []byte) {
	end := k.end - wire.ICRCSize
	var icrc uint32
	if k.pieces == 0 {
		icrc = k.flow.ICRCFetching(next, id, t.arena[k.head:end])
	} else {
		icrc = k.flow.ICRCFetching(next, id, t.arena[k.head:k.data], t.pieces[k.piece:k.piece+k.pieces]...)
	}
	wire.PutICRC(t.arena[end:k.end], icrc)
}

// missedPage is a packet that can't be sent, because a page of its payload is missing.
type missedPage struct {
	q   *qp
	psn wire.PSN
}

// putICRCOnDemand is putICRC; it returns false if a page of the payload is missing.
func (t *txBatch) putICRCOnDemand(k *txPacket, id uint16, next []byte) (ok bool) {
	ok = true
	defer mem.Caught(&ok, debug.SetPanicOnFault(true), t.pieces[k.piece:k.piece+k.pieces]...)
	t.putICRC(k, id, next)
	return ok
}

// addParts appends the packet to the gather list. What directly follows the packet before it in the arena extends that
// packet's last part.
func (t *txBatch) addParts(k *txPacket) {
	if k.pieces == 0 {
		t.addArena(k.head, k.end)
		return
	}
	apart := t.pieces[k.piece : k.piece+k.pieces]
	if k.message {
		apart = apart[:len(apart)-1]
	}
	t.addArena(k.head, k.tail)
	t.parts = append(t.parts, apart...)
	t.partEnd = -1
	t.addArena(k.tail, k.end)
}

func (t *txBatch) addArena(from, to int) {
	if t.partEnd == from {
		t.parts[len(t.parts)-1] = t.arena[t.partStart:to]
	} else {
		t.parts = append(t.parts, t.arena[from:to])
		t.partStart = from
	}
	t.partEnd = to
}
