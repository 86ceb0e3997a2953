package target

import (
	"errors"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// engineState is the engine's part of a Request.
type engineState struct {
	q      *Queue
	ns     *Namespace // the one that the command uses, counted in it
	start  int64      // when the capsule arrived
	kind   opKind
	bytes  int    // payload, for the counters
	loc    uint16 // what is wrong in the command, for the error log: its byte, and above locBit its bit
	lba    uint64 // the first block in error, if hasLBA
	hasLBA bool
	detail uint64 // command specific information, for the error log, which sets it to 0 again

	length int            // of the memory requested
	step   func(*Request) // continues when there is memory
	then   func(*Request) // continues when the host's data is here
	page   []byte         // for replyPage; short

	io     blockdev.Request // to the volume
	at     atomic.Uint32    // NSID of the volume that has it; 0: none
	after  func(*Request)   // continues when the volume has answered
	viewed blockdev.Memory  // what Data is a view of
	view   blockdev.ViewToken
	chain  chain
	losses uint32 // the namespace's count when a flush was submitted, or the flush's own number if it failed

	mate      *Request                    // the other half of a fused operation; nil once the Compare is answered
	alone     *Namespace                  // the Write's namespace, which a fused operation has alone
	waited    bool                        // the pair waited for that; in the Write
	turn      bool                        // it was parked, and is let in before the next owner gets the namespace alone
	chainDone func(*Request, nvme.Status) // gets the end of a chain; nil: respond

	sampled bool // its stages are measured
	entered int64
	stages  [NumStages]int64 // nanoseconds

	hangUp    bool // disconnect when the response is sent
	hangUpErr error
}

// Places in a command that errors refer to: the byte of the field's first bit, and above locBit the bit in that byte
// (Error Information Log Entry, "Parameter Error Location").
const (
	locBit = 8

	offOpcode = 0
	offFUSE   = 1
	offPSDT   = 1 | 6<<locBit
	offNSID   = 4
	offSGL    = 24
	offCDW10  = 40
	offCDW11  = 44
	offCDW12  = 48
	offPRACT  = 51 | 5<<locBit
	noLoc     = 0xffff // not specific to a byte
)

// begin takes over a request that a transport submits.
func (r *Request) begin(q *Queue, now int64) {
	e := &r.engine
	e.q, e.ns, e.start, e.kind, e.bytes, e.loc, e.hasLBA = q, nil, now, opOther, 0, noLoc, false
	r.CQE.Reset()
	e.io.Loan, e.turn = 0, false
	r.InCapsule, r.Data, r.SendData = nil, r.Data[:0], false
	if e.io.Complete == nil {
		q.use(r)
		e.io.Unwanted = func() bool { return e.q.state.Load() == queueDown }
		e.io.Complete = func(io *blockdev.Request) {
			if io.Row != nil {
				e.q.gather(io.Row)
			}
			if e.at.Load() != 0 {
				e.at.Store(0)
			}
			r.leave(StageVolume)
			if io.Op == blockdev.OpFlush {
				r.flushed()
			}
			e.after(r)
		}
	}
}

// respond gives the request back with a status. Nothing of it may be touched afterwards.
func (r *Request) respond(st nvme.Status) {
	e := &r.engine
	q := e.q
	if !st.OK() {
		r.SendData = false
		st = q.noteError(r, st)
		r.logFailed(st)
	}
	if st.Code() != nvme.StatusAbortSQDeleted { // else its connection ended before it was completed
		ns := q.t.Now() - e.start
		q.io.count(e.kind, st, ns, e.bytes)
		if e.ns != nil {
			e.ns.shards[q.shard].io.count(e.kind, st, ns, e.bytes)
		}
	}
	q.complete(&r.CQE)
	r.CQE.SetCID(r.Cmd.CID())
	r.CQE.SetStatus(st)
	r.enter()
	q.conn.Respond(r)
}

// atBlock notes the first block in error.
func (r *Request) atBlock(lba uint64) { r.engine.lba, r.engine.hasLBA = lba, true }

// fail responds with an error caused by the field of the command at loc.
func (r *Request) fail(st nvme.Status, loc uint16) {
	r.engine.loc = loc
	r.respond(st | nvme.StatusDNR)
}

// noteError enters an error in the controller's log, and says so in the status. A Connect gets no entry.
func (q *Queue) noteError(r *Request, st nvme.Status) nvme.Status {
	if st.Code() == nvme.StatusAbortSQDeleted || !q.connected() || r.connects() {
		return st
	}
	st |= nvme.StatusMore
	q.ctrl.errors.add(r, st)
	return st
}

// Sent says that the transport needs nothing of r.Data any more: the response is on the wire (RDMA: and acknowledged),
// or the connection is dead. It is called exactly once for each Respond, also if it failed; afterwards the transport
// may use r for another command.
func (r *Request) Sent() {
	e := &r.engine
	if e.sampled {
		r.leave(StageSend)
		r.countStages(&e.q.io.stages)
		if e.ns != nil {
			r.countStages(&e.ns.shards[e.q.shard].io.stages)
		}
		e.sampled = false
	}
	if e.viewed != nil {
		m := e.viewed
		e.viewed = nil
		m.Release(e.view)
	}
	if e.ns != nil {
		e.ns.put(e.q.shard)
		e.ns = nil
	}
	if e.hangUp {
		err := e.hangUpErr
		e.hangUp, e.hangUpErr = false, nil
		e.q.disconnect(err)
	}
}

// mapSGL has the transport check the command's data pointer, which must describe want bytes. If it doesn't, mapSGL
// responds and returns false.
func (r *Request) mapSGL(want int) bool {
	n, ok := r.mapAnySGL()
	if ok && n != want {
		r.fail(nvme.StatusSGLLengthInvalid, offSGL)
		return false
	}
	return ok
}

// mapAnySGL is mapSGL for commands that accept several lengths.
func (r *Request) mapAnySGL() (int, bool) {
	n, st := r.engine.q.conn.MapSGL(r)
	if !st.OK() {
		if st.DNR() { // otherwise the fault isn't in the descriptor, but in what came
			r.engine.loc = offSGL
		}
		r.respond(st)
		return 0, false
	}
	return n, true
}

// withMemory continues with step when r.Data is n bytes of the transport's memory.
func (r *Request) withMemory(n int, step func(*Request)) {
	r.engine.length, r.engine.step = n, step
	r.enter()
	if r.engine.q.conn.Alloc(r, n) {
		step(r)
	}
}

// Resume says that Conn.Alloc, which returned false, may succeed now, or that the connection has ended.
func (r *Request) Resume() {
	e := &r.engine
	if e.q.state.Load() == queueDown {
		r.giveUp(nvme.StatusAbortSQDeleted)
		return
	}
	if e.q.qid != 0 && r.postponed((*Request).Resume) {
		return
	}
	if e.q.conn.Alloc(r, e.length) {
		r.leave(StageMemory)
		e.step(r)
	}
}

// withHostData continues with then when the n bytes that mapSGL found are in r.InCapsule or in r.Data.
func (r *Request) withHostData(n int, then func(*Request)) {
	r.engine.then = then
	if r.InCapsule != nil {
		then(r)
		return
	}
	r.withMemory(n, (*Request).pull)
}

func (r *Request) pull() {
	r.enter()
	r.engine.q.conn.Pull(r)
}

// Pulled says that Conn.Pull is done: r.Data holds the host's data, or err says why not, perhaps with the nvme.Status
// to respond with. Data that arrives when the connection is ending comes too late: the host goes on by another one.
func (r *Request) Pulled(err error) {
	if err != nil || r.engine.q.state.Load() == queueDown {
		r.notPulled(err)
		return
	}
	r.leave(StageReceive)
	r.engine.then(r)
}

// notPulled ends a command whose data didn't arrive.
func (r *Request) notPulled(err error) {
	if loan := r.engine.io.Loan; loan != 0 {
		r.engine.io.Loan = 0
		r.engine.ns.lender.Return(loan)
	}
	// Only Connect has data on a queue that isn't connected; the host may try again.
	r.engine.q.state.CompareAndSwap(queueConnecting, queueNew)
	st := nvme.StatusDataTransferError
	_ = errors.As(err, &st)
	r.giveUp(st)
}

// hostData copies the host's data, from byte off on, to b, which is not longer than the data.
func (r *Request) hostData(b []byte, off int) {
	if r.InCapsule != nil {
		copy(b, r.InCapsule[off:])
		return
	}
	for i := range r.Data {
		from := r.Data[i].Bytes
		if off >= len(from) {
			off -= len(from)
			continue
		}
		b = b[copy(b, from[off:]):]
		off = 0
	}
}

// replyPage responds with engine.page.
func (r *Request) replyPage() {
	page := r.engine.page
	r.engine.page = nil
	r.replyWith(page)
}

// replyWith responds with data: as much of a page as the host takes, followed by zeroes. The memory for it is
// allocated.
func (r *Request) replyWith(page []byte) {
	r.engine.bytes = r.Len()
	for i := range r.Data {
		n := copy(r.Data[i].Bytes, page)
		clear(r.Data[i].Bytes[n:])
		page = page[n:]
	}
	r.SendData = true
	r.respond(nvme.StatusSuccess)
}

// submit passes e.io to the volume; after continues when it has answered.
func (r *Request) submit(after func(*Request)) {
	r.engine.after = after
	r.enter()
	r.toVolume()
}
