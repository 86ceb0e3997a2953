package target

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// reservation is the registrants of a namespace and the reservation that they hold: the state machine of NVMe base,
// section "Reservations", without locks and without I/O. A published one is never modified: commands modify a copy.
type reservation struct {
	generation  uint32
	persist     bool // PTPL
	kind        nvme.ResvType
	holder      nvme.HostID // if one host holds it; zero, which no registrant has, otherwise
	registrants []registrant
}

// registrant is a host and its key.
type registrant struct {
	host nvme.HostID
	key  uint64
}

// resvNotice is a notification to a host about what another host did.
type resvNotice struct {
	host nvme.HostID
	kind uint8 // nvme.ResvNoticeReleased …
}

func (v *reservation) clone() *reservation {
	c := *v
	c.registrants = slices.Clone(v.registrants)
	return &c
}

// find returns the index of a host among the registrants; -1 if it isn't one.
func (v *reservation) find(host nvme.HostID) int {
	return slices.IndexFunc(v.registrants, func(r registrant) bool { return r.host == host })
}

// holds reports whether a host holds the reservation.
func (v *reservation) holds(host nvme.HostID) bool {
	switch {
	case v.kind == nvme.ResvNone:
		return false
	case v.kind.AllRegistrants():
		return v.find(host) >= 0
	}
	return v.holder == host
}

// conflicts reports whether the reservation keeps a host from reading, or from writing (figure "Command Behavior in the
// Presence of a Reservation").
func (v *reservation) conflicts(host nvme.HostID, write bool) bool {
	switch v.kind {
	case nvme.ResvWriteExclusive:
		return write && v.holder != host
	case nvme.ResvExclusiveAccess:
		return v.holder != host
	case nvme.ResvWriteExclusiveRegOnly, nvme.ResvWriteExclusiveAllReg:
		return write && v.find(host) < 0
	case nvme.ResvExclusiveAccessRegOnly, nvme.ResvExclusiveAccessAllReg:
		return v.find(host) < 0
	}
	return false
}

// others makes a notice for every registrant except one.
func (v *reservation) others(host nvme.HostID, kind uint8) (out []resvNotice) {
	for _, r := range v.registrants {
		if r.host != host {
			out = append(out, resvNotice{r.host, kind})
		}
	}
	return out
}

// maxRegistrants bounds the registrants of a namespace. A host may use any number of identifiers, and its registrations
// outlive its connections.
const maxRegistrants = 1024

const resvConflict = nvme.StatusReservationConflict | nvme.StatusDNR

// register executes Reservation Register.
func (v *reservation) register(host nvme.HostID, a nvme.ResvAction, ignoreKey bool, k nvme.ResvKeys) (nvme.Status, []resvNotice) {
	i := v.find(host)
	known := i >= 0 && (ignoreKey || v.registrants[i].key == k.Current)
	joins := i < 0 && (a == nvme.ResvRegister || a == nvme.ResvReplace && ignoreKey)
	var notices []resvNotice
	switch {
	case k.Other == 0 && (joins || a == nvme.ResvRegister):
		return nvme.StatusInvalidField | nvme.StatusDNR, nil // zero is the key of hosts that have none
	case joins && len(v.registrants) >= maxRegistrants:
		return nvme.StatusInternalError | nvme.StatusDNR, nil // NVMe has no status of its own for it
	case joins:
		v.registrants = append(v.registrants, registrant{host, k.Other})
	case a == nvme.ResvRegister && v.registrants[i].key == k.Other:
	case a == nvme.ResvReplace && known:
		v.registrants[i].key = k.Other
	case a == nvme.ResvUnregister && known:
		notices = v.unregister(i)
	default:
		return resvConflict, nil
	}
	v.generation++
	return nvme.StatusSuccess, notices
}

