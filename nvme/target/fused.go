package target

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Fused Compare and Write (NVM command set, section "Compare and Write"). The first command is held until the second
// arrives, which must be the next one of its queue. Then the pair gets the namespace alone, so that no other command of
// any host comes in between.
//
// Until then the pair has no memory of the transport, and afterwards only for one half at a time: pairs that had some,
// and waited for more or for the namespace, would deadlock with each other, and with commands that use the namespace
// and wait for memory. Most pairs have their data in their capsules anyway.

// fuse executes a command that is part of a fused operation.
func (r *Request) fuse() {
	q := r.engine.q
	first := r.Cmd.Fuse() == nvme.FuseFirst
	switch {
	case first && r.Cmd.Opcode() != nvme.OpCompare:
		r.fail(nvme.StatusInvalidField, offFUSE)
	case first:
		q.holdFused(r)
	default:
		mate := q.takeFused()
		switch {
		case mate == nil:
			r.respond(nvme.StatusAbortMissingFused)
		case r.Cmd.Opcode() != nvme.OpWrite:
			mate.respond(nvme.StatusAbortMissingFused)
			r.fail(nvme.StatusInvalidField, offFUSE)
		default:
			r.compareAndWrite(mate)
		}
	}
}

// holdFused keeps the first command until the next one comes. In any state other than queueConnected, which Submit saw,
// q.fused belongs to the goroutine that left queueFused.
func (q *Queue) holdFused(r *Request) {
	if q.state.Load() == queueConnected {
		q.fused = r
		if q.state.CompareAndSwap(queueConnected, queueFused) {
			if !q.ctrl.live.Load() && !q.ctrl.ended() { // changed after Submit looked; configure may have missed r
				q.dropFused()
			}
			return
		}
	}
	if q.state.Load() == queueDenied {
		r.respond(nvme.StatusOperationDenied)
		return
	}
	q.keep(r)
}

// takeFused takes the first command of a fused operation that is held; nil if none is. Only Submit holds and takes one,
// except when a connection ends, or a host fails to authenticate itself.
func (q *Queue) takeFused() *Request {
	if !q.state.CompareAndSwap(queueFused, queueConnected) {
		return nil
	}
	return q.fused
}

// dropFused responds to a first command whose second didn't come.
func (q *Queue) dropFused() {
	if r := q.takeFused(); r != nil {
		r.respond(nvme.StatusAbortMissingFused)
	}
}

// compareAndWrite executes a pair; r is the Write.
func (r *Request) compareAndWrite(compare *Request) {
	differs := uint16(noLoc)
	switch {
	case compare.Cmd.NSID() != r.Cmd.NSID():
		differs = offNSID
	case compare.Cmd.SLBA() != r.Cmd.SLBA():
		differs = offCDW10
	case compare.Cmd.Blocks() != r.Cmd.Blocks():
		differs = offCDW12
	}
	if differs != noLoc {
		compare.fail(nvme.StatusInvalidField, differs)
		r.fail(nvme.StatusInvalidField, differs)
		return
	}
	compare.engine.kind, r.engine.kind = opCompare, opWrite
	switch {
	case !compare.prepareFused(blockdev.OpRead):
		r.respond(nvme.StatusAbortFailedFused)
	case !r.prepareFused(blockdev.OpWrite):
		compare.respond(nvme.StatusAbortFailedFused)
	default:
		r.engine.io.FUA = r.durable()
		compare.engine.mate, r.engine.mate = r, compare
		r.waitAlone()
	}
}

// prepareFused checks one half. It responds and returns false if the half can't be executed.
func (r *Request) prepareFused(op blockdev.Op) bool {
	ns := r.engine.q.ctrl.namespace(r.Cmd.NSID())
	if !r.use(ns) {
		r.failNSID()
		return false
	}
	if st := ns.sub.sanitizing(); !st.OK() { // the pair would wait for it to end
		r.respond(st)
		return false
	}
	return r.blocks(op) && r.transfer()
}

