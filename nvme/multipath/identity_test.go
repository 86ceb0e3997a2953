package multipath

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestAccepts: paths lead to one namespace only if its identifiers say so and it is shared by several controllers
// (NMIC bit 0): otherwise data written through one path would be read from another namespace. With one path nothing
// can be mixed up.
func TestAccepts(t *testing.T) {
	type change func(*host.Namespace)
	uuid := func(v byte) change { return func(n *host.Namespace) { n.Descriptors.UUID[0] = v } }
	nguid := func(v byte) change { return func(n *host.Namespace) { n.Descriptors.NGUID[0] = v } }
	eui64 := func(v byte) change { return func(n *host.Namespace) { n.Descriptors.EUI64[0] = v } }
	oldNGUID := func(v byte) change { return func(n *host.Namespace) { n.Identity.NGUID[0] = v } }
	oldEUI64 := func(v byte) change { return func(n *host.Namespace) { n.Identity.EUI64[0] = v } }
	private := func(n *host.Namespace) { n.Identity.NMIC, n.Descriptors.UUID[0] = 0, 1 }
	none := func(*host.Namespace) {}
	namespace := func(c change) *host.Namespace {
		n := &host.Namespace{NamespaceInfo: host.NamespaceInfo{ID: 1, Identity: nvme.IdentifyNamespace{NMIC: nvme.NMICShared}}}
		c(n)
		return n
	}
	for name, c := range map[string]struct {
		one, other   change
		single, many bool // accepted as the only path, and as one of several
	}{
		"the same UUID":                        {uuid(1), uuid(1), true, true},
		"another UUID":                         {uuid(1), uuid(2), false, false},
		"the same UUID, not shared":            {private, private, true, false},
		"no identifier":                        {none, none, true, false},
		"the same NGUID, once of Identify":     {oldNGUID(1), nguid(1), true, true},
		"another NGUID, both of Identify":      {oldNGUID(1), oldNGUID(2), false, false},
		"the same EUI64, once of Identify":     {oldEUI64(1), eui64(1), true, true},
		"another EUI64, both of Identify":      {oldEUI64(1), oldEUI64(2), false, false},
		"an identifier of one of the two only": {uuid(1), none, false, false},
	} {
		for several, want := range map[bool]bool{false: c.single, true: c.many} {
			n := &space{nsid: 1, base: namespace(c.one), sub: &Subsystem{}}
			n.sub.several.Store(several)
			if err := n.accepts(namespace(c.other)); (err == nil) != want || err != nil && !errors.Is(err, ErrIdentity) {
				t.Errorf("%s, several paths %v: %v", name, several, err)
			}
		}
	}
}
