package target

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestManagementPersists: namespaces and attachments that hosts made outlive the target, and can be deleted then.
func TestManagementPersists(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	tg := newManaged(t, pool, store)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	nsid := create(a.admin, nvme.NMICShared)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(a.cntlid))
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(b.cntlid))
	b.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, nsid, 3, 1, 0) }), bytes.Repeat([]byte{7}, 512))
	a.admin.must(attachCommand(1, nvme.NSDetach), controllerList(b.cntlid))
	private := create(a.admin, 0)
	a.close()
	b.close()
	closeTarget(t, tg)

	tg = newManaged(t, pool, store)
	a, b = connectAs(t, tg, 1), connectAs(t, tg, 2)
	if l := nsidsOf(a.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1, nsid}) {
		t.Errorf("the first host has %v", l)
	}
	if l := nsidsOf(b.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{nsid}) {
		t.Errorf("the second host has %v", l)
	}
	data := make([]byte, 512)
	a.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 3, 1, 0) }), data)
	if data[0] != 7 {
		t.Error("what was written is gone")
	}
	both := []uint16{a.cntlid, b.cntlid}
	slices.Sort(both)
	a.admin.fails(attachCommand(private, nvme.NSAttach), controllerList(both...), nvme.StatusNamespacePrivate|nvme.StatusDNR)
	a.admin.must(attachCommand(private, nvme.NSAttach), controllerList(a.cntlid))
	a.admin.fails(attachCommand(private, nvme.NSAttach), controllerList(b.cntlid), nvme.StatusNamespacePrivate|nvme.StatusDNR)

	told := a.admin.start(asyncEvent(1), nil)
	enableEvents(a.admin, nvme.AENNamespace)
	b.admin.must(deleteCommand(nsid), nil)
	if ev := nvme.AsyncEvent(told.wait().DW0()); ev != nvme.EventNamespaceChanged {
		t.Errorf("event %v", ev)
	}
	a.io.fails(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) }), data, nvme.StatusInvalidNamespace|nvme.StatusDNR)
	if pool.count() != 1 {
		t.Errorf("%d volumes, want 1", pool.count())
	}
	if got := create(b.admin, nvme.NMICShared); got != nsid {
		t.Errorf("NSID %d, want the one that was freed", got)
	}
	if l := nsidsOf(a.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1, private}) {
		t.Errorf("a new namespace has the attachments of the one before: %v", l)
	}
	b.admin.fails(deleteCommand(nvme.NSIDAll), nil, nvme.StatusOperationDenied|nvme.StatusDNR)
	a.close()
	b.close()
}

// TestPoolFails: a namespace whose volume can't be made doesn't exist, and nothing is left of it.
func TestPoolFails(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	tg := newManaged(t, pool, store)
	s := connectAs(t, tg, 1)
	defer s.close()
	good := goodNamespace()
	for _, tc := range []struct {
		err    error
		status nvme.Status
	}{{blockdev.ErrCapacity, nvme.StatusInsufficientCapacity}, {errors.New("disk on fire"), nvme.StatusInternalError}} {
		pool.err = tc.err
		s.admin.fails(createCommand(), good.AppendTo(nil), tc.status|nvme.StatusDNR)
	}
	pool.err = nil
	saved, _ := store.Load(tg.Subsystem(testNQN).stateName("namespaces"))
	if bytes.Contains(saved, []byte("pending")) {
		t.Errorf("a volume is left: %s", saved)
	}
	if nsid := create(s.admin, nvme.NMICShared); nsid != FirstCreatedNSID {
		t.Errorf("NSID %d", nsid)
	}
}

// failsAt is a Store that fails the nth save under a name, counted from when n is set.
type failsAt struct {
	*memStore
	name string
	n    atomic.Int32
}

func (s *failsAt) Save(name string, data []byte) error {
	if name == s.name && s.n.Add(-1) == 0 {
		return errors.New("disk on fire")
	}
	return s.memStore.Save(name, data)
}

// savesThen is a Store that calls a function once when something is saved under a name.
type savesThen struct {
	*memStore
	name string
	then atomic.Pointer[func()]
}

func (s *savesThen) Save(name string, data []byte) error {
	if f := s.then.Load(); name == s.name && f != nil && s.then.CompareAndSwap(f, nil) {
		(*f)()
	}
	return s.memStore.Save(name, data)
}

