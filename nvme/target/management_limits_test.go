package target

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestManagementLimits: hosts can't create namespaces, or have attachments remembered, without end.
func TestManagementLimits(t *testing.T) {
	const dnr = nvme.StatusDNR
	tg := newManaged(t, newMemPool(8<<20), newMemStore())
	s := connectAs(t, tg, 1)
	first := create(s.admin, nvme.NMICShared)
	for n := 1; n <= MaxNSID-FirstCreatedNSID; n++ {
		create(s.admin, nvme.NMICShared)
	}
	spec := nvme.NamespaceSpec{NSZE: 16, NCAP: 16, FLBAS: 1}
	s.admin.fails(createCommand(), spec.AppendTo(nil), nvme.StatusNSIDUnavailable|dnr)
	s.admin.must(deleteCommand(first+7), nil)
	if nsid := create(s.admin, nvme.NMICShared); nsid != first+7 {
		t.Errorf("NSID %d where %d is free", nsid, first+7)
	}
	s.close()

	for host := range maxManagedHosts + 1 {
		s := connectAs(t, tg, host)
		attach := attachCommand(first, nvme.NSAttach)
		if host < maxManagedHosts {
			s.admin.must(attach, controllerList(s.cntlid))
		} else {
			s.admin.fails(attach, controllerList(s.cntlid), nvme.StatusInternalError|dnr)
		}
		s.close()
	}
}
