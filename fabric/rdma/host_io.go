package rdma

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Submit posts commands, or leaves them to the goroutine that is posting.
func (q *hostQueue) Submit(rs []*host.Request) {
	q.mu.Lock()
	if q.dead != nil {
		q.mu.Unlock()
		return // Sink.Closed reports it
	}
	q.ready = append(q.ready, rs...)
	q.post()
}

func (q *hostQueue) completed(wc *verbs.WC, _ int64) {
	kind, index := splitWRID(wc.WRID)
	if wc.Status != verbs.WCSuccess {
		if wc.Status != verbs.WCWRFlushErr {
			q.fail(q.connError("completion", &CompletionError{What: kindText[kind], Status: wc.Status}))
		}
		return
	}
	switch kind {
	case kindRecv:
		q.response(wc, index)
	case kindCommand:
		q.sendsDone(index)
	case kindInvalidate, kindInline:
		q.free(kind, index)
	}
}

// sendsDone frees n entries of the send queue: the completion of a signaled request also covers the unsignaled ones
// before it.
func (q *hostQueue) sendsDone(n int) {
	q.mu.Lock()
	q.sqUsed -= n
	q.mu.Unlock()
}

// response handles a response capsule: it makes sure that the key of its command is invalid, and delivers it.
func (q *hostQueue) response(wc *verbs.WC, index int) {
	if wc.ByteLen != nvme.CompletionSize {
		q.fail(q.connError("receive", fmt.Errorf("%w: response of %d bytes, want %d",
			ErrProtocol, wc.ByteLen, nvme.CompletionSize)))
		return
	}
	s, mr, err := q.answered(index, wc)
	if err != nil {
		q.fail(q.connError("receive", err))
		return
	}
	if mr != nil {
		_ = mr.Dereg()
	}
	if s != nil {
		q.deliver(&s.cqe)
	}
}

// answered takes the response from a receive buffer, which may then be posted again, and records that its command is
// answered. It returns the command's slot, or nil if the command's memory can't go back to its owner yet: then the
// response stays in the slot until free. mr is the registration that was made for the command, nil if there was none.
func (q *hostQueue) answered(index int, wc *verbs.WC) (done *slot, mr verbs.MR, err error) {
	cqe := nvme.CompletionAt(q.cqes[index*nvme.CompletionSize:])
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.attr.SlotOf(cqe.CID())
	if n >= len(q.slots) || q.slots[n].state != slotPosted {
		return nil, nil, notOutstanding(cqe)
	}
	s := &q.slots[n]
	if wc.Flags&verbs.WCWithInv != 0 {
		if s.key == 0 || s.key != wc.InvalidatedRKey {
			return nil, nil, fmt.Errorf("%w: invalidation of key %#x, which command %#x doesn't have",
				ErrProtocol, wc.InvalidatedRKey, cqe.CID())
		}
		s.key = 0
	}
	mr, s.mr = s.mr, nil
	s.cqe = *cqe
	q.recvs = append(q.recvs, index)
	q.unanswered--
	if s.key == 0 && !s.sending {
		s.state = slotIdle
		return s, mr, nil
	}
	s.state = slotAnswered
	if s.key != 0 {
		q.revoke = append(q.revoke, n)
	}
	return nil, mr, nil
}

// free records that the key of a command is invalid, or that its data won't be sent again, and delivers the response if
// that was waiting.
func (q *hostQueue) free(kind, index int) {
	q.mu.Lock()
	s := &q.slots[index]
	if kind == kindInvalidate {
		q.sqUsed--
		s.key = 0
	} else {
		q.sqUsed -= s.covers
		s.sending = false
	}
	waited := s.state == slotAnswered
	if waited {
		s.state = slotIdle
	}
	q.mu.Unlock()
	if waited {
		q.deliver(&s.cqe)
	}
}

func (q *hostQueue) deliver(cqe *nvme.Completion) {
	if !q.attr.Sink.Completed(cqe) {
		q.fail(q.connError("receive", notOutstanding(cqe)))
	}
}

func notOutstanding(cqe *nvme.Completion) error {
	return fmt.Errorf("%w: response to command %#x, which isn't outstanding", ErrProtocol, cqe.CID())
}

// takeReady moves as much as the send queue has room for into the batch and reports whether there is anything to post.
// Called with mu held.
func (q *hostQueue) takeReady() bool {
	q.batch.reset()
	q.takeRevokes()
	n := 0
	alone := len(q.ready) == 1
	for _, r := range q.ready {
		if q.full() {
			break
		}
		if !q.addCommand(r, alone) {
			break
		}
		n++
	}
	q.ready = q.ready[:copy(q.ready, q.ready[n:])]
	q.takeRecvs()
	return len(q.batch.send)+len(q.batch.recv) > 0
}

// full reports whether the send queue may have no room for a command. Called with mu held.
func (q *hostQueue) full() bool { return q.sqUsed+2 > q.sqSize }

// takeRecvs makes sure that there is a receive for each unanswered command. It posts no more than needed, and the most
// recently used buffers first, so that a queue with little to do cycles through few buffers, which stay in the caches;
// but when it has to post some it posts a few extra, so that it needn't post for every command.
func (q *hostQueue) takeRecvs() {
	posted := len(q.slots) - len(q.recvs)
	if posted >= q.unanswered {
		return
	}
	left := max(len(q.slots)-q.unanswered-spareRecvs, 0)
	for _, i := range q.recvs[left:] {
		e := partOf(q.cqeSGE, i, nvme.CompletionSize)
		q.batch.recv = append(q.batch.recv, verbs.RecvWR{WRID: wrID(kindRecv, i), SGList: q.batch.sge(e)})
	}
	q.recvs = q.recvs[:left]
}

// spareRecvs is the number of extra receives that are posted when some are needed.
const spareRecvs = 7