// TestDeletedWithSubsystem: if a host deletes a namespace just when the operator removes the subsystem, its volume
// isn't closed before its commands have ended, and is gone afterwards.
func TestDeletedWithSubsystem(t *testing.T) {
	pool, store := newMemPool(1<<20), &savesThen{memStore: newMemStore(), name: "namespaces-" + nvme.HostID(deriveUUID(testNQN, 0, "")).String()}
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = store, pool }, newTestVolume(1<<20, 4096))
	s := connectAs(t, tg, 1)
	nsid := create(s.admin, nvme.NMICShared)
	s.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid))
	var hangs *testVolume
	for _, hangs = range pool.volumes {
		hangs.setHold(true)
	}
	s.io.start(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) }), make([]byte, 512))
	<-hangs.arrived
	sub := tg.Subsystem(testNQN)
	ns := sub.namespace(nsid)
	removed, deleting := make(chan error, 1), make(chan struct{})
	remove := func() {
		go func() { removed <- tg.RemoveSubsystem(testNQN) }()
		if !soon.Until(func() bool { return sub.namespace(nsid) == nil }) {
			t.Error("the subsystem isn't removed")
		}
		close(deleting)
	}
	store.then.Store(&remove)
	s.admin.start(deleteCommand(nsid), nil)
	<-deleting
	time.Sleep(50 * time.Millisecond) // the volume must not be closed meanwhile
	pool.mu.Lock()
	for name, open := range pool.open {
		if !open {
			t.Errorf("volume %s is closed while %d commands use it", name, ns.users())
		}
	}
	pool.mu.Unlock()
	hangs.release()
	if err, ok := soon.Receive(removed); !ok || err != nil {
		t.Fatalf("subsystem removed: %v, %v", ok, err)
	}
	if n := pool.count(); n != 0 {
		t.Errorf("%d volumes are left", n)
	}
}

// TestPersistenceOfDeleted: nothing is saved for a namespace that a host deletes while another sets the persistence of
// all reservations. Nobody would ever remove it again.
func TestPersistenceOfDeleted(t *testing.T) {
	store := newMemStore()
	tg := newManaged(t, newMemPool(1<<20), store)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	nsid := create(a.admin, nvme.NMICShared)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(a.cntlid))
	first := &tg.Subsystem(testNQN).namespace(1).resv
	first.mu.Lock()
	persist := a.admin.start(setFeature(nvme.FeatResvPersistence, nvme.NSIDAll, nvme.ResvPersistPTPL), nil)
	b.admin.must(deleteCommand(nsid), nil)
	first.mu.Unlock()
	endsFused(t, "Set Features", persist, nvme.StatusSuccess)
	saved := store.names()
	if n := len(slices.DeleteFunc(saved, func(name string) bool { return !strings.HasPrefix(name, stateReservation) })); n != 1 {
		t.Errorf("%d reservations are saved, that of namespace 1 among them", n)
	}
}

// TestCreatedNotSaved: a namespace whose volume is made, but which then can't be saved, doesn't exist, nor does its
// volume.
func TestCreatedNotSaved(t *testing.T) {
	pool, store := newMemPool(1<<20), &failsAt{memStore: newMemStore(), name: "namespaces-" + nvme.HostID(deriveUUID(testNQN, 0, "")).String()}
	start := func() (*Target, *session) {
		tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = store, pool }, newTestVolume(1<<20, 4096))
		return tg, connectAs(t, tg, 1)
	}
	tg, s := start()
	kept := create(s.admin, nvme.NMICShared)
	store.n.Store(2)
	good := goodNamespace()
	s.admin.fails(createCommand(), good.AppendTo(nil), nvme.StatusInternalError|nvme.StatusDNR)
	if n := pool.count(); n != 1 {
		t.Errorf("%d volumes", n)
	}
	if saved, _ := store.Load(store.name); len(saved) == 0 || bytes.Contains(saved, []byte("pending")) {
		t.Errorf("something is left: %s", saved)
	}
	if got := create(s.admin, nvme.NMICShared); got != kept+1 {
		t.Errorf("the next has NSID %d", got)
	}
	s.close()
	closeTarget(t, tg)
	_, s = start()
	defer s.close()
	if l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{1, kept, kept + 1}) {
		t.Errorf("allocated %v", l)
	}
}

