package roce

import (
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// qp is a reliable connection. Everything in it is guarded by the device's lock.
type qp struct {
	d        *Device
	pd       *pd
	num      uint32
	index    int // in qpTable.all
	sendCQ   *cq
	recvCQ   *cq
	init     verbs.QPInitAttr
	attr     verbs.QPAttr // attr.State is the state
	path     *path        // from RTR on
	mtu      int          // payload bytes of a full packet of a WRITE or of the answer to a READ
	sendMTU  int          // the same for SENDs
	class    uint8        // traffic class of its packets
	engine   engine       // of the peer, from RTR on
	met      bool         // EventCommEst was raised
	freed    bool
	isReady  bool // in Device.ready
	isAcking bool // in Device.acking
	urgent   bool // its ACK leaves with its turn, not behind what others send
	more     bool // it has more than the batch being made has room for
	later    bool // requests other than WRITEs follow in that batch
	passed   bool // the batch had no room for them, see passOver

	cnpDue bool          // a congestion notification is to be sent
	cnpAt  time.Duration // when the last one was made; 0: never

	selective bool // the peer is of our kind: only what is lost is sent again
	noICRC    bool // agreed on with the peer
	writeSend bool // agreed on with the peer, see takeAlong
	ackAlong  bool // the same, see takeAck

	// fault is an error found while packets were put together, which takes effect once they have been sent.
	fault    bool
	faultWC  verbs.WCStatus
	faultEvt verbs.AsyncEventType

	bound []*mw // memory windows that only its peer may use

	sq   sendRing
	rq   recvRing
	resp responder
	req  requester
}

// CreateQP makes a queue pair in state RESET. UD queue pairs are not offered.
func (p *pd) CreateQP(init verbs.QPInitAttr) (verbs.QP, error) {
	d := p.d
	q, err := newQP(p, init)
	if err != nil {
		return nil, d.fail("create QP", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.usable("create QP"); err != nil {
		return nil, err
	}
	if q.sendCQ.freed || q.recvCQ.freed {
		return nil, d.failf("create QP", verbs.ErrInvalid, "completion queue is destroyed")
	}
	if !d.qps.add(q) {
		return nil, d.failf("create QP", verbs.ErrNoMemory, "%d queue pairs exist", maxQP)
	}
	p.refs++
	q.sendCQ.refs++
	q.recvCQ.refs++
	return q, nil
}

// Modify moves the queue pair to another state.
func (q *qp) Modify(attr verbs.QPAttr) error {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if attr.State == verbs.Err || attr.State == verbs.Reset {
		d.sendAnswers(q)
	}
	if q.freed {
		return q.failOp("modify", verbs.ErrClosed)
	}
	var err error
	switch from := q.attr.State; {
	case attr.State == verbs.Err:
		q.toError(verbs.WCSuccess, 0)
		q.resp.queue.clear()
		d.postedOutside()
	case attr.State == verbs.Reset:
		q.toReset()
		d.postedOutside() // by queue pairs that waited for its room
	case from == verbs.Reset && attr.State == verbs.Init:
		q.attr.Access = attr.Access
		q.attr.State = verbs.Init
	case from == verbs.Init && attr.State == verbs.RTR:
		err = q.toRTR(&attr)
	case from == verbs.RTR && attr.State == verbs.RTS:
		err = q.toRTS(&attr)
	default:
		err = q.failf("modify", verbs.ErrInvalid, "no transition from %s to %s", from, attr.State)
	}
	return err
}

func (q *qp) toRTR(a *verbs.QPAttr) error {
	remote := bare(a.Remote)
	switch {
	case !remote.IsValid() || remote.Is4() != q.d.self.Addr().Is4():
		return q.failf("modify to RTR", verbs.ErrInvalid, "remote address %v from %v", a.Remote, q.d.self.Addr())
	case a.PathMTU.Bytes() == 0 || a.PathMTU > q.d.attr.ActiveMTU:
		return q.failf("modify to RTR", verbs.ErrInvalid, "path MTU code %d: want 1 to %d", a.PathMTU, q.d.attr.ActiveMTU)
	case a.DestQPN < 2 || a.DestQPN >= uint32(wire.MaxQPN):
		return q.failf("modify to RTR", verbs.ErrInvalid, "destination QP %#x", a.DestQPN)
	case a.MaxDestRdAtomic > maxRdAtomic:
		return q.failf("modify to RTR", verbs.ErrInvalid, "MaxDestRdAtomic %d: want at most %d", a.MaxDestRdAtomic, maxRdAtomic)
	case a.PeerVendorID == vendorID && a.VendorOptions&^(q.d.VendorOptions()|OptionNoICRC) != 0:
		return q.failf("modify to RTR", verbs.ErrInvalid, "vendor options %#x: want those that the device has", a.VendorOptions)
	case a.MinRNRTimer > 31:
		return q.failf("modify to RTR", verbs.ErrInvalid, "MinRNRTimer %d: want at most 31", a.MinRNRTimer)
	}
	q.attr.Remote, q.attr.TrafficClass, q.attr.DestQPN = remote, a.TrafficClass, a.DestQPN
	q.attr.PathMTU, q.attr.RQPSN = a.PathMTU, a.RQPSN&0xffffff
	q.attr.MaxDestRdAtomic, q.attr.MinRNRTimer = a.MaxDestRdAtomic, a.MinRNRTimer
	q.class = q.d.classFor(a.TrafficClass)
	q.agree(a)
	q.engine = q.peerEngine()
	q.path = q.d.pathTo(remote)
	if q.noICRC {
		q.path.noICRC++
	}
	q.resp.start(wire.MakePSN(a.RQPSN), int(a.MaxDestRdAtomic))
	q.attr.State = verbs.RTR
	return nil
}

func (q *qp) toRTS(a *verbs.QPAttr) error {
	switch {
	case a.Timeout > 31 || a.RetryCnt > 7 || a.RNRRetry > 7:
		return q.failf("modify to RTS", verbs.ErrInvalid, "Timeout %d (want 0 to 31), RetryCnt %d or RNRRetry %d (want 0 to 7)",
			a.Timeout, a.RetryCnt, a.RNRRetry)
	case a.MaxRdAtomic > maxRdAtomic:
		return q.failf("modify to RTS", verbs.ErrInvalid, "MaxRdAtomic %d: want at most %d", a.MaxRdAtomic, maxRdAtomic)
	}
	q.attr.SQPSN, q.attr.Timeout, q.attr.RetryCnt = a.SQPSN&0xffffff, a.Timeout, a.RetryCnt
	q.attr.RNRRetry, q.attr.MaxRdAtomic = a.RNRRetry, a.MaxRdAtomic
	q.req.start(wire.MakePSN(a.SQPSN), int(a.MaxRdAtomic))
	q.attr.State = verbs.RTS
	return nil
}

// toReset forgets everything; work requests give no completion.
func (q *qp) toReset() {
	q.d.quiesce()
	q.letGo()
	if q.path != nil {
		if q.noICRC {
			q.path.noICRC--
		}
		q.d.releasePath(q.path)
		q.path = nil
	}
	q.unbindAll()
	q.req.head, q.req.cur, q.req.off = q.req.tail, q.req.tail, 0
	q.resp.head = q.resp.tail
	q.resp.queue.clear()
	q.resp.message = messageNone
	q.met, q.fault = false, false
	q.cnpDue, q.cnpAt = false, 0
	q.attr = verbs.QPAttr{State: verbs.Reset}
}

// toError moves the queue pair to ERR: the oldest send ends with status if that isn't success, everything else is
// flushed, and event is raised unless it is 0. Responses that are queued still leave, so that a NAK reaches the peer.
func (q *qp) toError(status verbs.WCStatus, event verbs.AsyncEventType) {
	if q.attr.State == verbs.Err {
		return
	}
	q.d.quiesce()
	q.attr.State = verbs.Err
	q.letGo()
	r := &q.req
	if status != verbs.WCSuccess && r.head != r.tail {
		q.completeSend(q.sq.at(r.head), status)
		r.head++
	}
	for ; r.head != r.tail; r.head++ {
		q.completeSend(q.sq.at(r.head), verbs.WCWRFlushErr)
	}
	r.cur, r.off = r.tail, 0
	rs := &q.resp
	for ; rs.head != rs.tail; rs.head++ {
		q.completeRecv(&verbs.WC{WRID: q.rq.at(rs.head).wrID, Status: verbs.WCWRFlushErr})
	}
	rs.message = messageNone
	if event != 0 {
		q.raise(event)
	}
}

// letGo gives back the window space that the requester holds, and stops its timers.
func (q *qp) letGo() {
	r := &q.req
	if q.path != nil {
		q.withdrawn(r.inflight)
		q.d.wakeForWindow(q.path)
		q.readsWithdrawn(r.readBytes)
		q.d.wakeForReads(q.path)
		q.waitNotToSend()
		q.waitNotToRead()
	}
	r.reads.clear()
	q.dropScore()
	q.dropHeld()
	r.deadline, r.rnrUntil = 0, 0
}

// faultLater moves the queue pair to ERR once what was put together before has been sent.
func (q *qp) faultLater(status verbs.WCStatus, event verbs.AsyncEventType) {
	if !q.fault {
		q.fault, q.faultWC, q.faultEvt = true, status, event
		q.d.faults = append(q.d.faults, q)
	}
}

// Query returns the attributes.
func (q *qp) Query() verbs.QPAttr {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return q.attr
}

// QPNum returns the queue pair's number.
func (q *qp) QPNum() uint32 { return q.num }

// Destroy frees the queue pair. When it returns, no memory of its work requests is in use any more, and none of its
// completions is left in a queue.
func (q *qp) Destroy() error {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sendAnswers(q)
	if q.freed {
		return q.failOp("destroy", verbs.ErrClosed)
	}
	q.toReset()
	q.freed = true
	q.sendCQ.clean(q.num)
	q.recvCQ.clean(q.num)
	q.sendCQ.refs--
	q.recvCQ.refs--
	q.pd.refs--
	d.qps.remove(q)
	d.postedOutside() // by queue pairs that waited for its room
	return nil
}

func (q *qp) completeSend(w *sendWQE, status verbs.WCStatus) {
	c := &q.d.counters
	if status != verbs.WCSuccess {
		c.inc(ReqCQEError)
		if status == verbs.WCWRFlushErr {
			c.inc(ReqCQEFlushError)
		}
	} else if w.flags&verbs.SendSignaled == 0 && !q.init.SQSigAll {
		return
	}
	wc := verbs.WC{WRID: w.wrID, Status: status, Opcode: sendWCOpcode[w.op], QPNum: q.num}
	if w.op == verbs.WRRDMARead || w.isAtomic() {
		wc.ByteLen = uint32(w.length)
	}
	q.push(q.sendCQ, &wc)
}

func (q *qp) completeRecv(wc *verbs.WC) {
	wc.QPNum = q.num
	if wc.Status == verbs.WCWRFlushErr {
		q.d.counters.inc(RespCQEFlushError)
	}
	q.push(q.recvCQ, wc)
}

// push delivers a completion. A full queue is fatal to the queue pair (IBTA 11.6.3.1).
func (q *qp) push(c *cq, wc *verbs.WC) {
	if !c.push(wc) && q.attr.State != verbs.Err {
		q.faultLater(verbs.WCSuccess, verbs.EventQPFatal)
	}
}

// raise queues an event for the handler.
func (q *qp) raise(e verbs.AsyncEventType) {
	if q.init.EventHandler != nil {
		q.d.calls = append(q.d.calls, call{qp: q, event: e})
	}
}

// meet raises EventCommEst for the first packet from the peer.
func (q *qp) meet() {
	if !q.met {
		q.met = true
		q.raise(verbs.EventCommEst)
	}
}

func newQP(p *pd, init verbs.QPInitAttr) (*qp, error) {
	q := &qp{d: p.d, pd: p, init: init}
	var ok bool
	if init.Type != verbs.RC {
		return nil, errorf(verbs.ErrUnsupported, "type %d: only reliable connections are offered", init.Type)
	}
	if q.sendCQ, ok = init.SendCQ.(*cq); !ok || q.sendCQ.d != p.d {
		return nil, errorf(verbs.ErrInvalid, "SendCQ is not of this device")
	}
	if q.recvCQ, ok = init.RecvCQ.(*cq); !ok || q.recvCQ.d != p.d {
		return nil, errorf(verbs.ErrInvalid, "RecvCQ is not of this device")
	}
	for _, l := range []struct {
		name        string
		value, most int
	}{
		{"MaxSendWR", init.MaxSendWR, maxQPWR},
		{"MaxRecvWR", init.MaxRecvWR, maxQPWR},
		{"MaxSendSGE", init.MaxSendSGE, maxSGE},
		{"MaxRecvSGE", init.MaxRecvSGE, maxSGE},
	} {
		if l.value < 0 || l.value > l.most {
			return nil, errorf(verbs.ErrInvalid, "%s %d: want 0 to %d", l.name, l.value, l.most)
		}
	}
	q.sq.ring = newRing[sendWQE](init.MaxSendWR, init.MaxSendSGE)
	q.rq = newRing[recvWQE](init.MaxRecvWR, init.MaxRecvSGE)
	return q, nil
}

// qpTable finds queue pairs by number. The numbers are random: an attacker who doesn't know the number of a connection
// has 8 million to try, or one million where several devices share an address. The number of a queue pair that is gone
// isn't reused soon: a peer that still waits for its last packets (TIMEWAIT) would take it for the old connection's.
type qpTable struct {
	all    []*qp
	slots  []*qp // by the low bits of the number
	random keySource
	mask   uint32          // the random bits of a number
	fixed  uint32          // the others
	gone   [1 << 12]uint32 // the numbers removed last, a ring
	goneAt int
}

const qpIndexMask = 1<<qpIndexBits - 1

func newQPTable(cfg *Config) qpTable {
	t := qpTable{slots: make([]*qp, 1<<qpIndexBits)}
	t.mask, t.fixed = cfg.numbers()
	return t
}

func (t *qpTable) add(q *qp) bool {
	if len(t.all) >= maxQP {
		return false
	}
	for {
		n := t.random.next()&t.mask | t.fixed
		special := n <= uint32(wire.QP1) || n == uint32(wire.MaxQPN)
		if slot := &t.slots[n&qpIndexMask]; !special && *slot == nil && !slices.Contains(t.gone[:], n) {
			q.num, q.index = n, len(t.all)
			*slot = q
			t.all = append(t.all, q)
			return true
		}
	}
}

func (t *qpTable) remove(q *qp) {
	t.slots[q.num&qpIndexMask] = nil
	t.gone[t.goneAt] = q.num
	t.goneAt = (t.goneAt + 1) % len(t.gone)
	last := len(t.all) - 1
	t.all[q.index] = t.all[last]
	t.all[q.index].index = q.index
	t.all[last] = nil
	t.all = t.all[:last]
}

func (t *qpTable) lookup(num wire.QPN) *qp {
	if q := t.slots[uint32(num)&qpIndexMask]; q != nil && q.num == uint32(num) {
		return q
	}
	return nil
}
