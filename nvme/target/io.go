package target

import (
	"errors"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// io executes a command of an I/O queue.
func (r *Request) io() {
	switch r.Cmd.Opcode() {
	case nvme.OpRead:
		r.read()
	case nvme.OpWrite:
		r.write()
	case nvme.OpFlush:
		r.flush()
	case nvme.OpWriteZeroes:
		r.writeZeroes()
	case nvme.OpDSM:
		r.datasetManagement()
	case nvme.OpCompare:
		r.compare()
	case nvme.OpVerify:
		r.verify()
	case nvme.OpCopy:
		r.copyBlocks()
	case nvme.OpWriteUncorrectable:
		r.writeUncorrectable()
	case nvme.OpResvRegister, nvme.OpResvAcquire, nvme.OpResvRelease:
		r.reservationCommand()
	case nvme.OpResvReport:
		r.reservationReport()
	default:
		r.fail(nvme.StatusInvalidOpcode, offOpcode)
	}
}

// writable reports whether the namespace takes writes. If it doesn't, writable responds.
func (r *Request) writable() bool {
	if r.engine.ns.protected.Load() {
		r.fail(nvme.StatusNamespaceWriteProtected, noLoc)
		return false
	}
	return true
}

// covers reports whether the command's blocks are within the namespace.
func (ns *Namespace) covers(cmd *nvme.Command) bool {
	size, slba := ns.blocks.Load(), cmd.SLBA()
	return slba < size && uint64(cmd.Blocks()) <= size-slba
}

// inRange reports whether the command's blocks are within the namespace. If they aren't, it responds.
func (r *Request) inRange() bool {
	if ns := r.engine.ns; !ns.covers(&r.Cmd) {
		r.atBlock(max(r.Cmd.SLBA(), ns.blocks.Load()))
		r.fail(nvme.StatusLBAOutOfRange, offCDW10)
		return false
	}
	return true
}

// blocks reads SLBA and NLB, checks them, and sets the range of e.io. If the blocks are beyond the end of the
// namespace, it responds and returns false.
func (r *Request) blocks(op blockdev.Op) bool {
	if !r.inRange() {
		return false
	}
	shift := r.engine.ns.shift
	r.ask(op, int64(r.Cmd.SLBA()<<shift), int64(r.Cmd.Blocks())<<shift)
	return true
}

// ask makes e.io a request for a range, without buffers.
func (r *Request) ask(op blockdev.Op, offset, length int64) {
	io := &r.engine.io
	io.Op, io.FUA, io.MayUnmap = op, false, false
	io.Offset, io.Length, io.Bufs = offset, length, io.Bufs[:0]
}

// transfer checks the length of the data that the command moves, against MDTS and its SGL.
func (r *Request) transfer() bool {
	e := &r.engine
	if e.io.Length > int64(e.q.attr.MaxTransfer) {
		r.fail(nvme.StatusInvalidField, offCDW12)
		return false
	}
	e.bytes = int(e.io.Length)
	return r.mapSGL(e.bytes)
}

func (r *Request) read() {
	e := &r.engine
	e.kind = opRead
	if !r.namespace() || !r.blocks(blockdev.OpRead) || !r.transfer() {
		return
	}
	if m := e.ns.memory; m != nil {
		segs, token, err := m.View(r.Data[:0], e.io.Offset, e.io.Length)
		if err == nil {
			r.Data, r.SendData = segs, true
			e.viewed, e.view = m, token
			r.endRead()
			return
		}
		//nolint:errorlint // the usual error first, because errors.Is costs an allocation
		if err != blockdev.ErrView && !errors.Is(err, blockdev.ErrBusy) {
			r.volumeFailed(err)
			return
		}
	}
	r.withMemory(e.bytes, (*Request).readVolume)
}

func (r *Request) readVolume() {
	r.useData()
	r.submit((*Request).haveRead)
}

func (r *Request) haveRead() {
	if err := r.engine.io.Err; err != nil {
		r.volumeFailed(err)
		return
	}
	r.SendData = true
	r.endRead()
}

// endRead responds to a Read, whose data is ready.
func (r *Request) endRead() {
	if !r.durableRead() {
		r.respond(nvme.StatusSuccess)
		return
	}
	r.prepareFlush()
	r.submit(func(r *Request) { r.respond(r.durableReadStatus()) })
}

// useData makes r.Data the buffers of e.io.
func (r *Request) useData() {
	e := &r.engine
	for i := range r.Data {
		e.io.Bufs = append(e.io.Bufs, r.Data[i].Bytes)
	}
}

func (r *Request) write() {
	e := &r.engine
	e.kind = opWrite
	if !r.namespace() || !r.writable() || !r.blocks(blockdev.OpWrite) || !r.transfer() {
		return
	}
	e.io.FUA = r.durable()
	switch {
	case r.InCapsule == nil && e.ns.lender != nil:
		r.borrow()
	case r.InCapsule != nil && !e.ns.aligned(r.InCapsule):
		r.withMemory(e.bytes, (*Request).bounce)
	default:
		r.withHostData(e.bytes, (*Request).writeVolume)
	}
}

// borrow receives the host's data directly into memory of the volume, or, if the volume has none free now, into the
// transport's.
func (r *Request) borrow() {
	e := &r.engine
	segs, loan, err := e.ns.lender.Lend(r.Data[:0], e.io.Length)
	switch {
	case err == nil:
		r.Data, e.io.Loan, e.then = segs, loan, (*Request).writeLent
		r.pull()
	case err == blockdev.ErrView || errors.Is(err, blockdev.ErrBusy): //nolint:errorlint // as in read
		r.withHostData(e.bytes, (*Request).writeVolume)
	default:
		r.volumeFailed(err)
	}
}

// writeLent passes back to the volume, as a write, the memory that it lent.
func (r *Request) writeLent() { r.submit((*Request).volumeDone) }

// aligned reports whether the volume accepts b as a buffer.
func (ns *Namespace) aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&ns.align == 0
}

