package target

import (
	"maps"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// Authentication says which hosts have to authenticate themselves (DH-HMAC-CHAP), and how. It applies to every queue of
// an NVM subsystem; discovery controllers are open to all.
type Authentication struct {
	// Hosts are the secrets of hosts, by NQN. A host without one can't connect to any NVM subsystem, unless Optional is
	// set.
	Hosts    map[string]HostSecrets
	Optional bool
	// Hashes and DHGroups are the hash functions and groups that may be used, in order of preference. Nil means all:
	// the strongest hash function first; of the groups ffdhe3072 first, then the larger ones, ffdhe2048, and no group
	// last.
	Hashes   []nvme.AuthHash
	DHGroups []nvme.DHGroup
}

// HostSecrets are the secrets of one host.
type HostSecrets struct {
	Host *dhchap.Secret // the host has to prove that it has it
	// Controller is what our controllers prove to the host if it asks them to; with nil they can't, and such a host
	// gives up.
	Controller *dhchap.Secret
}

// Validate reports what is wrong with a. The error is ErrConfig.
func (a *Authentication) Validate() error {
	for nqn, s := range a.Hosts {
		if err := nvme.CheckNQN(nqn); err != nil {
			return configError("authentication: host: %v", err)
		}
		if s.Host == nil {
			return configError("authentication: host %s has no secret", nqn)
		}
		if s.Host.Equal(&dhchap.Secret{}) || s.Controller.Equal(&dhchap.Secret{}) {
			return configError("authentication: host %s: a secret is empty, which everybody knows", nqn)
		}
		if s.Host.Equal(s.Controller) {
			return configError("authentication: host %s: its secret and that of the controllers are the same: who has one could pass as the other", nqn)
		}
	}
	for _, h := range a.Hashes {
		if h.Size() == 0 {
			return configError("authentication: %v isn't known", h)
		}
	}
	for _, g := range a.DHGroups {
		if !g.Known() {
			return configError("authentication: %v isn't known", g)
		}
	}
	return nil
}

// preferredGroups returns the default order of groups: ffdhe3072 is what every controller must support, and enough;
// larger ones cost both sides much time for each queue.
func preferredGroups() []nvme.DHGroup {
	return []nvme.DHGroup{nvme.DHFFDHE3072, nvme.DHFFDHE4096, nvme.DHFFDHE6144, nvme.DHFFDHE8192, nvme.DHFFDHE2048, nvme.DHNull}
}

// SetAuthentication replaces the authentication of the configuration; with nil, no host has to authenticate itself.
// Hosts that are connected stay so until DisconnectRevoked: the new rules apply to queues that connect, and when a host
// authenticates itself again. If the error is ErrConfig, nothing is replaced.
func (t *Target) SetAuthentication(a *Authentication) error {
	if a == nil {
		t.auth.Store(nil)
		return nil
	}
	if err := a.Validate(); err != nil {
		return err
	}
	own := Authentication{
		Hosts: maps.Clone(a.Hosts), Optional: a.Optional,
		Hashes: slices.Clone(a.Hashes), DHGroups: slices.Clone(a.DHGroups),
	}
	if own.Hashes == nil {
		own.Hashes = nvme.AuthHashes()
	}
	if own.DHGroups == nil {
		own.DHGroups = preferredGroups()
	}
	t.auth.Store(&own)
	return nil
}

// knows reports whether a host has a secret.
func (a *Authentication) knows(host string) bool {
	if a == nil {
		return false
	}
	_, ok := a.Hosts[host]
	return ok
}

// DisconnectRevoked ends the connections of hosts that couldn't connect any more. The subsystem doesn't allow them since
// SetHosts; or they have no secret since SetAuthentication: it was taken away, or authentication wasn't demanded when
// they connected. A host that has a secret stays connected, even if it has never had to prove that it knows it. The
// others notice nothing. DisconnectRevoked is separate for callers that may have to undo what they set.
func (t *Target) DisconnectRevoked() {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.controllers))
	t.mu.Unlock()
	for _, c := range all {
		if _, no := t.mustAuthenticate(c.sub, c.hostNQN); no != nil || !c.sub.allows(c.hostNQN) {
			c.fatal(ErrNotAllowed)
		}
	}
}

// mustAuthenticate reports whether a host has to authenticate itself to use a subsystem, or why it can't use it, as for
// a host that has the subsystem's own name.
func (t *Target) mustAuthenticate(sub *Subsystem, host string) (bool, *refusal) {
	a := t.auth.Load()
	if a == nil || sub.discovery {
		return false, nil
	}
	if host != sub.nqn && (a.knows(host) || a.Optional) {
		return a.knows(host), nil
	}
	why := "the host has to authenticate itself, and has no secret here"
	if host == sub.nqn {
		why = "the host bears the subsystem's name, and couldn't be told from it when they authenticate themselves"
	}
	return false, refuse(nvme.StatusConnectInvalidHost|nvme.StatusDNR, "%s", why)
}
