package target

import (
	"errors"
	"strings"
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

// TestStoredByEarlierVersion: a namespace isn't served if an earlier version stored something of it in a form, or under a
// UUID, that isn't read any more: the error names it. What is another volume's doesn't count.
func TestStoredByEarlierVersion(t *testing.T) {
	const ours = "/volumes/a"
	id := nvme.HostID{1}
	former := nvme.HostID(deriveUUID(testNQN, 1, "")).String()
	kind := newTestVolume(1<<20, 512).info.Kind
	of := func(volume string) string { return `{"volume":"` + volume + `","state":true}` }
	for _, x := range []struct {
		name, saved string
		uuid        [16]byte
		refused     bool
	}{
		{"protected-" + former, of(kind + ":" + ours), [16]byte{}, true},
		{"reservation-" + former, of(kind + ":" + ours), [16]byte{}, true},
		{"uncorrectable-" + former, `[{"first":0,"end":8}]`, [16]byte{}, true},
		{"protected-" + former, of(kind + ":/volumes/b"), [16]byte{}, false},
		{"protected-" + former, of(""), [16]byte{}, false}, // of a volume without a path
		{"protected-" + former, of(kind + ":" + ours), id, false},
		{"protected-" + id.String(), of(kind + ":" + ours), id, false},
		{"protected-" + id.String(), "write protected\n", id, true},
		{"uncorrectable-" + id.String(), `{"volume":""}`, id, true},
	} {
		store := newMemStore()
		store.put(x.name, []byte(x.saved))
		v := newTestVolume(1<<20, 512)
		v.info.Path = ours
		tg := newTargetWith(t, func(c *Config) { c.Store = store })
		_, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 1, Volume: v, UUID: x.uuid})
		if x.refused != errors.Is(err, ErrState) || x.refused != (err != nil && strings.Contains(err.Error(), x.name)) {
			t.Errorf("%s is %q: %v, want an error: %t", x.name, x.saved, err, x.refused)
		}
	}
}
