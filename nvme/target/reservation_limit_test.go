package target

import (
	"encoding/binary"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestReservationLimit: a host can't register without limit by using ever new identifiers. Hosts that are registered
// aren't affected, and one that unregisters makes room.
func TestReservationLimit(t *testing.T) {
	const dnr = nvme.StatusDNR
	tg := newTarget(t, memVolume(t, 1<<20, 4096))
	first, late := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer first.close()
	defer late.close()
	registerAs(1, nvme.ResvRegister, 0, 11, nvme.StatusSuccess).run(first.io)
	ns := tg.Subsystem(testNQN).namespace(1)
	for i := range uint32(maxRegistrants - 1) {
		host := nvme.HostID{15: 2}
		binary.BigEndian.PutUint32(host[:], i)
		st, _ := ns.changeReservation(func(v *reservation) (nvme.Status, []resvNotice) {
			return v.register(host, nvme.ResvRegister, false, nvme.ResvKeys{Other: 7})
		})
		if !st.OK() {
			t.Fatalf("host %d: %v", i, st)
		}
	}
	registerAs(2, nvme.ResvRegister, 0, 22, nvme.StatusInternalError|dnr).run(late.io)
	registerAs(1, nvme.ResvReplace, 11, 12, nvme.StatusSuccess).run(first.io)
	registerAs(1, nvme.ResvUnregister, 12, 0, nvme.StatusSuccess).run(first.io)
	registerAs(2, nvme.ResvRegister, 0, 22, nvme.StatusSuccess).run(late.io)
	if p := ns.reservationReport(); len(p.Registrants) != maxRegistrants {
		t.Errorf("%d registrants", len(p.Registrants))
	}
}
