package target

import (
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Places in reservation commands that errors refer to.
const (
	offResvAction = 40
	offResvIEKEY  = 40 | 3<<locBit
	offResvType   = 41
	offCPTPL      = 43 | 6<<locBit
	offEDS        = 44
)

// reservations holds the reservation of a namespace.
type reservations struct {
	mu  sync.Mutex // one change at a time
	now atomic.Pointer[reservation]
}

// reservationCommand executes Reservation Register, Acquire and Release: it checks their fields, and fetches their
// keys.
func (r *Request) reservationCommand() {
	if !r.namespace() {
		return
	}
	size := nvme.ResvKeysSize
	a, most := r.Cmd.ResvAction(), nvme.ResvReplace
	switch r.Cmd.Opcode() {
	case nvme.OpResvRegister:
		if p := r.Cmd.CPTPL(); p == 1 || p == nvme.CPTPLSet && r.engine.ns.store() == nil {
			r.fail(nvme.StatusInvalidField, offCPTPL)
			return
		}
	case nvme.OpResvAcquire:
		most = nvme.ResvPreemptAndAbort
		if !r.Cmd.ResvType().Valid() {
			r.fail(nvme.StatusInvalidField, offResvType)
			return
		}
	case nvme.OpResvRelease:
		most, size = nvme.ResvClear, nvme.ResvReleaseSize
	}
	switch {
	case a > most:
		r.fail(nvme.StatusInvalidField, offResvAction)
	case r.Cmd.ResvIgnoreKey() && r.Cmd.Opcode() != nvme.OpResvRegister:
		r.fail(nvme.StatusInvalidField, offResvIEKEY)
	case r.engine.q.ctrl.hostID.IsZero():
		r.fail(nvme.StatusHostIDNotInitialized, noLoc)
	case r.mapSGL(size):
		r.withHostData(size, func(r *Request) { r.saving(r.changeReservation) })
	}
}

func (r *Request) changeReservation() {
	var b [nvme.ResvKeysSize]byte
	n := nvme.ResvKeysSize
	if r.Cmd.Opcode() == nvme.OpResvRelease {
		n = nvme.ResvReleaseSize
	}
	r.hostData(b[:n], 0)
	var k nvme.ResvKeys
	_ = k.Parse(b[:n]) // there are enough bytes
	ns, host, a := r.engine.ns, r.engine.q.ctrl.hostID, r.Cmd.ResvAction()
	var kindIsWrong bool
	st, notices := ns.changeReservation(func(v *reservation) (st nvme.Status, notices []resvNotice) {
		switch r.Cmd.Opcode() {
		case nvme.OpResvRegister:
			st, notices = v.register(host, a, r.Cmd.ResvIgnoreKey(), k)
			if p := r.Cmd.CPTPL(); p != nvme.CPTPLKeep { // without effect if the command fails
				v.persist = p == nvme.CPTPLSet
			}
		case nvme.OpResvAcquire:
			st, notices = v.acquire(host, a, r.Cmd.ResvType(), k)
		default:
			st, notices, kindIsWrong = v.release(host, a, r.Cmd.ResvType(), k)
		}
		return st, notices
	})
	switch {
	case kindIsWrong:
		r.fail(st, offResvType)
		return
	case !st.OK():
		r.respond(st)
		return
	}
	ns.sub.tellReservation(ns.nsid, notices)
	if r.Cmd.Opcode() == nvme.OpResvAcquire && a == nvme.ResvPreemptAndAbort {
		r.abortPreempted(notices)
		return
	}
	r.respond(nvme.StatusSuccess)
}

// changeReservation lets f change the reservation of the namespace, saves the result if it has to outlive the target,
// and makes it effective.
func (ns *Namespace) changeReservation(f func(*reservation) (nvme.Status, []resvNotice)) (nvme.Status, []resvNotice) {
	ns.resv.mu.Lock()
	defer ns.resv.mu.Unlock()
	now := ns.resv.now.Load()
	next := now.clone()
	st, notices := f(next)
	if !st.OK() {
		return st, nil
	}
	if now.persist || next.persist {
		if err := ns.saveReservation(next); err != nil {
			ns.sub.t.log.Warn("reservation not saved: the command fails", "subsystem", ns.sub.nqn, "nsid", ns.nsid, "err", err)
			return nvme.StatusInternalError, nil
		}
	}
	ns.useReservation(next)
	return nvme.StatusSuccess, notices
}

// useReservation makes a reservation effective.
func (ns *Namespace) useReservation(v *reservation) {
	ns.resv.now.Store(v)
	ns.setState(nsReserved, v.kind != nvme.ResvNone)
}

// reservationStatus returns success if the reservation lets the host do what the command wants.
func (r *Request) reservationStatus() nvme.Status {
	write := true
	switch r.Cmd.Opcode() {
	case nvme.OpRead, nvme.OpCompare, nvme.OpVerify:
		write = false
	case nvme.OpResvRegister, nvme.OpResvReport, nvme.OpResvAcquire, nvme.OpResvRelease:
		return nvme.StatusSuccess // they check for themselves
	}
	if r.engine.ns.resv.now.Load().conflicts(r.engine.q.ctrl.hostID, write) {
		return resvConflict
	}
	return nvme.StatusSuccess
}

// mayChange returns success unless a reservation of another host prevents the host of r from changing the namespace as
// a whole, which counts as a write.
func (r *Request) mayChange(ns *Namespace) nvme.Status {
	if ns.resv.now.Load().conflicts(r.engine.q.ctrl.hostID, true) {
		return resvConflict
	}
	return nvme.StatusSuccess
}

// reservationReport executes Reservation Report.
func (r *Request) reservationReport() {
	if !r.namespace() {
		return
	}
	n := r.Cmd.ResvReportLength()
	switch {
	case n > uint64(r.engine.q.attr.MaxTransfer):
		r.fail(nvme.StatusInvalidField, offCDW10)
	case !r.Cmd.ResvExtended():
		r.fail(nvme.StatusHostIDInconsistent, offEDS) // Fabrics has only 128 bits
	case r.engine.q.ctrl.hostID.IsZero():
		r.fail(nvme.StatusHostIDNotInitialized, noLoc)
	case r.mapSGL(int(n)):
		r.withMemory(int(n), (*Request).replyReservations)
	}
}

func (r *Request) replyReservations() {
	status := r.engine.ns.reservationReport()
	r.replyWith(status.AppendTo(nil))
}

// reservationReport lists every controller of each registrant, and the registrants that have none now, as NVMe 1.4 and
// 2.0 demand; since 2.1 each registrant is listed once.
func (ns *Namespace) reservationReport() nvme.ResvStatus {
	v := ns.resv.now.Load()
	p := nvme.ResvStatus{Generation: v.generation, Type: v.kind, Persist: v.persist}
	controllers := ns.sub.t.controllersOf(ns.sub)
	for _, reg := range v.registrants {
		entry := nvme.ResvRegistrant{CNTLID: nvme.CNTLIDDynamic, Holder: v.holds(reg.host), Key: reg.key, HostID: reg.host}
		connected := false
		for _, c := range controllers {
			if c.hostID == reg.host {
				connected, entry.CNTLID = true, c.id
				p.Registrants = append(p.Registrants, entry)
			}
		}
		if !connected {
			p.Registrants = append(p.Registrants, entry)
		}
	}
	return p
}
