package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestPrivateNamespace: a namespace that isn't shared is attached to one controller at a time, even if several had it
// in turn, and what was set for each is remembered.
func TestPrivateNamespace(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	connectAdmin(dial(t, tg), nvme.DiscoveryNQN, 0) // whose controller has no namespaces, nor ever had
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	private := create(a.admin, 0)
	a.admin.must(attachCommand(private, nvme.NSAttach), controllerList(a.cntlid))
	has := func(s *session, want ...uint32) {
		t.Helper()
		if l := nsidsOf(s.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, want) {
			t.Errorf("attached %v, want %v", l, want)
		}
	}
	again := connectAs(t, tg, 1)
	has(a, 1, private)
	has(again, 1)
	a.close()
	b.admin.must(attachCommand(private, nvme.NSAttach), controllerList(b.cntlid))
	has(b, 1, private)
	has(again, 1)
	again.close()

	a = connectAs(t, tg, 1) // the other has it now
	has(a, 1)
	a.close()
	b.close()
	a = connectAs(t, tg, 1)
	b = connectAs(t, tg, 2)
	has(a, 1, private)
	has(b, 1)
	a.close()
	b.close()
}

// TestAttachmentStrangers: namespaces that come and go, and lists of controllers, affect only the controllers of their
// own subsystem.
func TestAttachmentStrangers(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: otherNQN, AllowAnyHost: true,
		Namespaces: []NamespaceConfig{{NSID: FirstCreatedNSID, Volume: newTestVolume(1<<20, 512)}}}); err != nil {
		t.Fatal(err)
	}
	discovery := dial(t, tg)
	connectAdmin(discovery, nvme.DiscoveryNQN, 0)
	other := connect(t, tg, otherNQN)
	defer other.close()
	s := connectAs(t, tg, 1)
	defer s.close()
	nsid := create(s.admin, nvme.NMICShared)
	if l := nsidsOf(other.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{FirstCreatedNSID}) {
		t.Errorf("another subsystem has %v", l)
	}
	for _, q := range []*fakeConn{discovery, other.admin} {
		list := controllerList(q.q.ctrl.id)
		s.admin.fails(attachCommand(nsid, nvme.NSAttach), list, nvme.StatusInvalidControllerList|dnr)
	}
	if l := controllersOf(s.admin, nsid); len(l) != 0 {
		t.Errorf("attached to %v", l)
	}
}

// TestAttachmentForgotten: a host is remembered only while its namespaces differ from the default.
func TestAttachmentForgotten(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	s := connectAs(t, tg, 1)
	defer s.close()
	m := tg.Subsystem(testNQN).managed
	remembered := func(want int) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.hosts) != want {
			t.Errorf("%d hosts are remembered, want %d", len(m.hosts), want)
		}
	}
	nsid := create(s.admin, nvme.NMICShared)
	for _, tc := range []struct {
		nsid   uint32
		action nvme.NSAction
		want   int
	}{{nsid, nvme.NSAttach, 1}, {nsid, nvme.NSDetach, 0}, {1, nvme.NSDetach, 1}, {1, nvme.NSAttach, 0}, {nsid, nvme.NSAttach, 1}} {
		s.admin.must(attachCommand(tc.nsid, tc.action), controllerList(s.cntlid))
		remembered(tc.want)
	}
	s.admin.must(deleteCommand(nsid), nil)
	remembered(0)
	if c := s.admin.q.ctrl; c.detached.Load() != nil {
		t.Error("reads and writes look whether namespaces are detached where none is")
	}
}

// numbered returns a volume as a namespace under NSID 1 whose UUID ends with a number.
func numbered(id byte) NamespaceConfig {
	return NamespaceConfig{NSID: 1, Volume: newTestVolume(1<<20, 4096), UUID: [16]byte{15: id}}
}

// startNumbered starts a target with a numbered volume, and connects a host.
func startNumbered(t *testing.T, pool *memPool, store *memStore, id byte) (*Target, *session) {
	t.Helper()
	tg := newTargetWith(t, func(c *Config) {
		c.Store, c.Subsystems[0].Pool, c.Subsystems[0].Namespaces = store, pool, []NamespaceConfig{numbered(id)}
	})
	return tg, connectAs(t, tg, 1)
}

