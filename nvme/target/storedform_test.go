package target

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The names and the content of everything that a target with the volume file:/volumes/a stores, as a version that was
// released writes them. Another form of a name would make what is stored silently end.
const (
	formNQN       = "nqn.2026-11.org.example:disks"
	formVolume    = "61138b33-0bad-86bf-81aa-43c9f12043df"
	formSubsystem = "3c86f59d-ba7e-87f5-90bb-404bb10a302d"
	formSerial    = "c031c8354e78bd96d544"
	formCreated   = "00000000-0000-4000-8000-000000000002"

	formReservation   = "reservation-" + formVolume
	formUncorrectable = "uncorrectable-" + formVolume
	formProtected     = "protected-" + formVolume
	formNamespaces    = "namespaces-" + formSubsystem
	formSanitize      = "sanitize-" + formSubsystem
	formEvents        = "events-" + formSubsystem

	formEvent = `{"Type":4,"Revision":1,"CNTLID":7,"Timestamp":1793000000000,"Data":"AQIDBA=="}`
)

func storedForms() map[string]string {
	return map[string]string{
		formReservation: `{"volume":"file:/volumes/a","state":{"persist":true,"generation":3,"type":3,` +
			`"holder":"00000000-0000-0000-0000-000000000001","registrants":[{"host":"00000000-0000-0000-0000-000000000001","key":18446744073709551615},` +
			`{"host":"00000000-0000-0000-0000-000000000002","key":7}]}}` + "\n",
		formUncorrectable: `{"volume":"file:/volumes/a","state":[{"first":0,"end":8},{"first":100,"end":101}]}` + "\n",
		formProtected:     `{"volume":"file:/volumes/a","state":true}` + "\n",
		formNamespaces: `{"created":[{"nsid":513,"uuid":"` + formCreated + `","size":8192,"block_size":512,"private":true,"ana_group":2}],` +
			`"attachments":{"nqn.2026-11.org.example:host1":["` + formCreated + `","` + formVolume + `"]}}` + "\n",
		formSanitize: `{"state":3,"cdw10":10,"cdw11":4,"uuids":["` + formVolume + `"],"passes":2,"left":true}` + "\n",
		formEvents:   `{"power_cycles":2,"generation":9,"events":[` + formEvent + `]}` + "\n",
	}
}

// startStored starts a target with the volume and the Store of storedForms.
func startStored(store Store) (*Target, error) {
	v := newTestVolume(1<<20, 512)
	v.info.Kind, v.info.Path = "file", "/volumes/a"
	return New(Config{Store: store, Subsystems: []SubsystemConfig{{
		NQN: formNQN, AllowAnyHost: true, Pool: anyPool{}, Namespaces: []NamespaceConfig{{Volume: v}},
	}}})
}

func storeOf(forms map[string]string) *memStore {
	store := newMemStore()
	for name, b := range forms {
		store.put(name, []byte(b))
	}
	return store
}

// TestStoredForm pins what a target stores, and the identifiers by which it and hosts find it again: each file is read,
// and saving what was read writes the same.
func TestStoredForm(t *testing.T) {
	forms := storedForms()
	store := storeOf(forms)
	tg, err := startStored(store)
	if err != nil {
		t.Fatal(err)
	}
	s := tg.Subsystem(formNQN)
	ns := s.namespace(1)
	if got := nvme.HostID(ns.uuid).String(); got != formVolume || s.serial != formSerial {
		t.Errorf("UUID %s, serial number %q", got, s.serial)
	}
	if !ns.protected.Load() {
		t.Error("it isn't write protected")
	}
	if _, err := ns.protect(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ns.protect(true); err != nil {
		t.Fatal(err)
	}
	st := s.saveNamespaces(s.managed.created, s.managed.hosts)
	if err := errors.Join(ns.saveReservation(ns.resv.now.Load()), ns.saveState(stateUncorrectable, ns.bad.all()),
		s.saveSanitize(s.sanitize.now.Load())); err != nil || !st.OK() {
		t.Fatal(err, st)
	}
	closeTarget(t, tg)

	now := store.copy()
	if got, want := slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(forms)); !slices.Equal(got, want) {
		t.Errorf("stored are\n%q, want\n%q", got, want)
	}
	// The start is an event.
	events, _, _ := strings.Cut(string(now[formEvents]), ",{")
	if want := `{"power_cycles":3,"generation":9,"events":[` + formEvent; events != want {
		t.Errorf("%s is\n%s, want\n%s and more", formEvents, now[formEvents], want)
	}
	delete(now, formEvents)
	for name, b := range now {
		if string(b) != forms[name] {
			t.Errorf("%s is\n%s, want\n%s", name, b, forms[name])
		}
	}
}

// TestStoredByLaterVersion: what a later version has added to a file isn't ignored, as the next Save would drop it: a
// namespace or subsystem isn't served, and the log of events begins anew.
func TestStoredByLaterVersion(t *testing.T) {
	for name, was := range storedForms() {
		store := storeOf(storedForms())
		last := strings.LastIndex(was, "}")
		if strings.HasPrefix(was, `{"volume"`) && strings.HasSuffix(was, "}}\n") {
			last-- // within the state
		}
		later := was[:last] + `,"fence":true` + was[last:]
		store.put(name, []byte(later))
		tg, err := startStored(store)
		if name == formEvents {
			if err != nil || string(store.copy()[name+"-damaged"]) != later {
				t.Errorf("%s: %v, and stored are %q", name, err, store.names())
			}
		} else if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), name+`: it is of another version, use that: json: unknown field "fence"`) {
			t.Errorf("%s is %s%v", name, later, err)
		}
		if err == nil {
			closeTarget(t, tg)
		}
	}
}
