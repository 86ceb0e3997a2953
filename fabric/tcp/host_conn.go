package tcp

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// hostQueue is one connection to a controller. It implements host.TransportQueue for the host
// core, and pduHandler for its reader, whose goroutine is the only one that calls the Sink.
type hostQueue struct {
	t       *Transport
	conn    socket.Conn
	attr    host.QueueAttr
	digests pdu.Digests // requested, and therefore agreed
	r       *reader
	w       *writer
	slots   []hostSlot

	// Agreed with ICResp; constant afterwards.
	format     pdu.Format // of the PDUs that we send
	maxH2CData uint32     // bytes

	ready chan struct{} // closed when ICResp was accepted
	// decided is set by whichever comes first: Dial, which then succeeds, or the connection's end, which the Sink
	// isn't told of then, because Dial fails.
	decided atomic.Bool
	ended   chan struct{} // closed when the connection is gone and the Sink or Dial knows
	err     error         // why it ended; read after ended

	inBatch bool
	cur     *hostSlot // slot whose data is arriving; belongs to the reader
	closing atomic.Bool

	lateMu sync.Mutex
	late   []*hostSlot // responses that waited for their command's data to be sent
}

func newHostQueue(t *Transport, conn socket.Conn, a host.QueueAttr) *hostQueue {
	q := &hostQueue{t: t, conn: conn, attr: a, digests: t.cfg.digests(), ready: make(chan struct{}), ended: make(chan struct{})}
	q.r = newReader(conn, q, pdu.Host, t.cfg.BusyPoll)
	q.w = newWriter(conn, &t.counters.Out)
	q.slots = make([]hostSlot, a.SlotOf(0xffff)+1)
	for i := range q.slots {
		q.slots[i].q = q
	}
	t.counters.Accepted.Add(1)
	t.counters.Connections.Add(1)
	return q
}

// serve runs the connection to its end.
func (q *hostQueue) serve() { q.end(q.r.run()) }

// Submit implements host.TransportQueue.
func (q *hostQueue) Submit(rs []*host.Request) {
	for _, r := range rs {
		q.slots[q.attr.SlotOf(r.Cmd.CID())].prepare(r, q.inlineLimit(&r.Cmd))
	}
	q.w.mu.Lock()
	for _, r := range rs {
		q.slots[q.attr.SlotOf(r.Cmd.CID())].post(q.w)
	}
	q.w.unlockAndSend()
}

// inlineLimit returns how many bytes of data the capsule of cmd may carry.
func (q *hostQueue) inlineLimit(cmd *nvme.Command) int {
	if q.attr.QID == 0 || cmd.Opcode() == nvme.OpFabrics {
		return fabricsInCapsule
	}
	return q.attr.InCapsule
}

// Size implements host.TransportQueue.
func (q *hostQueue) Size() int { return q.attr.Size }

// Local implements host.TransportQueue.
func (q *hostQueue) Local() netip.AddrPort { return q.conn.LocalAddr() }

// Close implements host.TransportQueue. It must not be called from the Sink.
func (q *hostQueue) Close() error {
	q.closing.Store(true)
	q.shut()
	<-q.ended
	return nil
}

// shut wakes the reader, which ends the connection.
func (q *hostQueue) shut() { _ = q.conn.CloseRead() }

// batch implements pduHandler.
func (q *hostQueue) batch() {
	q.inBatch = true
	q.w.hold()
}

// flush implements pduHandler.
func (q *hostQueue) flush() (sent bool, err error) {
	if q.inBatch {
		q.inBatch = false
		sent = q.w.release()
		q.r.tally.publish(&q.t.counters.In)
	}
	if q.closing.Load() {
		return sent, ErrClosed
	}
	return sent, nil
}