// alignedMemory returns n bytes that begin at a multiple of align, which is a power of two.
func alignedMemory(n, align int) []byte {
	b := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n : skip+n]
}

// bounce copies data from the capsule to memory that is aligned for the volume.
func (r *Request) bounce() {
	r.copyCapsule()
	r.useData()
	r.submit((*Request).volumeDone)
}

func (r *Request) copyCapsule() {
	from := r.InCapsule
	for i := range r.Data {
		from = from[copy(r.Data[i].Bytes, from):]
	}
}

func (r *Request) writeVolume() {
	r.useHostData()
	r.submit((*Request).volumeDone)
}

// useHostData makes the host's data, which has arrived, the buffers of e.io.
func (r *Request) useHostData() {
	if r.InCapsule != nil {
		r.engine.io.Bufs = append(r.engine.io.Bufs, r.InCapsule)
	} else {
		r.useData()
	}
}

// volumeDone ends a command that returns no data.
func (r *Request) volumeDone() {
	if err := r.engine.io.Err; err != nil {
		r.volumeFailed(err)
		return
	}
	if r.engine.ns.state.Load()&nsDamaged != 0 {
		r.heal(r.commandRange())
		return
	}
	r.respond(nvme.StatusSuccess)
}

func (r *Request) volumeFailed(err error) { r.respond(r.volumeStatus(err)) }

// volumeStatus returns the status for an error of the volume, which it logs and counts.
func (r *Request) volumeStatus(err error) nvme.Status {
	e := &r.engine
	st := volumeStatus(e.io.Op, err)
	if errors.Is(err, blockdev.ErrUnwanted) {
		return st
	}
	if errors.Is(err, blockdev.ErrMedium) {
		e.ns.mediaErrors.Add(1)
	}
	var at *blockdev.OpError
	if errors.As(err, &at) && at.Offset >= 0 {
		r.atBlock(uint64(at.Offset) >> e.ns.shift)
	}
	e.q.t.log.Warn("I/O error of a volume", r.identity("err", err)...)
	return st
}

func (r *Request) writeZeroes() {
	e := &r.engine
	if !r.namespace() || !r.writable() || !r.blocks(blockdev.OpWriteZeroes) {
		return
	}
	e.io.FUA = r.durable()
	e.io.MayUnmap = r.Cmd.IOControl()&nvme.ControlDEAC != 0
	e.ns.zeroes.Add(1)
	r.submit((*Request).volumeDone)
}

func (r *Request) flush() {
	if r.Cmd.NSID() == nvme.NSIDAll {
		r.flushAll()
		return
	}
	if !r.namespace() {
		return
	}
	r.prepareFlush()
	r.submit(func(r *Request) { r.respond(r.flushStatus()) })
}

func (r *Request) prepareFlush() {
	r.ask(blockdev.OpFlush, 0, 0)
	r.engine.losses = r.engine.ns.losses.count.Load()
}

// flushAll flushes one namespace after the other.
func (r *Request) flushAll() {
	if st := r.engine.q.ctrl.sub.sanitizing(); !st.OK() {
		r.respond(st)
		return
	}
	all := r.engine.q.ctrl.all()
	for _, ns := range all {
		st := r.engine.q.ctrl.access(ns)
		if st.OK() {
			st = r.mayChange(ns)
		}
		if !st.OK() {
			r.respond(st)
			return
		}
	}
	r.engine.chain.table = all
	r.run(0, (*Request).nextFlush)
}

func (r *Request) nextFlush() bool {
	e := &r.engine
	c := &e.chain
	if c.started {
		if st := r.flushStatus(); !st.OK() {
			r.endChain(st)
			return false
		}
		r.unuse()
	}
	for c.pos < len(c.table) {
		ns := c.table[c.pos]
		c.pos++
		if ns.get(e.q.shard) {
			e.ns = ns
			r.prepareFlush()
			return true
		}
	}
	r.endChain(nvme.StatusSuccess)
	return false
}
