package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// maxResvNotices bounds the notifications that wait for a host to read them. Further ones are lost, which the count in
// the last one shows. One page says how many there are after it, in a byte.
const maxResvNotices = 256

// Bits of feature 82h for the kinds of notification: set if the host doesn't want them.
const resvMaskAll = 1<<nvme.ResvNoticeRegistrationPreempted | 1<<nvme.ResvNoticeReleased | 1<<nvme.ResvNoticePreempted

// tellReservation gives notices to all controllers of the hosts that they are for, if the namespace is attached to
// them.
func (s *Subsystem) tellReservation(nsid uint32, notices []resvNotice) {
	if len(notices) == 0 {
		return
	}
	for _, c := range s.t.controllersOf(s) {
		for _, n := range notices {
			if n.host == c.hostID && c.has(nsid) {
				c.resvNotice(nsid, n.kind)
			}
		}
	}
}

// resvNotice enters a notification in the log of the controller and tells the host.
func (c *controller) resvNotice(nsid uint32, kind uint8) {
	c.mu.Lock()
	if c.features.ofNS[nsid].resvMask&(1<<kind) != 0 {
		c.mu.Unlock()
		return
	}
	e := &c.events
	e.resvCount++
	if n := len(e.resv); n == maxResvNotices {
		e.resv[n-1].Count = e.resvCount
	} else {
		e.resv = append(e.resv, nvme.ReservationNotification{Count: e.resvCount, Type: kind, NSID: nsid})
	}
	out := c.raise(eventReservation)
	c.mu.Unlock()
	deliver(out)
}

// resvLog returns the Reservation Notification log: the oldest notification that the host hasn't read, which counts as
// read now unless this is only a look. Without retain, it lets the next event through, at once if there are further
// notifications: the host may read one for each event.
func (c *controller) resvLog(look, retain bool) []byte {
	var p nvme.ReservationNotification
	var out []answer
	c.mu.Lock()
	e := &c.events
	if len(e.resv) > 0 {
		p = e.resv[0]
		p.Pages = uint8(len(e.resv) - 1)
		if !look {
			e.resv = e.resv[1:]
		}
	}
	if !retain {
		c.rearm(eventReservation)
		if len(e.resv) > 0 { // which it hasn't read
			out = c.raise(eventReservation)
		}
	}
	c.mu.Unlock()
	deliver(out)
	return p.AppendTo(nil)
}

// setResvPersistence executes Set Features 83h.
func (r *Request) setResvPersistence() {
	all, ok := r.featureNamespaces()
	if !ok {
		return // it has responded
	}
	persist := r.Cmd.CDW(11)&nvme.ResvPersistPTPL != 0
	if persist { // of all namespaces, those are meant that can keep their reservations
		if all = slices.DeleteFunc(all, func(ns *Namespace) bool { return ns.store() == nil }); len(all) == 0 {
			r.fail(nvme.StatusInvalidField, offCDW11)
			return
		}
	}
	r.saving(func() {
		st, shard := nvme.StatusSuccess, r.engine.q.shard
		for i := 0; st.OK() && i < len(all); i++ {
			if !all[i].get(shard) { // nothing may be saved for what is deleted
				continue
			}
			st, _ = all[i].changeReservation(func(v *reservation) (nvme.Status, []resvNotice) {
				v.persist = persist
				return nvme.StatusSuccess, nil
			})
			all[i].put(shard)
		}
		r.respond(st)
	})
}
