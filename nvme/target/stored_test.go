package target

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestStoredOfAnother: reservations, marks and write protection stay with a namespace as long as it is the same: by its
// UUID if that is given, whatever volume it moves to, and otherwise by its volume. Another volume that is exported
// under its NSID has none of them, and what hosts do to it changes nothing of the first.
func TestStoredOfAnother(t *testing.T) {
	id := [16]byte{1}
	for _, x := range []struct {
		what            string
		uuid, otherUUID [16]byte
		path            string // of the second volume
		same            bool
	}{
		{"the same volume", [16]byte{}, [16]byte{}, "/volumes/a", true},
		{"another volume", [16]byte{}, [16]byte{}, "/volumes/b", false},
		{"another volume with the UUID", id, id, "/volumes/b", true},
		{"the same volume with another UUID", id, [16]byte{2}, "/volumes/a", false},
	} {
		t.Run(x.what, func(t *testing.T) {
			tg := newTargetWith(t, func(c *Config) { c.Store = newMemStore() })
			sub := tg.Subsystem(testNQN)
			export := func(path string, uuid [16]byte) {
				t.Helper()
				if sub.namespace(1) != nil {
					if err := sub.RemoveNamespace(1); err != nil {
						t.Fatal(err)
					}
				}
				v := newTestVolume(1<<20, 512)
				v.info.Path = path
				if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: v, UUID: uuid}); err != nil {
					t.Fatal(err)
				}
			}
			export("/volumes/a", x.uuid)
			s := connectAs(t, tg, 1)
			defer s.close()
			persistAs(1, 11).run(s.io)
			s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 4, 0), nil)
			s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }), nil)

			has := func(what string, want bool) {
				t.Helper()
				ns := sub.namespace(1)
				registered, marked := len(ns.resv.now.Load().registrants) > 0, ns.bad.count() > 0
				if registered != want || marked != want || ns.protected.Load() != want {
					t.Errorf("%s: a host is registered %t, blocks are marked %t, it is write protected %t: want %t",
						what, registered, marked, ns.protected.Load(), want)
				}
			}
			export(x.path, x.otherUUID)
			has(x.what, x.same)
			if !x.same {
				persistAs(1, 12).run(s.io)
			}
			export("/volumes/a", x.uuid)
			has("the first again", true)
		})
	}
}

// TestStoredWithoutVolume: state that was stored without its volume, by an earlier version, belongs to the namespace.
func TestStoredWithoutVolume(t *testing.T) {
	store := newMemStore()
	names := stateNames(t)
	for i, saved := range []string{`{"persist":true,"registrants":[{"host":"00000000-0000-0000-0000-000000000001","key":7}]}`, `[{"first":0,"end":8}]`, "write protected\n"} {
		store.put(names[i], []byte(saved))
	}
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	ns := tg.Subsystem(testNQN).namespace(1)
	if len(ns.resv.now.Load().registrants) != 1 || ns.bad.count() != 8 || !ns.protected.Load() {
		t.Errorf("%d registrants, %d blocks marked, write protected %t", len(ns.resv.now.Load().registrants), ns.bad.count(), ns.protected.Load())
	}
}

// TestStoredByEarlierVersion: what was stored under a UUID that didn't depend on the volume stays with that volume after
// an upgrade, once: what a host then lifts isn't back after another restart. Another volume doesn't get it, nor does one
// with a UUID that was given.
func TestStoredByEarlierVersion(t *testing.T) {
	const ours = "/volumes/a"
	former := nvme.HostID(deriveUUID(testNQN, 1, "")).String()
	for _, x := range []struct {
		what, path string
		uuid       [16]byte
		want       bool
	}{
		{"the volume", ours, [16]byte{}, true},
		{"another volume", "/volumes/b", [16]byte{}, false},
		{"the volume with a UUID that is given", ours, [16]byte{1}, false},
	} {
		t.Run(x.what, func(t *testing.T) {
			store := newMemStore()
			v := newTestVolume(1<<20, 512)
			v.info.Path = ours
			for what, state := range map[string]string{
				"reservation":   `{"persist":true,"registrants":[{"host":"00000000-0000-0000-0000-000000000001","key":7}]}`,
				"uncorrectable": `[{"first":0,"end":8}]`,
				"protected":     `true`,
			} {
				store.put(what+"-"+former, []byte(`{"volume":"`+v.info.Kind+":"+ours+`","state":`+state+"}\n"))
			}
			start := func() (*Target, *Namespace) {
				t.Helper()
				v := newTestVolume(1<<20, 512)
				v.info.Path = x.path
				tg := newTargetWith(t, func(c *Config) { c.Store = store })
				ns, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 1, Volume: v, UUID: x.uuid})
				if err != nil {
					t.Fatal(err)
				}
				return tg, ns
			}
			tg, ns := start()
			registered, marked := len(ns.resv.now.Load().registrants) > 0, ns.bad.count() > 0
			if registered != x.want || marked != x.want || ns.protected.Load() != x.want {
				t.Errorf("a host is registered %t, blocks are marked %t, it is write protected %t: want %t",
					registered, marked, ns.protected.Load(), x.want)
			}
			if _, err := ns.protect(false); err != nil {
				t.Fatal(err)
			}
			if err := tg.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, ns = start(); ns.protected.Load() {
				t.Error("write protection that was lifted is back after a restart")
			}
		})
	}
}
