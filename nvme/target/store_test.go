package target

import (
	"encoding/base64"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// FuzzState starts a target whose Store has arbitrary data under one of its names. The target refuses that as ErrState,
// or serves a host, to which the data shows in logs and reports that make sense.
func FuzzState(tf *testing.F) {
	f := fuzzing.New(tf)
	forms := storedForms()
	for i, name := range []string{formReservation, formUncorrectable, formProtected, formNamespaces, formSanitize, formEvents} {
		f.Add(uint8(i), []byte(forms[name]))
	}
	f.Add(uint8(3), []byte(`{"created":[],"attachments":{},"pending":["00000000-0000-4000-8000-000000000003"]}`))
	f.Add(uint8(4), []byte(`{"state":2,"cdw10":2,"cdw11":0,"uuids":[],"passes":0}`))
	f.Add(uint8(5), []byte(`{"events":[{"Type":4,"Data":"`+base64.StdEncoding.EncodeToString(make([]byte, 1<<16))+`"}]}`))
	f.Fuzz(func(t *testing.T, which uint8, saved []byte) {
		volume := newTestVolume(8192, 512)
		store := newMemStore()
		store.put(stateNames(t)[int(which)%len(stateNames(t))], saved)
		tg, err := New(Config{Store: store, Subsystems: []SubsystemConfig{{
			NQN: testNQN, AllowAnyHost: true, Pool: anyPool{}, Namespaces: []NamespaceConfig{{Volume: volume}},
		}}})
		if err != nil {
			if !errors.Is(err, ErrState) && !errors.Is(err, errNoVolume) {
				t.Fatal(err)
			}
			return
		}
		defer closeTarget(t, tg)
		s := connectAs(t, tg, 1)
		defer s.close()
		if tg.Subsystem(testNQN).sanitizing().OK() { // otherwise the log can't be read
			readEvents(s.admin, nvme.PersistentEstablish)
		}
	})
}

// stateNames are the names of everything that a target stores of a subsystem with one namespace.
func stateNames(t *testing.T) []string {
	t.Helper()
	s := newSubsystem(nil, &SubsystemConfig{NQN: testNQN})
	ns := newNamespace(s, 1, &NamespaceConfig{Volume: newTestVolume(8192, 512)})
	return []string{
		ns.stateName(stateReservation), ns.stateName(stateUncorrectable), ns.stateName(stateProtected),
		s.stateName("namespaces"), s.stateName("sanitize"), s.stateName("events"),
	}
}

// anyPool has every volume that it could have made, and opens none twice.
type anyPool struct{}

var errNoVolume = errors.New("there is no such volume")

func (anyPool) Capacity() uint64    { return 1 << 20 }
func (anyPool) Remove(string) error { return nil }

func (p anyPool) Create(name string, size int64, blockSize int) (blockdev.Volume, error) {
	return p.Open(name, size, blockSize)
}

func (p anyPool) Open(_ string, size int64, blockSize int) (blockdev.Volume, error) {
	if blockSize != 512 && blockSize != 4096 || size <= 0 || size%int64(blockSize) != 0 || uint64(size) > p.Capacity() {
		return nil, errNoVolume
	}
	return newTestVolume(size, blockSize), nil
}

// TestCheckedState: a namespace that was checked is added with what was stored of it, even if the Store has begun to
// fail; but not with what a host has changed since, and a check, or another subsystem, finds what the operator has
// repaired.
func TestCheckedState(t *testing.T) {
	store := newMemStore()
	tg := newTargetWith(t, func(c *Config) { c.Store = store })
	sub := tg.Subsystem(testNQN)
	var added []*Namespace
	add := func(nsid uint32, gone ...uint32) {
		t.Helper()
		c := NamespaceConfig{NSID: nsid, Volume: newTestVolume(1<<20, 512), UUID: [16]byte{9}}
		err := sub.CheckNamespaces(gone, []NamespaceConfig{c})
		for _, nsid := range gone {
			if !added[nsid-1].protected.Load() {
				if _, err := added[nsid-1].protect(true); err != nil {
					t.Fatal(err)
				}
			}
			err = errors.Join(err, sub.RemoveNamespace(nsid))
		}
		if len(gone) == 0 { // otherwise what has changed is loaded
			store.setErr(errors.New("disk on fire"))
		}
		ns, addErr := sub.AddNamespace(c)
		store.setErr(nil)
		if err := errors.Join(err, addErr); err != nil {
			t.Fatal(err)
		}
		added = append(added, ns)
	}
	add(1)
	add(2, 1) // which a host protects after the check
	if !added[1].protected.Load() {
		t.Error("what a host has protected isn't any more")
	}
	if err := sub.RemoveNamespace(2); err != nil {
		t.Fatal(err)
	}
	add(3)
	if !added[2].protected.Load() {
		t.Error("what was protected when it was checked isn't any more")
	}
	if err := sub.RemoveNamespace(3); err != nil {
		t.Fatal(err)
	}
	name, c := added[2].stateName(stateProtected), NamespaceConfig{NSID: 4, Volume: newTestVolume(1<<20, 512), UUID: [16]byte{9}}
	good, _ := store.Load(name)
	for _, x := range []struct {
		content []byte
		want    error
	}{{[]byte("{"), ErrState}, {good, nil}, {[]byte("{"), ErrState}} {
		store.put(name, x.content)
		if err := sub.CheckNamespaces(nil, []NamespaceConfig{c}); !errors.Is(err, x.want) {
			t.Errorf("a check of %q: %v, want %v", x.content, err, x.want)
		}
	}
	if _, err := sub.AddNamespace(c); !errors.Is(err, ErrState) {
		t.Errorf("after a check that failed: %v", err)
	}
	store.put(name, nil)
	if err := sub.CheckNamespaces(nil, []NamespaceConfig{c}); err != nil {
		t.Fatal(err)
	}
	store.put(name, good) // by the operator, after a change that failed elsewhere
	other, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + "-other", Namespaces: []NamespaceConfig{c}})
	if err != nil {
		t.Fatal(err)
	}
	if !other.namespace(c.NSID).protected.Load() {
		t.Error("in another subsystem it isn't protected, as what was loaded before for the first one says")
	}
}

