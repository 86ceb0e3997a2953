package target

import "github.com/nvme-anywhere/nvmeof/nvme"

// Write protection that a host set lasts until a host lifts it, also across restarts if there is a Store (NVMe base,
// "Namespace Write Protection"). What was written before is durable from then on.

// States of feature 84h.
const (
	writeOpen      = 0
	writeProtected = 1
)

// setWriteProtect sets or lifts write protection of a namespace, for all its hosts.
func (r *Request) setWriteProtect() {
	c := r.engine.q.ctrl
	ns := c.namespace(r.Cmd.NSID())
	state := r.Cmd.CDW(11) & 7
	switch {
	case ns == nil:
		r.fail(nvme.StatusInvalidNamespace, offNSID)
	case c.anaState(ns.anaGroup) == nvme.ANAPersistentLoss: // the one state without this feature
		r.respond(nvme.StatusANAPersistentLoss)
	case !c.sub.sanitizing().OK():
		r.respond(c.sub.sanitizing())
	case state > writeProtected:
		r.fail(nvme.StatusInvalidField, offCDW11)
	case ns.fixed && state == writeOpen:
		r.fail(nvme.StatusFeatureNotChangeable, offCDW11)
	case state == writeProtected && !ns.fixed: // even if it is protected: another host may be lifting that
		ns.exclude(r, func() { r.commitWrites(ns) })
	case !r.use(ns): // until it is saved: what is stored may be another namespace's when this one is gone
		r.fail(nvme.StatusInvalidNamespace, offNSID)
	default:
		r.saving(func() { r.respond(r.protect(ns, state == writeProtected)) })
	}
}

// commitWrites makes durable what was written to a namespace that is to be write protected. r has the namespace alone,
// so no write is under way.
func (r *Request) commitWrites(ns *Namespace) {
	if !r.use(ns) {
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		ns.include()
		return
	}
	if ns.protected.Load() { // if that is being lifted, nothing is written before r protects it again
		r.committed(nvme.StatusSuccess)
		return
	}
	r.engine.chainDone = (*Request).committed
	r.run(0, (*Request).nextCommit)
}

func (r *Request) nextCommit() bool {
	if r.engine.chain.started {
		r.endChain(r.flushStatus())
		return false
	}
	r.prepareFlush()
	return true
}

// committed protects the namespace, unless the flush failed.
func (r *Request) committed(st nvme.Status) {
	if !st.OK() {
		r.endProtect(st)
		return
	}
	r.saving(func() { r.endProtect(r.protect(r.engine.ns, true)) })
}

// endProtect responds, and opens the namespace to others again.
func (r *Request) endProtect(st nvme.Status) {
	ns := r.engine.ns
	r.respond(st)
	ns.include()
}

// protect sets or lifts write protection, unless that would interfere with a sanitize operation, which must be able to
// erase the namespace, and tells the other hosts.
func (r *Request) protect(ns *Namespace, on bool) nvme.Status {
	c := r.engine.q.ctrl
	c.sub.sanitize.mu.Lock()
	st := c.sub.sanitizing()
	var changed bool
	var err error
	if st.OK() {
		changed, err = ns.protect(on)
	}
	c.sub.sanitize.mu.Unlock()
	if err != nil {
		c.t.log.Warn("write protection not saved: the command fails", "subsystem", c.sub.nqn, "nsid", ns.nsid, "err", err)
		return nvme.StatusInternalError
	}
	if changed {
		c.sub.namespaceChanged(ns.nsid, c)
	}
	return st
}

// loadProtection loads what a host set.
func (ns *Namespace) loadProtection() error {
	b, err := ns.loadState(stateProtected)
	if err == nil && b != nil {
		ns.protected.Store(true)
	}
	return err
}

// protect sets or lifts write protection, after that is saved, and reports whether it changed.
func (ns *Namespace) protect(on bool) (changed bool, err error) {
	ns.protecting.Lock()
	defer ns.protecting.Unlock()
	if ns.protected.Load() == on {
		return false, nil
	}
	switch {
	case ns.store() == nil:
	case on:
		err = ns.saveState(stateProtected, true)
	default:
		err = ns.sub.unsave(ns.stateName(stateProtected))
	}
	if err == nil {
		ns.protected.Store(on)
	}
	return err == nil, err
}