// unregister removes a registrant, and the reservation if that was its last holder.
func (v *reservation) unregister(i int) (notices []resvNotice) {
	host := v.registrants[i].host
	held := v.holds(host)
	v.registrants = slices.Delete(v.registrants, i, i+1)
	if !held || v.kind.AllRegistrants() && len(v.registrants) > 0 {
		return nil
	}
	if v.kind.RegistrantsOnly() {
		notices = v.others(host, nvme.ResvNoticeReleased)
	}
	v.drop()
	return notices
}

// drop ends the reservation.
func (v *reservation) drop() { v.kind, v.holder = nvme.ResvNone, nvme.HostID{} }

// take gives a host the reservation.
func (v *reservation) take(host nvme.HostID, kind nvme.ResvType) {
	v.kind, v.holder = kind, nvme.HostID{}
	if !kind.AllRegistrants() {
		v.holder = host
	}
}

// acquire executes Reservation Acquire. For a preemption the notices name the hosts that were preempted.
func (v *reservation) acquire(host nvme.HostID, a nvme.ResvAction, kind nvme.ResvType, k nvme.ResvKeys) (nvme.Status, []resvNotice) {
	i := v.find(host)
	if i < 0 || v.registrants[i].key != k.Current {
		return resvConflict, nil
	}
	if a != nvme.ResvAcquire {
		return v.preempt(host, kind, k.Other)
	}
	switch {
	case v.kind == nvme.ResvNone:
		v.take(host, kind)
	case !v.holds(host) || v.kind != kind:
		return resvConflict, nil
	}
	return nvme.StatusSuccess, nil
}

// preempt removes the registrants with a key, and takes the reservation if it is theirs.
func (v *reservation) preempt(host nvme.HostID, kind nvme.ResvType, key uint64) (nvme.Status, []resvNotice) {
	everybody := v.kind.AllRegistrants() && key == 0
	takes := everybody
	if i := v.find(v.holder); i >= 0 {
		takes = v.registrants[i].key == key
	}
	if key == 0 && !takes { // zero works if the holder has replaced its key by zero
		return nvme.StatusInvalidField | nvme.StatusDNR, nil
	}
	var notices []resvNotice
	found := takes
	var stay []registrant
	for _, r := range v.registrants {
		matches := everybody || r.key == key
		found = found || matches
		switch {
		case !matches, takes && r.host == host:
			stay = append(stay, r)
			continue
		case r.host == host: // it has preempted itself as well
			continue
		}
		notices = append(notices, resvNotice{r.host, nvme.ResvNoticeRegistrationPreempted})
	}
	if !found {
		return resvConflict, nil
	}
	old := v.kind
	v.registrants = stay
	switch {
	case takes:
		v.take(host, kind)
		if old != kind {
			notices = append(notices, v.others(host, nvme.ResvNoticeReleased)...)
		}
	case len(stay) == 0:
		v.drop()
	}
	v.generation++
	return nvme.StatusSuccess, notices
}

// release executes Reservation Release; kindIsWrong says that the reservation is of another kind.
func (v *reservation) release(host nvme.HostID, a nvme.ResvAction, kind nvme.ResvType, k nvme.ResvKeys) (
	st nvme.Status, notices []resvNotice, kindIsWrong bool,
) {
	i := v.find(host)
	if i < 0 || v.registrants[i].key != k.Current {
		return resvConflict, nil, false
	}
	if a == nvme.ResvClear {
		notices = v.others(host, nvme.ResvNoticePreempted)
		v.registrants = nil
		v.drop()
		v.generation++
		return nvme.StatusSuccess, notices, false
	}
	switch {
	case !v.holds(host):
		return nvme.StatusSuccess, nil, false // nothing to release
	case v.kind != kind:
		return nvme.StatusInvalidField | nvme.StatusDNR, nil, true
	}
	if v.kind.RegistrantsOnly() || v.kind.AllRegistrants() {
		notices = v.others(host, nvme.ResvNoticeReleased)
	}
	v.drop()
	return nvme.StatusSuccess, notices, false
}