// header implements pduHandler.
func (q *hostQueue) header(h pdu.Header, b []byte) error {
	switch h.Type {
	case pdu.TypeCapsuleResp:
		return q.response(nvme.CompletionAt(b[pdu.HeaderSize:]))
	case pdu.TypeC2HData:
		return q.controllerData(b)
	case pdu.TypeR2T:
		return q.readyToTransfer(b)
	case pdu.TypeICResp:
		return q.initialized(b)
	}
	return terminatedBy(q.attr.Remote, b)
}

// initialized handles the ICResp.
func (q *hostQueue) initialized(b []byte) error {
	p, err := pdu.ParseICResp(b)
	if err != nil {
		return err
	}
	if err := p.Check(q.digests); err != nil {
		return err
	}
	q.format = pdu.Format{Digests: q.digests, PDA: p.CPDA}
	q.maxH2CData = p.MAXH2CDATA
	q.r.rules.Ready = true
	q.r.rules.Format = pdu.Format{Digests: q.digests} // our HPDA is 0
	_ = q.conn.SetReadDeadline(time.Time{})
	close(q.ready)
	return nil
}

// find returns the slot of an outstanding command, or nil.
func (q *hostQueue) find(cid uint16) *hostSlot {
	s := &q.slots[q.attr.SlotOf(cid)]
	if !s.sent.Load() || s.cid != cid {
		return nil
	}
	return s
}

// response handles a CapsuleResp.
func (q *hostQueue) response(cqe *nvme.Completion) error {
	s := q.find(cqe.CID())
	if s == nil {
		return pdu.Invalid(pdu.OffCID, "CID of the response")
	}
	return q.complete(s, cqe)
}

// complete ends the command of s, unless its data is still being sent.
func (q *hostQueue) complete(s *hostSlot, cqe *nvme.Completion) error {
	if cqe.Status().OK() {
		switch {
		case s.lacksData():
			q.t.counters.ShortData.Add(1)
			cqe.SetStatus(nvme.StatusDataTransferError)
		case s.badData:
			cqe.SetStatus(nvme.StatusTransientTransport)
		case s.atMost:
			// AL is an allocation length: SPDK sends the message alone, Linux adds zeroes to it.
			clear(s.data[s.received:])
		}
	}
	if s.write {
		s.cqe = *cqe
		switch n := s.sending.Add(waitingResponse); {
		case n >= 2*waitingResponse:
			return pdu.Invalid(pdu.OffCID, "CID of a second response")
		case n != waitingResponse:
			return nil // the sender's call of written wakes us
		}
		s.sending.Store(0)
	}
	return q.deliver(s, cqe)
}

// deliver hands the response to the Sink.
func (q *hostQueue) deliver(s *hostSlot, cqe *nvme.Completion) error {
	s.sent.Store(false)
	s.req, s.data = nil, nil
	if !q.attr.Sink.Completed(cqe) {
		return pdu.Invalid(pdu.OffCID, "CID of the response")
	}
	return nil
}

// controllerData handles the header of a C2HData PDU.
func (q *hostQueue) controllerData(b []byte) error {
	p, err := pdu.ParseData(b)
	if err != nil {
		return err
	}
	s := q.find(p.CCCID)
	if s == nil {
		return pdu.Invalid(pdu.OffCCCID, "CCCID")
	}
	if !s.read || s.last {
		return &pdu.FieldError{FES: pdu.FESSequence, Field: "data that isn't expected"}
	}
	if err := p.Check(); err != nil {
		return err
	}
	if err := p.CheckRange(int(s.received), len(s.data)); err != nil {
		return err
	}
	s.received += p.DATAL
	s.last = p.Flags&pdu.FlagLast != 0
	q.r.place(s.data[p.DATAO:s.received])
	q.cur = s
	return nil
}

// data implements pduHandler.
func (q *hostQueue) data(h pdu.Header, ok bool) error {
	s := q.cur
	q.cur = nil
	if !ok {
		q.t.counters.DataDigestErrors.Add(1)
		s.badData = true
	}
	if h.Flags&pdu.FlagSuccess == 0 {
		return nil
	}
	q.t.counters.Successes.Add(1)
	s.cqe.Reset()
	s.cqe.SetCID(s.cid)
	return q.complete(s, &s.cqe)
}

