package target

import (
	"fmt"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestManagementLimits: there are limits to the namespaces that hosts create and to the attachments that are
// remembered.
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

	// All except one of the hosts whose attachments are remembered.
	m := tg.subsystems[testNQN].managed
	m.mu.Lock()
	for host := range maxManagedHosts - 1 {
		m.hosts[fmt.Sprintf("nqn.2024-01.com.example:other%d", host)] = uuidSet{{1}: true}
	}
	m.mu.Unlock()
	for host, st := range []nvme.Status{nvme.StatusSuccess, nvme.StatusInternalError | dnr} {
		s := connectAs(t, tg, host)
		cqe := s.admin.do(attachCommand(first, nvme.NSAttach), controllerList(s.cntlid))
		if got := cqe.Status() &^ nvme.StatusMore; got != st {
			t.Errorf("host %d: status %v, want %v", host, got, st)
		}
		s.close()
	}
}
