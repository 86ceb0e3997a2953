package target

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Compare and Write, fused (NVM command set, section "Compare and Write"). The first command
// is held until the second arrives, which must be the next of its queue. When the data of both
// is here, the pair gets the namespace alone, so that no other command of any host comes in
// between.

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

// holdFused keeps the first command until the next one comes. In any other state than
// queueConnected, which Submit saw, q.fused belongs to whoever left queueFused.
func (q *Queue) holdFused(r *Request) {
	if q.state.Load() == queueConnected {
		q.fused = r
		if q.state.CompareAndSwap(queueConnected, queueFused) {
			return
		}
	}
	if q.state.Load() == queueAuthenticating {
		r.fail(nvme.StatusAuthenticationRequired, noLoc)
		return
	}
	q.keep(r)
}

// takeFused takes the first command of a fused operation that is held; nil where none is. Only
// Submit holds one and takes it, but for a connection that ends or a host that fails to authenticate
// itself.
func (q *Queue) takeFused() *Request {
	if !q.state.CompareAndSwap(queueFused, queueConnected) {
		return nil
	}
	return q.fused
}

// dropFused answers a first command whose second didn't come.
func (q *Queue) dropFused(st nvme.Status) {
	if r := q.takeFused(); r != nil {
		r.respond(st)
	}
}

// compareAndWrite executes a pair; r is the Write.
func (r *Request) compareAndWrite(compare *Request) {
	switch {
	case compare.Cmd.NSID() != r.Cmd.NSID():
		compare.respond(nvme.StatusAbortFailedFused)
		r.fail(nvme.StatusInvalidField, offNSID)
		return
	case compare.Cmd.SLBA() != r.Cmd.SLBA():
		compare.respond(nvme.StatusAbortFailedFused)
		r.fail(nvme.StatusInvalidField, offCDW10)
		return
	case compare.Cmd.Blocks() != r.Cmd.Blocks():
		compare.respond(nvme.StatusAbortFailedFused)
		r.fail(nvme.StatusInvalidField, offCDW12)
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
		compare.withHostData(compare.engine.bytes, (*Request).haveFusedCompare)
	}
}

// prepareFused checks one half. It responds and returns false where it can't be executed.
func (r *Request) prepareFused(op blockdev.Op) bool {
	e := &r.engine
	ns := e.q.ctrl.namespace(r.Cmd.NSID())
	if ns == nil || !ns.get(e.q.shard) {
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		return false
	}
	e.ns = ns
	return r.blocks(op) && r.transfer()
}

// giveUp responds to a command whose data can't be had, and to its other half if it is fused.
func (r *Request) giveUp(st nvme.Status) {
	mate := r.engine.mate
	r.engine.mate = nil
	r.respond(st)
	if mate != nil {
		mate.engine.mate = nil
		mate.respond(nvme.StatusAbortFailedFused)
	}
}

// haveFusedCompare goes on with the data of the Write when that of the Compare is here.
func (r *Request) haveFusedCompare() {
	w := r.engine.mate
	w.withHostData(w.engine.bytes, (*Request).haveFusedWrite)
}

func (r *Request) haveFusedWrite() {
	if r.InCapsule != nil && !r.engine.ns.aligned(r.InCapsule) {
		r.withMemory(r.engine.bytes, (*Request).bounceFused)
		return
	}
	if r.InCapsule != nil {
		r.engine.io.Bufs = append(r.engine.io.Bufs, r.InCapsule)
	} else {
		r.useData()
	}
	r.waitAlone()
}

func (r *Request) bounceFused() {
	r.copyCapsule()
	r.useData()
	r.waitAlone()
}

// waitAlone goes on when the pair has the namespace alone. Until then it doesn't use it: two
// pairs would wait for each other.
func (r *Request) waitAlone() {
	ns := r.engine.ns
	for _, half := range []*Request{r.engine.mate, r} {
		half.engine.ns = nil
		ns.put(half.engine.q.shard)
	}
	ns.exclude(func() { r.runFused(ns) })
}

// runFused compares.
func (r *Request) runFused(ns *Namespace) {
	compare := r.engine.mate
	for _, half := range []*Request{compare, r} {
		if !ns.get(half.engine.q.shard) {
			r.endFused(ns, nvme.StatusInvalidNamespace|nvme.StatusDNR, nvme.StatusInvalidNamespace|nvme.StatusDNR)
			return
		}
		half.engine.ns = ns
	}
	if st := compare.permission(ns.state.Load()); !st.OK() {
		r.endFused(ns, st, nvme.StatusAbortFailedFused)
		return
	}
	if st := r.permission(ns.state.Load()); !st.OK() {
		r.endFused(ns, nvme.StatusAbortFailedFused, st)
		return
	}
	if ns.protected.Load() {
		r.endFused(ns, nvme.StatusAbortFailedFused, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)
		return
	}
	compare.engine.chainDone = (*Request).fusedCompared
	compare.compareData()
}

// fusedCompared writes, if the blocks were the same. r is the Compare.
func (r *Request) fusedCompared(st nvme.Status) {
	w := r.engine.mate
	if !st.OK() {
		w.endFused(w.engine.ns, st, nvme.StatusAbortFailedFused)
		return
	}
	w.submit((*Request).fusedWritten)
}

func (r *Request) fusedWritten() {
	st := nvme.StatusSuccess
	if err := r.engine.io.Err; err != nil {
		st = r.volumeStatus(err)
	}
	r.endFused(r.engine.ns, nvme.StatusSuccess, st) // its blocks were readable, so none is marked
}

// endFused responds to both and lets others at the namespace. r is the Write.
func (r *Request) endFused(ns *Namespace, compared, written nvme.Status) {
	compare := r.engine.mate
	compare.engine.mate, r.engine.mate = nil, nil
	compare.respond(compared)
	r.respond(written)
	ns.include()
}