// readyToTransfer handles an R2T. We sent MAXR2T 0, which allows one R2T at a time per command.
func (q *hostQueue) readyToTransfer(b []byte) error {
	p, err := pdu.ParseR2T(b)
	if err != nil {
		return err
	}
	s := q.find(p.CCCID)
	if s == nil || !s.write || s.inline || s.sending.Load() >= waitingResponse { // the last: it is answered, and ends any moment
		return pdu.Invalid(pdu.OffCCCID, "CCCID")
	}
	t := &s.transfer
	if t.busy.Load() {
		return &pdu.FieldError{FES: pdu.FESLimitExceeded, Field: "R2T while another is in progress"}
	}
	if p.R2TO != t.granted {
		return &pdu.FieldError{FES: pdu.FESSequence, Field: "R2TO"}
	}
	if p.R2TL == 0 || int64(p.R2TL) > int64(len(s.data))-int64(t.granted) {
		return pdu.Invalid(pdu.OffDATAL, "R2TL")
	}
	t.granted += p.R2TL
	t.ttag, t.off, t.end = p.TTAG, p.R2TO, t.granted
	t.busy.Store(true)
	s.sending.Add(1)
	q.w.post((*hostData)(s), int(p.R2TL))
	return nil
}

// wake makes the reader deliver the response of s, whose data has now been sent.
func (q *hostQueue) wake(s *hostSlot) {
	q.lateMu.Lock()
	q.late = append(q.late, s)
	q.lateMu.Unlock()
	q.r.interrupt()
}

// interrupted implements pduHandler: wake was called, or the time for ICResp is over.
func (q *hostQueue) interrupted() error {
	select {
	case <-q.ready:
	default:
		return fmt.Errorf("no ICResp within %v: %w", q.t.cfg.ConnectTimeout, os.ErrDeadlineExceeded)
	}
	q.r.resume()
	q.lateMu.Lock()
	late := q.late
	q.late = nil
	q.lateMu.Unlock()
	q.batch()
	for _, s := range late {
		s.sending.Store(0)
		if err := q.deliver(s, &s.cqe); err != nil {
			return err
		}
	}
	return nil
}

// end takes the connection down because of err, in the reader's goroutine.
func (q *hostQueue) end(err error) {
	q.r.tally.publish(&q.t.counters.In)
	fault, err := q.reason(err)
	if fault != nil {
		q.w.limit(lingerTime)
		q.w.seal(newPlain(q.r.termReq(fault)))
	} else {
		q.w.kill(ErrClosed)
		q.w.limit(0)
	}
	q.w.settle()
	q.w.kill(ErrClosed)
	q.w.settle()
	if fault != nil {
		linger(q.conn)
	}
	q.w.close()
	abort(q.conn)
	q.t.counters.Connections.Add(-1)
	q.err = err
	if !q.decided.CompareAndSwap(false, true) {
		q.attr.Sink.Closed(err)
	}
	close(q.ended)
	q.t.queues.End()
}

// reason converts the error that ended the reader to the one that the host core sees, which is nil
// after Close. It also returns the fault of the peer, if that is what ended the connection and the
// peer is to be told.
func (q *hostQueue) reason(err error) (*pdu.FieldError, error) {
	var fault *pdu.FieldError
	switch {
	case q.closing.Load():
		return nil, nil
	case errors.As(err, &fault):
		return q.r.protocolError(fault, q.attr.Remote, &q.t.counters)
	case errors.Is(err, ErrTerminated):
		return nil, err
	}
	if we := q.w.sendError(); we != nil {
		return nil, &ConnError{Stage: "send", Peer: q.attr.Remote, Err: we}
	}
	if errors.Is(err, io.EOF) {
		err = ErrPeerClosed
	}
	return nil, &ConnError{Stage: "receive", Peer: q.attr.Remote, Err: err}
}