// TestManagementNotSaved: nothing changes if it can't be saved, and no volume is left.
func TestManagementNotSaved(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	tg := newManaged(t, pool, store)
	s := connectAs(t, tg, 1)
	nsid := create(s.admin, nvme.NMICShared)
	before := pool.count()
	store.setErr(errors.New("disk on fire"))
	good := goodNamespace()
	s.admin.fails(createCommand(), good.AppendTo(nil), nvme.StatusInternalError|nvme.StatusDNR)
	s.admin.fails(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid), nvme.StatusInternalError|nvme.StatusDNR)
	s.admin.fails(deleteCommand(nsid), nil, nvme.StatusInternalError|nvme.StatusDNR)
	store.setErr(nil)
	if pool.count() != before {
		t.Errorf("%d volumes, want %d", pool.count(), before)
	}
	if l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{1, nsid}) {
		t.Errorf("allocated %v", l)
	}
	if l := nsidsOf(s.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1}) {
		t.Errorf("attached %v", l)
	}
	// The next save doesn't include what failed.
	s.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid))
	if saved, _ := store.Load(tg.Subsystem(testNQN).stateName("namespaces")); bytes.Contains(saved, []byte("pending")) {
		t.Errorf("volumes are to be removed: %s", saved)
	}
	s.close()
	closeTarget(t, tg)
	s = connectAs(t, newManaged(t, pool, store), 1)
	defer s.close()
	if l := nsidsOf(s.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1, nsid}) {
		t.Errorf("attached %v after a restart", l)
	}
}

// TestReservedNamespaceStays: a host without the reservation of a namespace can't delete it or change its attachment.
func TestReservedNamespaceStays(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	nsid := create(a.admin, nvme.NMICShared)
	both := []uint16{a.cntlid, b.cntlid}
	slices.Sort(both)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(both...))
	register := command(func(c *nvme.Command) { c.SetResvRegister(nsid, nvme.ResvRegister, false, nvme.CPTPLKeep) })
	a.io.must(register, nvme.ResvKeys{Other: 5}.AppendTo(nil))
	acquire := command(func(c *nvme.Command) { c.SetResvAcquire(nsid, nvme.ResvAcquire, nvme.ResvWriteExclusive) })
	a.io.must(acquire, nvme.ResvKeys{Current: 5}.AppendTo(nil))
	b.admin.fails(attachCommand(nsid, nvme.NSDetach), controllerList(a.cntlid), resvConflict|nvme.StatusDNR)
	b.admin.fails(deleteCommand(nsid), nil, resvConflict|nvme.StatusDNR)
	a.admin.must(deleteCommand(nsid), nil)
}

// TestSavedNamespaceErrors: an error about a namespace that a host created says so, names the subsystem and the cause
// once, and doesn't blame the configuration, which doesn't have that namespace.
func TestSavedNamespaceErrors(t *testing.T) {
	const createdUUID = "5a1f1b8e-32c5-4ad5-8a0f-2b7d2f0c9b11"
	pool := newMemPool(1 << 20)
	pool.volumes[createdUUID] = newTestVolume(4096, 512)
	store := newMemStore()
	config := Config{Store: store, Subsystems: []SubsystemConfig{{NQN: testNQN, Pool: pool}}}
	tg, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	name := tg.Subsystem(testNQN).stateName("namespaces")
	closeTarget(t, tg)
	in := "target: subsystem " + testNQN + ": "
	for saved, want := range map[string]string{
		`{"created":[{"nsid":600,"uuid":"` + createdUUID + `","size":4096,"block_size":512,"ana_group":999}]}`: in +
			"namespace 600, which a host created: saved state can't be used: " + name + ": namespace 600: ANA group 999, the largest is 128",
		`{"created":[{"nsid":600,"uuid":"` + createdUUID + `","size":8192,"block_size":512}]}`: in + "namespace 600, which a host created: there is no such volume, or it is open",
		`{"created":[],"hosts":{"h":[1]}}`: in + "saved state can't be used: " + name +
			`: it has "hosts", of an earlier version: remove them, and have hosts attach and detach again`,
		`{"created":[{"nsid":512,"uuid":"` + createdUUID + `","size":4096,"block_size":512,"ana_group":1}]}`: in +
			"namespace 512, which a host created: saved state can't be used: " + name + ": NSID below 513",
	} {
		store.kept[name] = []byte(saved)
		if _, err := New(config); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", saved, err, want)
		}
	}
}

