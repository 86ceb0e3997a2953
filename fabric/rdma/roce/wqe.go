package roce

import (
	"runtime/debug"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/stream"
)

// sendWQE is a send work request in its ring. Its slices are the slot's own and are reused. What every request has
// comes first, and what only some have behind it, so that little of a slot has to be fetched.
type sendWQE struct {
	wrID    uint64
	op      verbs.WROpcode
	flags   verbs.SendFlags
	started bool     // the first packet has left, or the local operation is done
	along   bool     // a WRITE: the SEND behind it is in its packet …
	behind  uint32   // … and has this index
	first   wire.PSN // set with started, as are packets and mtu
	rkey    uint32   // of RDMA and atomics; to be invalidated; of the window to be bound
	length  int

	// A message of n packets has the PSNs first … first+n−1; a local operation has none, and neither does a SEND that
	// goes along with the WRITE before it.
	packets int
	mtu     int // bytes of it that each packet but the last carries, or brings

	remoteAddr uint64
	mw         *mw

	sges []verbs.SGE
	bind verbs.MWBind

	inline     []byte // the data itself, if SendInline was given
	imm        uint32
	compareAdd uint64
	swap       uint64
	_          [16]byte // a slot is three cache lines
}

// windowed reports whether the packets of the request count in the window. Those of READs and atomics don't; their
// number is limited otherwise.
func (w *sendWQE) windowed() bool {
	switch w.op {
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		return false
	}
	return true
}

func (w *sendWQE) isLocal() bool { return w.op == verbs.WRBindMW || w.op == verbs.WRLocalInv }

func (w *sendWQE) isAtomic() bool {
	return w.op == verbs.WRAtomicCmpAndSwp || w.op == verbs.WRAtomicFetchAndAdd
}

func (w *sendWQE) isSend() bool {
	return w.op == verbs.WRSend || w.op == verbs.WRSendWithImm || w.op == verbs.WRSendWithInv
}

func (w *sendWQE) isWrite() bool {
	return w.op == verbs.WRRDMAWrite || w.op == verbs.WRRDMAWriteWithImm
}

// end is the PSN after the last one of the request.
func (w *sendWQE) end() wire.PSN { return w.first.Add(w.packets) }

// at returns the place of psn in the request: negative before it, packets or more behind it. It is measured from the
// middle: a request may have half of all PSNs, and then its beginning is nearer to what is behind it the other way
// round, and so is its end to what is before it.
func (w *sendWQE) at(psn wire.PSN) int {
	half := w.packets / 2
	return half + psn.Diff(w.first.Add(half))
}

// before returns how many packets of the request come before psn: none, which may be a negative number, if psn is before
// the request.
func (w *sendWQE) before(psn wire.PSN) int { return min(w.at(psn), w.packets) }

// last returns the index of the last request that ends with w, which is at index i.
func (w *sendWQE) last(i uint32) uint32 {
	if w.along {
		return w.behind
	}
	return i
}

// cost returns what the packets lo to hi−1 count in the window.
func (w *sendWQE) cost(lo, hi int) int {
	return min(hi*w.mtu, w.length) - lo*w.mtu + (hi-lo)*packetCost
}

// packetCost is what a packet costs a receive buffer beyond its payload, in bytes: about what
// a kernel accounts for a small datagram.
const packetCost = 256

var sendWCOpcode = [...]verbs.WCOpcode{
	verbs.WRSend:              verbs.WCSend,
	verbs.WRSendWithImm:       verbs.WCSend,
	verbs.WRSendWithInv:       verbs.WCSend,
	verbs.WRRDMAWrite:         verbs.WCRDMAWrite,
	verbs.WRRDMAWriteWithImm:  verbs.WCRDMAWrite,
	verbs.WRRDMARead:          verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp:   verbs.WCCompSwap,
	verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
	verbs.WRBindMW:            verbs.WCBindMW,
	verbs.WRLocalInv:          verbs.WCLocalInv,
}

// recvWQE is a receive work request in its ring.
type recvWQE struct {
	wrID   uint64
	length int
	sges   []verbs.SGE
}

// ring is a ring of slots for work requests. The indices count up without end and are reduced to the ring by mask; limit
// is how many slots the consumer may use.
//
// Rings grow with what is queued at once, so that a queue pair that has little to do cycles through few slots, which
// stay in the caches.
type ring[W any, P slot[W]] struct {
	slots []W
	mask  uint32
	limit uint32
	room  int // entries that a slot has room for from the start
}

// slot is a work request that takes memory for its list.
type slot[W any] interface {
	*W
	equip(sges []verbs.SGE)
}

