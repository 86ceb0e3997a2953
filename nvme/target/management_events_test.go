package target

import (
	"errors"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestNotDeleted: the event log doesn't list namespaces as deleted that couldn't be deleted.
func TestNotDeleted(t *testing.T) {
	store := newMemStore()
	s := connectAs(t, newManaged(t, newMemPool(1<<20), store), 1)
	defer s.close()
	nsid := create(s.admin, nvme.NMICShared)
	store.setErr(errors.New("disk on fire"))
	s.admin.fails(deleteCommand(nsid), nil, nvme.StatusInternalError|nvme.StatusDNR)
	store.setErr(nil)
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	if e := events[0]; e.Type != nvme.PersistentNamespace || e.Revision != 2 { // "Change Namespace Event"
		t.Errorf("event %v, revision %d", e.Type, e.Revision)
	}
	if n := countEvents(events, nvme.PersistentNamespace); n != 1 {
		t.Errorf("%d events of namespaces, want that of the creation", n)
	}
	s.admin.must(deleteCommand(nsid), nil)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentRelease), Length: 512}), make([]byte, 512))
	_, events = readEvents(s.admin, nvme.PersistentEstablish)
	if n := countEvents(events, nvme.PersistentNamespace); n != 2 {
		t.Errorf("%d events of namespaces, want creation and deletion", n)
	}
}

// TestNotAllDeleted: if one of all namespaces can't be deleted, the event log lists each of those that were; and
// nothing if there was none.
func TestNotAllDeleted(t *testing.T) {
	store := &failsAt{memStore: newMemStore(), name: "namespaces-" + nvme.HostID(deriveUUID(testNQN, 0, "")).String()}
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = store, newMemPool(1<<20) }), 1)
	defer s.close()
	s.admin.must(deleteCommand(nvme.NSIDAll), nil)
	one, two := create(s.admin, nvme.NMICShared), create(s.admin, nvme.NMICShared)
	store.n.Store(2) // the second namespace is gone; volumes that are gone are saved after that
	s.admin.fails(deleteCommand(nvme.NSIDAll), nil, nvme.StatusInternalError|nvme.StatusDNR)
	if l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{two}) {
		t.Fatalf("left: %v", l)
	}
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	if n := countEvents(events, nvme.PersistentNamespace); n != 3 {
		t.Errorf("%d events of namespaces, want two of creations and one of a deletion", n)
	}
	if e, err := events[0].Decode(); err != nil || e.(*nvme.ChangeNamespaceEvent).NSID != one {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestNamespaceEventData: the event of a namespace describes it; the event for all, deleted at once, is a single one
// without a description (NVMe base, "Change Namespace Event").
func TestNamespaceEventData(t *testing.T) {
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20) }), 1)
	defer s.close()
	nsid := create(s.admin, nvme.NMICShared)
	created := nvme.ChangeNamespaceEvent{NSZE: 16, NCAP: 16, FLBAS: 1, NMIC: nvme.NMICShared, ANAGRPID: 1, NSID: nsid}
	s.admin.must(deleteCommand(nsid), nil)
	create(s.admin, 0)
	create(s.admin, nvme.NMICShared)
	s.admin.must(deleteCommand(nvme.NSIDAll), nil)
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	deleted := created
	deleted.CDW10 = 1
	last := len(events) - 1 // the start of the subsystem; the newest is the first
	for at, want := range map[int]nvme.ChangeNamespaceEvent{last - 1: created, last - 2: deleted, 0: {CDW10: 1, NSID: nvme.NSIDAll}} {
		if e, err := events[at].Decode(); err != nil || *e.(*nvme.ChangeNamespaceEvent) != want {
			t.Errorf("event %d: %+v, %v, want %+v", at, e, err, want)
		}
	}
	if len(events) != 6 {
		t.Errorf("%d events", len(events))
	}
}

// TestDeletionIsTold: the controllers that had a namespace report its deletion, except the one that was asked for it
// (NVMe base, "Namespace Deletion Asynchronous Event Reporting").
func TestDeletionIsTold(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	nsid := create(a.admin, nvme.NMICShared)
	var aers []*fakeRequest
	for _, s := range []*session{a, b} {
		a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid))
		enableEvents(s.admin, nvme.AENNamespace)
		aers = append(aers, s.admin.start(asyncEvent(1), nil))
	}
	a.admin.must(deleteCommand(nsid), nil)
	if ev := nvme.AsyncEvent(aers[1].wait().DW0()); ev != nvme.EventNamespaceChanged {
		t.Errorf("event %v", ev)
	}
	if aers[0].answered() {
		t.Error("the controller that was asked tells its host, too")
	}
}

func countEvents(all []nvme.PersistentEvent, kind nvme.PersistentEventType) (n int) {
	for _, e := range all {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// TestSanitizedButClosed: a command that arrives when a sanitize operation ends, while an owner has the namespace
// alone, waits.
func TestSanitizedButClosed(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	ns := tg.Subsystem(testNQN).namespace(1)
	ns.exclude(nil, func() {})
	ns.setState(nsSanitize, true) // the operation is over, but this namespace hasn't been told yet
	fr := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	if fr.answered() {
		t.Errorf("executed while somebody has the namespace alone: status %#x", uint16(fr.wait().Status()))
	}
	ns.setState(nsSanitize, false)
	ns.include()
	if st := fr.wait().Status(); !st.OK() {
		t.Errorf("status %#x", uint16(st))
	}
}