// hangingStore has each Load of one name wait, once hanging is set, until it receives.
type hangingStore struct {
	*memStore
	name    string
	hanging atomic.Bool
	loads   chan chan struct{}
}

func (s *hangingStore) Load(name string) ([]byte, error) {
	b, err := s.memStore.Load(name)
	if s.hanging.Load() && name == s.name {
		release := make(chan struct{})
		s.loads <- release
		<-release
	}
	return b, err
}

// TestSaveWhileLoading: a Store that takes long to load something doesn't keep others from saving; and what one has
// saved meanwhile isn't lost to the namespace that was being checked.
func TestSaveWhileLoading(t *testing.T) {
	store := &hangingStore{memStore: newMemStore(), loads: make(chan chan struct{})}
	tg := newTargetWith(t, func(c *Config) { c.Store = store })
	sub := tg.Subsystem(testNQN)
	c := NamespaceConfig{NSID: 1, Volume: newTestVolume(1<<20, 512), UUID: [16]byte{9}}
	had, err := sub.AddNamespace(c)
	if err != nil {
		t.Fatal(err)
	}
	store.name = had.stateName(stateProtected)
	store.hanging.Store(true)
	next := c
	next.NSID, next.Volume = 2, newTestVolume(1<<20, 512)
	checked, protected := make(chan error, 1), make(chan error, 1)
	go func() { checked <- sub.CheckNamespaces([]uint32{1}, []NamespaceConfig{next}) }()
	release := <-store.loads
	store.hanging.Store(false)
	go func() {
		_, err := had.protect(true)
		protected <- err
	}()
	if err, ok := soon.Receive(protected); !ok || err != nil {
		t.Errorf("while something is loaded, saving ends: %v, %v", ok, err)
	}
	close(release)
	if err := <-checked; err != nil {
		t.Fatal(err)
	}
	if err := sub.RemoveNamespace(1); err != nil {
		t.Fatal(err)
	}
	if ns, err := sub.AddNamespace(next); err != nil || !ns.protected.Load() {
		t.Errorf("%v; what was protected while it was checked isn't", err)
	}
}