// waitAlone continues when the pair has the namespace alone. Until then the pair doesn't use it: two pairs would wait
// for each other.
func (r *Request) waitAlone() {
	ns := r.engine.ns
	r.engine.mate.unuse()
	r.unuse()
	r.engine.waited = false
	ns.exclude(r, func() { r.runFused(ns) })
}

// runFused begins with the Compare, whose data it fetches. A pair that waited while its host is silent lets others have
// the namespace until the host is heard of.
func (r *Request) runFused(ns *Namespace) {
	compare := r.engine.mate
	down := r.engine.q.state.Load() == queueDown
	if r.engine.waited && !down && r.postponed(func(r *Request) { ns.exclude(r, func() { r.runFused(ns) }) }) {
		ns.include()
		return
	}
	r.engine.alone = ns
	if down {
		r.endFused(nvme.StatusAbortSQDeleted, nvme.StatusAbortSQDeleted)
		return
	}
	if !compare.use(ns) || !r.use(ns) {
		r.endFused(nvme.StatusInvalidNamespace|nvme.StatusDNR, nvme.StatusInvalidNamespace|nvme.StatusDNR)
		return
	}
	if st := compare.permission(ns.state.Load()); !st.OK() {
		r.endFused(st, nvme.StatusAbortFailedFused)
		return
	}
	if st := r.permission(ns.state.Load()); !st.OK() {
		r.endFused(nvme.StatusAbortFailedFused, st)
		return
	}
	if ns.protected.Load() {
		r.endFused(nvme.StatusAbortFailedFused, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)
		return
	}
	compare.withHostData(compare.engine.bytes, (*Request).haveFusedCompare)
}

func (r *Request) haveFusedCompare() {
	r.engine.chainDone = (*Request).fusedCompared
	r.compareData()
}

// fusedCompared answers the Compare, and continues with the data of the Write if the blocks were equal. r is the
// Compare.
func (r *Request) fusedCompared(st nvme.Status) {
	w := r.engine.mate
	if !st.OK() {
		w.endFused(st, nvme.StatusAbortFailedFused)
		return
	}
	w.endCompare(nvme.StatusSuccess)
	w.writeCompared()
}

// writeCompared continues with the Write after its Compare, for which it has waited. It keeps the namespace, as no other
// command may come in between.
func (r *Request) writeCompared() {
	switch {
	case r.engine.q.state.Load() == queueDown:
		r.endWrite(nvme.StatusAbortSQDeleted)
	case r.postponed((*Request).writeCompared):
	case r.InCapsule != nil && !r.engine.ns.aligned(r.InCapsule):
		r.withMemory(r.engine.bytes, (*Request).bounceFused)
	default:
		r.withHostData(r.engine.bytes, (*Request).writeFused)
	}
}

func (r *Request) bounceFused() {
	r.copyCapsule()
	r.useData()
	r.submit((*Request).fusedWritten)
}

func (r *Request) writeFused() {
	r.useHostData()
	r.submit((*Request).fusedWritten)
}

func (r *Request) fusedWritten() {
	st := nvme.StatusSuccess
	if err := r.engine.io.Err; err != nil {
		st = r.volumeStatus(err)
	}
	r.endWrite(st) // its blocks were readable, so none is marked
}

// endFused responds to both halves and opens the namespace to others. r is the Write.
func (r *Request) endFused(compared, written nvme.Status) {
	r.endCompare(compared)
	r.endWrite(written)
}

// endCompare responds to the Compare. r is the Write.
func (r *Request) endCompare(st nvme.Status) {
	compare := r.engine.mate
	compare.engine.mate, r.engine.mate = nil, nil
	compare.respond(st)
}

// endWrite responds to the Write, whose Compare is answered, and opens the namespace to others.
func (r *Request) endWrite(st nvme.Status) {
	ns := r.engine.alone
	r.engine.alone = nil
	r.respond(st)
	ns.include()
}

// giveUp responds to a command whose data isn't available, and to the other half of a pair.
func (r *Request) giveUp(st nvme.Status) {
	switch {
	case r.engine.mate != nil: // the Compare of a pair
		r.engine.mate.endFused(st, nvme.StatusAbortFailedFused)
	case r.engine.alone != nil:
		r.endWrite(st)
	default:
		r.respond(st)
	}
}