func (w *sendWQE) equip(sges []verbs.SGE) { w.sges = sges }
func (w *recvWQE) equip(sges []verbs.SGE) { w.sges = sges }

type recvRing = ring[recvWQE, *recvWQE]

type sendRing struct {
	ring[sendWQE, *sendWQE]
	inline bool // slots have room for inline data
}

const (
	// fewSlots is how many slots a ring begins with.
	fewSlots = 4
	// usualSGEs is how many entries a slot has room for from the start. A slot that is given more grows, and stays so.
	usualSGEs = 2
)

func newRing[W any, P slot[W]](wrs, sges int) ring[W, P] {
	n := min(powerOfTwo(wrs), fewSlots)
	r := ring[W, P]{slots: make([]W, n), mask: uint32(n - 1), limit: uint32(wrs), room: min(sges, usualSGEs)}
	r.equip(0, n)
	return r
}

func (r *ring[W, P]) at(i uint32) *W { return &r.slots[i&r.mask] }

// equip gives n new slots from index first on room for their lists.
func (r *ring[W, P]) equip(first uint32, n int) {
	backing := make([]verbs.SGE, n*r.room)
	for i := range n {
		P(r.at(first + uint32(i))).equip(backing[i*r.room : i*r.room : (i+1)*r.room])
	}
}

// grow doubles a ring whose slots are all in use, from index head on.
func (r *ring[W, P]) grow(head uint32) {
	old, n := *r, len(r.slots)
	r.slots = make([]W, 2*n)
	r.mask = uint32(len(r.slots) - 1)
	for i := range uint32(n) {
		*r.at(head + i) = *old.at(head + i)
	}
	r.equip(head+uint32(n), n)
}

func (r *sendRing) grow(head uint32) {
	n := len(r.slots)
	r.ring.grow(head)
	if r.inline {
		r.equipInline(head+uint32(n), n)
	}
}

// equipInline gives n new slots from index first on room for inline data.
func (r *sendRing) equipInline(first uint32, n int) {
	backing := make([]byte, n*maxInline)
	for i := range n {
		r.at(first + uint32(i)).inline = backing[i*maxInline : i*maxInline : (i+1)*maxInline]
	}
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// totalLength is the sum of the lengths of a list.
func totalLength(sges []verbs.SGE) int {
	n := 0
	for i := range sges {
		n += int(sges[i].Length)
	}
	return n
}

// scatter copies b to offset off of the memory that sges name. It returns false if a key or a range is wrong, or a page
// is missing. The device's lock is held.
func (d *Device) scatter(p *pd, sges []verbs.SGE, off int, b []byte) bool {
	d.rx.placed += len(b)
	for i := range sges {
		e := &sges[i]
		if off >= int(e.Length) {
			off -= int(e.Length)
			continue
		}
		if len(b) == 0 {
			break
		}
		m, has, ok := d.local(p, e, verbs.AccessLocalWrite)
		if !ok {
			return false
		}
		var n int
		if has&(verbs.AccessOnDemand|verbs.AccessStreamed) == 0 {
			n = copy(m[off:], b)
		} else if n, ok = copyAs(has, m[off:], b); !ok {
			return false
		}
		b = b[n:]
		off = 0
	}
	return len(b) == 0
}

// copyAs is copy to memory that is registered with has; ok is false if a page is missing.
func copyAs(has verbs.Access, to, b []byte) (n int, ok bool) {
	ok = true
	if has&verbs.AccessOnDemand != 0 {
		defer mem.Caught(&ok, debug.SetPanicOnFault(true), to, b)
	}
	if has&verbs.AccessStreamed != 0 {
		return stream.Copy(to, b), ok
	}
	return copy(to, b), ok
}

// gather appends the n bytes at offset off of the memory that sges name to parts, piece by piece; ok is false if a key
// or a range is wrong. onDemand says that pages of them may be missing. The device's lock is held.
func (d *Device) gather(parts [][]byte, p *pd, sges []verbs.SGE, off, n int) (all [][]byte, onDemand, ok bool) {
	for i := range sges {
		e := &sges[i]
		if off >= int(e.Length) {
			off -= int(e.Length)
			continue
		}
		if n == 0 {
			break
		}
		m, has, ok := d.local(p, e, 0)
		if !ok {
			return parts, false, false
		}
		onDemand = onDemand || has&verbs.AccessOnDemand != 0
		m = m[off:min(len(m), off+n)]
		parts = append(parts, m)
		n -= len(m)
		off = 0
	}
	return parts, onDemand, n == 0
}