// TestManagementCrash: wherever a crash interrupts the creation, attachment and deletion of namespaces, the next run
// has exactly those that were acknowledged and not deleted, with their volumes, and nothing is left of others.
func TestManagementCrash(t *testing.T) {
	r := &recorder{memStore: newMemStore(), memPool: newMemPool(1 << 20)}
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = r, r })
	s := connectAs(t, tg, 1)
	// For each namespace: it was acknowledged before the moments from created on, until its deletion began.
	var created, deleting int
	moments := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.moments)
	}
	one := create(s.admin, nvme.NMICShared)
	created = moments()
	two := create(s.admin, nvme.NMICShared)
	s.admin.must(attachCommand(two, nvme.NSAttach), controllerList(s.cntlid))
	s.admin.must(attachCommand(one, nvme.NSAttach), controllerList(s.cntlid))
	s.admin.must(setFeature(nvme.FeatResvPersistence, one, nvme.ResvPersistPTPL), nil)
	deleting = moments()
	s.admin.must(deleteCommand(one), nil)
	s.close()
	closeTarget(t, tg)
	r.record()
	for i, m := range r.moments {
		pool := newMemPool(1 << 20)
		for name, v := range m.volumes {
			pool.volumes[name] = newTestVolume(v.info.Size, v.info.BlockSize)
		}
		store := &memStore{kept: m.kept}
		tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = store, pool })
		s := connectAs(t, tg, 1)
		l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs)
		if len(l) != pool.count() {
			t.Errorf("moment %d: %v, and %d volumes", i, l, pool.count())
		}
		if i >= created && i <= deleting && !slices.Contains(l, one) {
			t.Errorf("moment %d: namespace %d is gone, which a host had been told of: %v", i, one, l)
		}
		if kept := slices.ContainsFunc(store.names(), func(n string) bool { return strings.HasPrefix(n, stateReservation) }); kept && !slices.Contains(l, one) {
			t.Errorf("moment %d: a reservation is left of a namespace that is gone", i)
		}
		if i == len(r.moments)-1 && !slices.Equal(l, nvme.NSIDList{two}) {
			t.Errorf("in the end there is %v", l)
		}
		for _, nsid := range nsidsOf(s.admin, nvme.CNSActiveNSIDs) {
			s.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) }), make([]byte, 512))
		}
		s.close()
		closeTarget(t, tg)
	}
	if len(r.moments) < 8 {
		t.Errorf("%d moments", len(r.moments))
	}
}

// TestLeftVolumeStays: a leftover volume that can't be removed doesn't keep hosts from the rest. It stays recorded,
// through changes too, until it is removed.
func TestLeftVolumeStays(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	start := func() (*Target, *session) {
		tg := newManaged(t, pool, store)
		return tg, connectAs(t, tg, 1)
	}
	tg, s := start()
	nsid := create(s.admin, nvme.NMICShared)
	s.close()
	closeTarget(t, tg)
	const left = "00000000-0000-4000-8000-00000000000a"
	pool.volumes[left], pool.open[left] = newTestVolume(8192, 512), true // open: it can't be removed
	name := slices.Collect(func(yield func(string) bool) {
		for n := range store.kept {
			if strings.HasPrefix(n, "namespaces-") && !yield(n) {
				return
			}
		}
	})[0]
	store.put(name, bytes.Replace(store.kept[name], []byte(`{`), []byte(`{"pending":["`+left+`"],`), 1))

	tg, s = start()
	if l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs); !slices.Contains(l, nsid) {
		t.Errorf("namespace %d is gone: %v", nsid, l)
	}
	create(s.admin, nvme.NMICShared)
	s.close()
	closeTarget(t, tg)
	if b, _ := store.Load(name); !bytes.Contains(b, []byte(left)) {
		t.Errorf("it is forgotten: %s", b)
	}
	pool.open[left] = false
	tg, s = start()
	s.close()
	closeTarget(t, tg)
	if pool.volumes[left] != nil {
		t.Error("it is never removed")
	}
}

// TestCreatedIdentity: a namespace that a host created has a UUID of its own, which outlives the target; the next one
// that is created under its NSID has another.
func TestCreatedIdentity(t *testing.T) {
	pool, store := newMemPool(1<<20), newMemStore()
	uuid := func(s *session, nsid uint32) [16]byte {
		s.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid))
		var d nvme.NSDescriptors
		if err := d.Parse(identifyPage(s.admin, nvme.CNSDescriptors, nsid)); err != nil {
			t.Fatal(err)
		}
		s.admin.must(attachCommand(nsid, nvme.NSDetach), controllerList(s.cntlid))
		return d.UUID
	}
	tg := newManaged(t, pool, store)
	s := connectAs(t, tg, 1)
	nsid := create(s.admin, nvme.NMICShared)
	first := uuid(s, nsid)
	s.close()
	closeTarget(t, tg)

	s = connectAs(t, newManaged(t, pool, store), 1)
	defer s.close()
	if again := uuid(s, nsid); again != first {
		t.Errorf("UUID %x after a restart, before that %x", again, first)
	}
	s.admin.must(deleteCommand(nsid), nil)
	if next := create(s.admin, nvme.NMICShared); next != nsid || uuid(s, next) == first {
		t.Errorf("namespace %d, with the UUID of the one before: %t", next, uuid(s, next) == first)
	}
}