// TestDetachedByUUID: what a host detached stays detached, also after a restart and while another volume has its NSID.
// That one is attached, as every new namespace of the operator.
func TestDetachedByUUID(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	steps := []struct {
		id   byte
		want []uint32
	}{{2, []uint32{1}}, {1, nil}}
	has := func(s *session, want ...uint32) {
		t.Helper()
		if l := nsidsOf(s.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, want) {
			t.Errorf("attached %v, want %v", l, want)
		}
	}
	tg, s := startNumbered(t, pool, store, 1)
	s.admin.must(attachCommand(1, nvme.NSDetach), controllerList(s.cntlid))
	has(s)
	for _, tc := range steps {
		sub := tg.Subsystem(testNQN)
		if err := sub.RemoveNamespace(1); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.AddNamespace(numbered(tc.id)); err != nil {
			t.Fatal(err)
		}
		has(s, tc.want...)
		later := connectAs(t, tg, 1)
		has(later, tc.want...)
		later.close()
	}
	s.close()
	closeTarget(t, tg)

	for _, tc := range steps {
		tg, s = startNumbered(t, pool, store, tc.id)
		has(s, tc.want...)
		s.close()
		closeTarget(t, tg)
	}
}

// TestDetachedBound: what a host detached of volumes that are gone is forgotten, if it is more than there can be
// namespaces; what it detached of those that are there is not.
func TestDetachedBound(t *testing.T) {
	tg, s := startNumbered(t, newMemPool(1<<20), newMemStore(), 1)
	host, m := s.admin.q.ctrl.hostNQN, tg.Subsystem(testNQN).managed
	m.mu.Lock()
	m.hosts[host] = uuidSet{}
	for i := range MaxNSID {
		m.hosts[host][[16]byte{1, byte(i >> 8), byte(i)}] = true
	}
	m.mu.Unlock()
	s.admin.must(attachCommand(1, nvme.NSDetach), controllerList(s.cntlid))
	m.mu.Lock()
	if left := m.hosts[host]; len(left) != 1 || !left[numbered(1).UUID] {
		t.Errorf("%d namespaces are remembered", len(left))
	}
	m.mu.Unlock()
	s.close()
}

// TestAttachmentOfANA: no namespace is attached to a controller that can never reach it.
func TestAttachmentOfANA(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20)
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}}
	}, newTestVolume(1<<20, 4096))
	s := connectAs(t, tg, 1)
	defer s.close()
	spec := nvme.NamespaceSpec{NSZE: 1, NCAP: 1, NMIC: nvme.NMICShared, ANAGRPID: MaxANAGroup}
	nsid := s.admin.must(createCommand(), spec.AppendTo(nil)).DW0()
	for _, tc := range []struct {
		state  nvme.ANAState
		action nvme.NSAction
		status nvme.Status
	}{
		{nvme.ANAPersistentLoss, nvme.NSAttach, nvme.StatusANAAttachFailed | dnr},
		{nvme.ANAInaccessible, nvme.NSAttach, 0},
		{nvme.ANAPersistentLoss, nvme.NSDetach, 0},
	} {
		if err := tg.SetANAState(1, MaxANAGroup, tc.state); err != nil {
			t.Fatal(err)
		}
		s.admin.fails(attachCommand(nsid, tc.action), controllerList(s.cntlid), tc.status)
	}
}

// TestNoticesOfAttached: a controller is told of reservations on the namespaces that are attached to it, whichever
// controller its host used to register (NVMe base, "Reservation Notification").
func TestNoticesOfAttached(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	for attached, want := range map[bool]uint8{true: nvme.ResvNoticePreempted, false: 0} {
		registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
		registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
		if !attached {
			a.admin.must(attachCommand(1, nvme.NSDetach), controllerList(b.cntlid))
		}
		releaseAs(1, nvme.ResvClear, 0, 11, 0).run(a.io)
		if got := nextNotice(b.admin).Type; got != want {
			t.Errorf("attached %v: notice %d, want %d", attached, got, want)
		}
		if !attached {
			a.admin.must(attachCommand(1, nvme.NSAttach), controllerList(b.cntlid))
		}
	}
}
