package target

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestReservationPersists: with PTPL a reservation is in force again in the next target, and a change that can't be
// saved doesn't happen.
func TestReservationPersists(t *testing.T) {
	store := &memStore{kept: map[string][]byte{}}
	start := func() *Target {
		return newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	}
	tg := start()
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	persistAs(1, 11).run(a.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, 0).run(a.io)
	before := report(b.io)
	if !before.Persist {
		t.Error("PTPLS is 0")
	}
	store.setErr(errors.New("disk full"))
	acquireAs(2, nvme.ResvPreempt, nvme.ResvExclusiveAccess, 22, 11, nvme.StatusInternalError).run(b.io)
	if got := report(b.io); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("after a change that was not saved: %+v", got)
	}
	store.setErr(nil)
	a.close()
	b.close()

	tg = start()
	b = connectAs(t, tg, 2)
	after := report(b.io)
	if after.Type != nvme.ResvWriteExclusive || after.Generation != before.Generation || len(after.Registrants) != 2 ||
		after.Registrants[0].CNTLID != nvme.CNTLIDDynamic || !after.Registrants[0].Holder || after.Registrants[1].CNTLID != b.cntlid {
		t.Errorf("after a restart: %+v", after)
	}
	if got := accessOf(b.io); got != "r" {
		t.Errorf("after a restart the other host may %q", got)
	}
	acquireAs(2, nvme.ResvPreempt, nvme.ResvExclusiveAccessAllReg, 22, 11, 0).run(b.io)
	b.close()
	b = connectAs(t, start(), 2)
	if after := report(b.io); after.Type != nvme.ResvExclusiveAccessAllReg || len(after.Registrants) != 1 || !after.Registrants[0].Holder {
		t.Errorf("a reservation of all registrants after a restart: %+v", after)
	}
	b.close()
}

// TestReservationPersistence: a host may have the feature off, and then a restart leaves nothing.
func TestReservationPersistence(t *testing.T) {
	store := newMemStore()
	start := func() *Target {
		return newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	}
	b := connectAs(t, start(), 2)
	persistAs(2, 22).run(b.io)
	page := make([]byte, nvme.PageSize)
	b.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }), page)
	if page[31] != 0xff {
		t.Errorf("RESCAP %#x", page[31])
	}
	feature := func(v uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatResvPersistence, false, 1, v) })
	}
	get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvPersistence, 0, 1, 0) })
	if v := b.admin.must(get, nil).DW0(); v != 1 {
		t.Errorf("feature 83h is %d", v)
	}
	b.admin.must(feature(0), nil)
	b.close()

	b = connectAs(t, start(), 2)
	if p := report(b.io); p.Type != 0 || len(p.Registrants) != 0 || p.Persist || accessOf(b.io) != "rw" {
		t.Errorf("without PTPL a restart leaves %+v", p)
	}
	b.admin.must(feature(1), nil)
	b.close()
	if !start().Subsystem(testNQN).namespace(1).resv.now.Load().persist {
		t.Error("feature 83h was forgotten")
	}
}

// TestReservationDamaged: a namespace whose saved reservation can't be read isn't served.
func TestReservationDamaged(t *testing.T) {
	store := newMemStore()
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	a := connectAs(t, tg, 1)
	persistAs(1, 11).run(a.io)
	a.close()
	if err := tg.RemoveSubsystem(testNQN); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"{", `{"type":9}`, `{"type":1}`, `{"type":5}`, `{"registrants":[{"host":"x"}]}`,
		fmt.Sprintf(`{"type":9,"holder":%[1]q,"registrants":[{"host":%[1]q,"key":1}]}`, resvHost(1))} {
		for _, name := range store.names() {
			if strings.HasPrefix(name, "reservation-") {
				store.put(name, []byte(bad))
			}
		}
		_, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN, Namespaces: []NamespaceConfig{{Volume: newTestVolume(1<<20, 512)}}})
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "reservation") {
			t.Errorf("served a namespace whose saved reservation is %q: %v", bad, err)
		}
	}
}

// TestResvPersistenceRefused: feature 83h of a namespace that doesn't exist, or if there is no Store.
func TestResvPersistenceRefused(t *testing.T) {
	q := dial(t, newTarget(t, newTestVolume(1<<20, 512)))
	connectAdmin(q, testNQN, 0)
	q.fails(setFeature(nvme.FeatResvPersistence, 7, 0), nil, nvme.StatusInvalidField|dnr)
	q.fails(setFeature(nvme.FeatResvPersistence, nvme.NSIDAll, nvme.ResvPersistPTPL), nil, nvme.StatusInvalidField|dnr)
	q.must(setFeature(nvme.FeatResvPersistence, nvme.NSIDAll, 0), nil)
	q.fails(setFeature(nvme.FeatResvPersistence, 1, nvme.ResvPersistPTPL), nil, nvme.StatusInvalidField|dnr)
	q.must(setFeature(nvme.FeatResvPersistence, 1, 0), nil)
}

// TestPersistenceOfAll: Persist Through Power Loss can be set for all attached namespaces at once.
func TestPersistenceOfAll(t *testing.T) {
	store := newMemStore()
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	expect := func(want uint32) {
		t.Helper()
		for nsid := uint32(1); nsid <= 2; nsid++ {
			get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvPersistence, 0, nsid, 0) })
			if v := s.admin.must(get, nil).DW0(); v != want {
				t.Errorf("namespace %d: %d, want %d", nsid, v, want)
			}
			get.SetGetFeatures(nvme.FeatResvPersistence, nvme.SELDefault, nsid, 0)
			if v := s.admin.must(get, nil).DW0(); v != 0 {
				t.Errorf("namespace %d: %d by default", nsid, v)
			}
		}
	}
	s.admin.must(setFeature(nvme.FeatResvPersistence, nvme.NSIDAll, nvme.ResvPersistPTPL), nil)
	expect(nvme.ResvPersistPTPL)
	s.admin.must(setFeature(nvme.FeatResvPersistence, nvme.NSIDAll, 0), nil)
	expect(0)
}

// TestReservationNotSaved: a command whose change of a persistent reservation can't be saved changes nothing.
func TestReservationNotSaved(t *testing.T) {
	store := newMemStore()
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	persistAs(1, 11).run(s.io)
	before := report(s.io)
	store.setErr(errors.New("disk full"))
	registerAs(1, nvme.ResvReplace, 11, 12, nvme.StatusInternalError).run(s.io)
	registerAs(1, nvme.ResvUnregister, 11, 0, nvme.StatusInternalError).run(s.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, nvme.StatusInternalError).run(s.io)
	if after := report(s.io); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, before that %+v", after, before)
	}
	store.setErr(nil)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, 0).run(s.io)
}
