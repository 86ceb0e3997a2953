package main

import (
	"testing"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/identity"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestIdentity: -q and -I each replace one half of this host's identity; a name with a UUID brings its other half along.
func TestIdentity(t *testing.T) {
	saved, err := identity.Default().Load()
	if err != nil {
		t.Skip("this machine has no identity:", err)
	}
	const plain, own = "nqn.2026-11.org.example:host", "6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
	mine := nvme.HostID(uuid.MustParse(own))
	other := nvme.NewHostID()
	for _, c := range []struct {
		nqn, id string // of the flags
		wantNQN string
		wantID  nvme.HostID
	}{
		{"", "", saved.NQN, saved.ID},
		{plain, "", plain, saved.ID},
		{"", own, saved.NQN, mine},
		{plain, own, plain, mine},
		{other.NQN(), "", other.NQN(), other},
		{other.NQN(), own, other.NQN(), mine},
	} {
		f := connFlags{hostNQN: c.nqn, hostID: c.id}
		nqn, id, err := f.identity()
		if err != nil || nqn != c.wantNQN || id != c.wantID || f.name != nqn {
			t.Errorf("-q %q -I %q: %s, %s, named %s; %v; want %s, %s", c.nqn, c.id, nqn, id, f.name, err, c.wantNQN, c.wantID)
		}
	}
}