// takeRevokes invalidates the keys that the target didn't invalidate.
func (q *hostQueue) takeRevokes() {
	n := 0
	for _, i := range q.revoke {
		if q.sqUsed+1 > q.sqSize {
			break
		}
		q.t.counters.LocalInvalidates.Add(1)
		q.send(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: q.slots[i].key}, kindInvalidate, i)
		n++
	}
	q.revoke = q.revoke[:copy(q.revoke, q.revoke[n:])]
}

// send adds a work request. An invalidation is always signaled, and its completion covers only itself; a command is
// signaled every signalEvery sends, when it fills the queue, which then waits for it, and always if its data is sent from
// its own place; then it covers itself and those before it.
func (q *hostQueue) send(wr verbs.SendWR, kind, index int) {
	q.sqUsed++
	switch kind {
	case kindInvalidate:
		wr.WRID, wr.Flags = wrID(kind, index), verbs.SendSignaled
	case kindInline:
		wr.WRID, wr.Flags = wrID(kind, index), verbs.SendSignaled
		q.slots[index].covers = q.sqTail + 1
		q.sqTail = 0
	default:
		q.sqTail++
		wr.WRID = wrID(kind, q.sqTail) // if it fails it completes without having been signaled
		if q.sqTail == signalEvery || q.full() {
			wr.Flags = verbs.SendSignaled
			q.sqTail = 0
		}
	}
	q.batch.send = append(q.batch.send, wr)
}

// goesAlong reports whether n bytes of data are sent in their command's capsule, if the target accepts that many. A
// command that is posted alone has its data there: one round trip instead of two. With several commands, long trains
// matter more, and a train consists of packets of one size: capsules of one packet can form one, and between two of our
// RNICs all capsules can. Capsules of two packets, of different sizes, would be sent one by one, whereas commands, and
// data of two packets that the target READs, are sent in trains; data of more packets isn't, because the first and last
// packets of a READ response have an extra header.
func (q *hostQueue) goesAlong(n int, alone bool) bool {
	return n <= q.attr.InCapsule && (alone || q.evenSends || n+nvme.CommandSize <= q.mtu || n > 2*q.mtu)
}

// addCommand builds the capsule of r, including the data if it is sent in the capsule, and the work requests that lend
// its memory and send it. It returns false if the connection has failed.
func (q *hostQueue) addCommand(r *host.Request, alone bool) bool {
	i := int(r.Slot)
	s := &q.slots[i]
	capsule := q.capsules[i*q.capsuleSize:][:q.capsuleSize]
	cmd := nvme.CommandAt(capsule)
	*cmd = r.Cmd
	cmd.SetFlags(cmd.Flags()&0x3f | nvme.FlagsSGL)
	list := q.batch.sge(verbs.SGE{
		Addr:   q.capsuleSGE.Addr + uint64(i*q.capsuleSize),
		Length: nvme.CommandSize,
		LKey:   q.capsuleSGE.LKey,
	})
	switch {
	case len(r.Data) == 0 || cmd.Direction() == nvme.NoData:
		cmd.SGL1().SetKeyed(nvme.SGLKeyed, 0, 0, 0)
	case cmd.Direction() == nvme.HostToCtrl && q.goesAlong(len(r.Data), alone):
		list, s.sending = q.inCapsule(r, cmd, capsule, list)
	default:
		if err := q.lend(s, r.Data, cmd); err != nil {
			// Called in a new goroutine: fail takes mu, which is held here.
			go q.fail(q.connError("register memory", err))
			return false
		}
	}
	s.state = slotPosted
	q.unanswered++
	q.t.counters.Capsules.Add(1)
	kind := kindCommand
	if s.sending {
		kind = kindInline
	}
	q.send(verbs.SendWR{Opcode: verbs.WRSend, SGList: list}, kind, i)
	return true
}

// inCapsule sends the data with the command: from where it lies if that memory is registered, else from a copy in the
// capsule. The result is true in the first case.
func (q *hostQueue) inCapsule(r *host.Request, cmd *nvme.Command, capsule []byte, list []verbs.SGE) ([]verbs.SGE, bool) {
	q.t.counters.InCapsule.Add(1)
	cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(len(r.Data)))
	if e, _, ok := q.t.memory.sge(q.dom, r.Data); ok {
		first := len(q.batch.sges)
		q.batch.sges = append(q.batch.sges, list[0], e)
		return q.batch.since(first), true
	}
	n := copy(capsule[nvme.CommandSize:], r.Data)
	list[0].Length += uint32(n)
	return list, false
}

// lend gives the target a key to data, for this command: a window over memory from Alloc, or, for any other memory and
// on devices without windows, a registration of its own, which costs more.
func (q *hostQueue) lend(s *slot, data []byte, cmd *nvme.Command) error {
	access := verbs.AccessRemoteRead
	if cmd.Direction() == nvme.CtrlToHost {
		access = verbs.AccessRemoteWrite
	}
	if e, mr, ok := q.t.memory.sge(q.dom, data); ok && s.window != nil {
		s.key = s.window.RKey()
		q.send(verbs.SendWR{
			Opcode: verbs.WRBindMW, MW: s.window,
			Bind: verbs.MWBind{MR: mr, Addr: e.Addr, Length: uint64(len(data)), Access: access},
		}, kindCommand, 0)
		cmd.SGL1().SetKeyed(nvme.SGLKeyedInvalidate, e.Addr, uint32(len(data)), s.key)
		return nil
	}
	mr, err := q.dom.pd.RegMR(data, access|verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	q.t.counters.Registered.Add(1)
	s.mr = mr
	cmd.SGL1().SetKeyed(nvme.SGLKeyed, mr.Addr(), uint32(len(data)), mr.RKey())
	return nil
}
