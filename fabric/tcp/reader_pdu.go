package tcp

import (
	"encoding/binary"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// consume parses as much as possible of what is in the chunk.
func (r *reader) consume() error {
	if r.expect != nil && r.state == wantHeader {
		r.announce()
	}
	for {
		if r.missed {
			return mem.ErrFault
		}
		var more bool
		var err error
		switch r.state {
		case wantHeader:
			more, err = r.takeHeader()
		case wantData:
			more, err = r.takeData()
		case wantDigest:
			more, err = r.takeDigest()
		}
		if err != nil || !more {
			return err
		}
	}
}

// announce tells expect of the commands that lie next to each other at the start of the chunk, if there are several.
// Their headers aren't checked yet, so it uses them for nothing else.
func (r *reader) announce() {
	b := r.buf[r.r:r.w]
	if len(b) < 2*pdu.CapsuleCmdSize {
		return
	}
	for len(b) >= pdu.CapsuleCmdSize {
		h := pdu.HeaderAt(b)
		if h.Type != pdu.TypeCapsuleCmd || h.PLEN < pdu.CapsuleCmdSize {
			return
		}
		r.expect(nvme.CommandAt(b[pdu.HeaderSize:]))
		b = b[min(int64(h.PLEN), int64(len(b))):]
	}
}

// takeHeader parses a header if all of it is there; otherwise it returns false.
func (r *reader) takeHeader() (bool, error) {
	b := r.buf[r.r:r.w]
	if len(b) < pdu.HeaderSize {
		return false, nil
	}
	h := pdu.HeaderAt(b)
	if err := r.rules.Check(h); err != nil {
		return false, r.offend(h, b, err)
	}
	n, whole := h.Head()
	if len(b) < whole {
		return false, nil
	}
	if err := h.CheckDigest(b[:whole]); err != nil {
		return false, r.offend(h, b, err)
	}
	r.r += whole
	r.tally.pdus[h.Type]++
	r.look.took(h)
	length := h.DataLen()
	r.dst, r.next, r.onDemand = r.dst[:0], 0, false
	if err := r.h.header(h, b[:n]); err != nil {
		return false, r.offend(h, b[:n], err)
	}
	if length > 0 {
		r.cur, r.state, r.crc = h, wantData, 0
		r.left, r.padding = length, int(h.PDO)-whole
		r.large = length >= directMin
		r.tally.data += uint64(length)
	}
	return true, nil
}

// offend saves the header b that err is about.
func (r *reader) offend(h pdu.Header, b []byte, err error) error {
	n := min(len(b), pdu.MaxTermData)
	if h.HLEN >= pdu.HeaderSize {
		n = min(n, int(h.HLEN))
	}
	r.nOffend = copy(r.offence[:], b[:n])
	return err
}

// takeData copies data out of the chunk. It returns false when the chunk is empty.
func (r *reader) takeData() (bool, error) {
	if r.padding > 0 {
		k := min(r.padding, r.w-r.r)
		r.r += k
		r.padding -= k
	}
	for r.left > 0 && r.r < r.w {
		b := r.buf[r.r:min(r.w, r.r+r.left)]
		if r.next == len(r.dst) { // no place: dropped, but its digest still counts
			if r.rules.Format.DataDigest() {
				r.crc = pdu.UpdateDigest(r.crc, b)
			}
			r.left -= len(b)
			r.r += len(b)
			continue
		}
		k, ok := r.put(b)
		if !ok {
			return false, mem.ErrFault
		}
		r.advance(k)
		r.r += k
	}
	if r.missed {
		return false, mem.ErrFault
	}
	if r.left > 0 {
		return false, nil
	}
	if r.cur.Flags&pdu.FlagDDGST != 0 {
		r.state = wantDigest
		return true, nil
	}
	return true, r.endData(true)
}

// put copies data to the current place; ok is false if a page of that is missing.
func (r *reader) put(b []byte) (n int, ok bool) {
	if r.onDemand {
		return mem.Copy(r.dst[r.next], b)
	}
	return copy(r.dst[r.next], b), true
}

// takeDigest compares the data digest if it is there.
func (r *reader) takeDigest() (bool, error) {
	if r.w-r.r < pdu.DigestSize {
		return false, nil
	}
	ok := binary.LittleEndian.Uint32(r.buf[r.r:]) == r.crc
	r.r += pdu.DigestSize
	return true, r.endData(ok)
}

func (r *reader) endData(ok bool) error {
	r.state = wantHeader
	return r.h.data(r.cur, ok)
}

// protocolError counts a fault of the peer. It returns the error that the connection ends with, and the fault if the
// peer is to be told of it: a malformed terminate request just ends the connection (section 3.5).
func (r *reader) protocolError(fault *pdu.FieldError, peer netip.AddrPort, c *Counters) (tell *pdu.FieldError, err error) {
	c.ProtocolErrors.Add(1)
	if fault.FES == pdu.FESHeaderDigest {
		c.HeaderDigestErrors.Add(1)
	}
	offender := pdu.Type(r.offence[0])
	err = &ProtocolError{Peer: peer, PDU: offender, Cause: fault}
	if _, peers := r.termReqs(); offender == peers {
		return nil, err
	}
	return fault, err
}

// termReqs returns the types of our terminate request and of the peer's.
func (r *reader) termReqs() (ours, peers pdu.Type) {
	if r.rules.Self == pdu.Controller {
		return pdu.TypeC2HTermReq, pdu.TypeH2CTermReq
	}
	return pdu.TypeH2CTermReq, pdu.TypeC2HTermReq
}

// termReq returns the terminate request that tells the peer of its fault.
func (r *reader) termReq(fault *pdu.FieldError) []byte {
	kind, _ := r.termReqs()
	return pdu.TermReq{Type: kind, FES: fault.FES, FEI: fault.FEI, Offence: r.offence[:r.nOffend]}.Append(nil)
}
