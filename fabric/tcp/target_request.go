package tcp

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// request is a slot of a target's connection, which holds one command at a time. Its index is the
// TTAG of its R2T.
type request struct {
	target.Request
	conn *targetConn
	tag  uint16

	buf      []byte        // for data in the capsule
	inline   int           // bytes of buf in use by this command
	badData  bool          // the data digest was wrong
	direct   bool          // the command's I/O queue has no SQ flow control: SUCCESS is allowed
	memory   []byte        // from the listener's arena, freed after the response
	pulling  atomic.Uint32 // pullNone …
	checks   atomic.Int32  // checks of the watch that found it pulling
	total    int           // bytes that Pull asks for
	received int           // of total
	seg, off int           // where the next byte goes in Data

	send sendState
}

// How far a request is with data that Pull asks for.
const (
	pullNone   uint32 = iota // it isn't asked for, or is there
	pullPosted               // its R2T is to be sent
	pullAsked                // its R2T is on its way: data may come
)

// sendState is how far a response is encoded.
type sendState struct {
	begun bool
	seg   int // index of the next segment of Data
	crc   uint32
}

// mapSGL applies the rules of section 3.3.2 to SGL1. The engine has checked that it is an SGL (PSDT).
func (r *request) mapSGL() (int, nvme.Status) {
	if r.badData {
		return 0, nvme.StatusTransientTransport
	}
	sgl := r.Cmd.SGL1()
	n := sgl.Length()
	switch sgl.Type() {
	case nvme.SGLInCapsule:
		if r.Cmd.Direction() != nvme.HostToCtrl {
			return 0, nvme.StatusInvalidField | nvme.StatusDNR
		}
		off, end := sgl.Address(), uint64(r.inline)
		if off > 0 && off >= end {
			return 0, nvme.StatusSGLOffsetInvalid | nvme.StatusDNR
		}
		if uint64(n) != end-off { // nothing may follow the data
			return 0, nvme.StatusSGLLengthInvalid | nvme.StatusDNR
		}
		r.InCapsule = r.buf[off:end]
	case nvme.SGLTransport:
	default:
		return 0, nvme.StatusSGLTypeInvalid | nvme.StatusDNR
	}
	return int(n), nvme.StatusSuccess
}

// place tells rd where the next n bytes of a pulled command go.
func (r *request) place(rd *reader, n int) {
	for n > 0 {
		s := &r.Data[r.seg]
		b := s.Bytes[r.off:]
		k := min(n, len(b))
		rd.place(b[:k])
		rd.onDemand = rd.onDemand || onDemand(s)
		n -= k
		r.off += k
		if k == len(b) {
			r.seg, r.off = r.seg+1, 0
		}
	}
}

// onDemand reports whether pages of s may be missing.
func onDemand(s *blockdev.Segment) bool { return s.Region != nil && s.Region.File }

// readyToTransfer is a request whose R2T is to be sent: one for all the data.
type readyToTransfer request

func (m *readyToTransfer) encode(b *batch) bool {
	if !b.fits(pdu.R2TSize+pdu.DigestSize, 1) {
		return false
	}
	p := pdu.R2T{Header: m.conn.format.Header(pdu.TypeR2T, 0),
		CCCID: m.Cmd.CID(), TTAG: m.tag, R2TL: uint32(m.total)}
	b.commit(p.Append(b.stage))
	b.pdus[pdu.TypeR2T]++
	m.pulling.CompareAndSwap(pullPosted, pullAsked)
	return true
}

func (m *readyToTransfer) written() {}

// response is a request whose data and response are to be sent.
type response request

func (m *response) encode(b *batch) bool {
	s := &m.send
	if m.SendData && !s.begun {
		if !b.fits(pdu.MaxHead, 2) {
			return false
		}
		m.beginData(b)
	}
	for s.begun && s.seg < len(m.Data) {
		if !b.fits(0, 1) {
			return false
		}
		seg := m.Data[s.seg].Bytes
		if m.conn.format.DataDigest() {
			m.digest(&m.Data[s.seg])
		}
		b.gather(seg)
		b.onDemand = b.onDemand || onDemand(&m.Data[s.seg])
		s.seg++
	}
	if !b.fits(pdu.DigestSize+pdu.CapsuleRespSize+pdu.DigestSize, 1) {
		return false
	}
	return m.end(b)
}

// digest continues the data digest. If a page of the data is missing, the connection ends, as it
// does without a digest when the system should send the page: a PDU that was begun can't be completed.
func (m *response) digest(seg *blockdev.Segment) {
	if !onDemand(seg) {
		m.send.crc = pdu.UpdateDigest(m.send.crc, seg.Bytes)
		return
	}
	var ok bool
	if m.send.crc, ok = digestOnDemand(m.send.crc, seg.Bytes); !ok {
		m.conn.w.fail(mem.ErrFault)
	}
}

// beginData encodes the header of the C2HData PDU that carries all the data.
func (m *response) beginData(b *batch) {
	n := (*request)(m).Len()
	if n == 0 {
		m.SendData = false
		return
	}
	p := pdu.Data{Header: m.conn.format.Header(pdu.TypeC2HData, n), CCCID: m.Cmd.CID(), DATAL: uint32(n)}
	p.Flags |= pdu.FlagLast
	if m.success() {
		p.Flags |= pdu.FlagSuccess
	}
	b.commit(p.Append(b.stage))
	b.pdus[pdu.TypeC2HData]++
	m.send.begun = true
}

// success reports whether the SUCCESS flag may replace the response: the flag conveys neither a
// result nor SQHD.
func (m *response) success() bool {
	return m.direct && m.CQE.Status() == nvme.StatusSuccess && m.CQE.Result() == 0
}

// end encodes what follows the data: its digest, and the CapsuleResp unless SUCCESS replaces it.
func (m *response) end(b *batch) bool {
	out := b.stage
	if m.send.begun {
		if m.conn.format.DataDigest() {
			out = pdu.AppendDigest(out, m.send.crc)
		}
		if m.success() {
			b.commit(out)
			m.conn.l.counters.Successes.Add(1)
			return true
		}
	}
	p := pdu.CapsuleResp{Header: m.conn.format.Header(pdu.TypeCapsuleResp, 0), CQE: m.CQE}
	b.commit(p.Append(out))
	b.pdus[pdu.TypeCapsuleResp]++
	return true
}

// written frees the slot.
func (m *response) written() {
	r := (*request)(m)
	r.Sent()
	r.conn.release(r)
}
