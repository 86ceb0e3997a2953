package tcp

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// waitingResponse is added to hostSlot.sending when the response arrives while the command's data
// is still being sent.
const waitingResponse = 1 << 16

// hostSlot is an outstanding command of the host. Submit sets it up; from then on its fields belong
// to the reader, except those that the messages below use.
type hostSlot struct {
	q   *hostQueue
	req *host.Request
	cid uint16
	// sent is set when the command is encoded, after which req is no longer read, and cleared by
	// its response. It orders the accesses of sender and reader, and makes a response to a command
	// that wasn't sent invalid.
	sent atomic.Bool

	data     []byte // of the request
	read     bool   // data comes from the controller
	write    bool   // data goes to the controller
	inline   bool   // … in the capsule
	atMost   bool   // data from the controller may be shorter than the buffer
	badData  bool   // a data digest was wrong
	received uint32 // bytes of data that arrived
	last     bool   // the last of it, says the controller

	// sending counts the messages that refer to data and aren't written yet, plus waitingResponse
	// if the response is there: the request isn't over while the kernel may still be given its memory.
	sending atomic.Int32
	cqe     nvme.Completion // the waiting response

	transfer transfer
}

// transfer is what an R2T asked for.
type transfer struct {
	granted uint32      // bytes that all R2Ts of the command asked for; belongs to the reader
	busy    atomic.Bool // the last R2T's data is not all encoded
	ttag    uint16
	off     uint32 // next byte to send
	end     uint32
}

// prepare sets up the slot for r, and the SGL of r.
func (s *hostSlot) prepare(r *host.Request, inlineLimit int) {
	s.cid = r.Cmd.CID()
	s.data = r.Data
	s.received, s.last, s.badData, s.inline = 0, false, false, false
	s.transfer.granted = 0
	n := len(r.Data)
	dir := r.Cmd.Direction()
	s.write = n > 0 && dir == nvme.HostToCtrl
	s.read = n > 0 && !s.write
	s.atMost = r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCAuthReceive
	sgl := nvme.SGLTransport
	if s.write && n <= inlineLimit {
		s.inline = true
		sgl = nvme.SGLInCapsule
	}
	r.Cmd.SGL1().SetBlock(sgl, 0, uint32(n))
	r.Cmd.SetFlags(r.Cmd.Flags()&0x3f | nvme.FlagsSGL)
	if s.inline {
		s.sending.Store(1)
	}
	s.req = r
}

// lacksData reports whether the controller has neither sent nor asked for all data of the command, so that it can't
// have succeeded.
func (s *hostSlot) lacksData() bool {
	switch n := uint32(len(s.data)); {
	case s.read:
		return s.received < n && !s.atMost
	case s.write:
		return s.transfer.granted < n && !s.inline
	}
	return false
}

// post queues the slot's CapsuleCmd. The writer's lock is held. On a dead connection the request
// is left to Sink.Closed.
func (s *hostSlot) post(w *writer) {
	if s.inline {
		w.add((*inlineCommand)(s), len(s.data))
	} else {
		w.add((*command)(s), 0)
	}
}

// command is a slot whose CapsuleCmd is to be sent.
type command hostSlot

func (m *command) encode(b *batch) bool {
	if !b.fits(pdu.MaxHead+pdu.DigestSize, 3) {
		return false
	}
	q := m.q
	size := 0
	if m.inline {
		size = len(m.data)
	}
	// The command is copied here: once the response arrives, the request belongs to its owner again,
	// even if the kernel still has bytes to send.
	p := pdu.CapsuleCmd{Header: q.format.Header(pdu.TypeCapsuleCmd, size), Cmd: m.req.Cmd}
	b.commit(p.Append(b.stage))
	if m.inline {
		b.gatherWhole(m.data, q.format)
	}
	b.pdus[pdu.TypeCapsuleCmd]++
	m.sent.Store(true)
	return true
}

// written may be called long after the response, when the slot belongs to another command.
func (m *command) written() {}

// inlineCommand is a command whose capsule carries its data. It keeps its slot until it is written.
type inlineCommand hostSlot

func (m *inlineCommand) encode(b *batch) bool { return (*command)(m).encode(b) }

func (m *inlineCommand) written() { (*hostSlot)(m).written() }

// hostData is a slot whose data an R2T asked for; it is sent in H2CData PDUs of at most MAXH2CDATA.
type hostData hostSlot

func (m *hostData) encode(b *batch) bool {
	q, t := m.q, &m.transfer
	for t.off < t.end {
		if !b.fits(pdu.MaxHead+pdu.DigestSize, 3) {
			return false
		}
		n := min(t.end-t.off, q.maxH2CData)
		p := pdu.Data{Header: q.format.Header(pdu.TypeH2CData, int(n)),
			CCCID: m.cid, TTAG: t.ttag, DATAO: t.off, DATAL: n}
		data := m.data[t.off : t.off+n]
		t.off += n
		if t.off == t.end {
			p.Flags |= pdu.FlagLast
		}
		b.commit(p.Append(b.stage))
		b.gatherWhole(data, q.format)
		b.pdus[pdu.TypeH2CData]++
	}
	t.busy.Store(false)
	return true
}

func (m *hostData) written() { (*hostSlot)(m).written() }

// written records that one message no longer refers to the data.
func (s *hostSlot) written() {
	if s.sending.Add(-1) == waitingResponse {
		s.q.wake(s)
	}
}
