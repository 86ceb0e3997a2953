package config

import (
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Authentication says which hosts must authenticate themselves (DH-HMAC-CHAP), and how. Secrets
// are in files of their own, which are read when the configuration takes effect.
type Authentication struct {
	Secrets string       `yaml:"secrets,omitempty"` // file with the secrets of many hosts; empty: none
	Hosts   []HostSecret `yaml:"hosts,omitempty"`
	// Hashes and DHGroups are those that may be used, the preferred first; nil: those of
	// target.Authentication.
	Hashes   []nvme.AuthHash `yaml:"hashes,omitempty"`
	DHGroups []nvme.DHGroup  `yaml:"dh_groups,omitempty"`
	Optional bool            `yaml:"optional,omitempty"` // hosts without a secret may connect, too
}

// HostSecret names one host's own file of secrets, or two.
type HostSecret struct {
	NQN            string `yaml:"nqn"`
	SecretFile     string `yaml:"secret_file"`                // the secret that the host proves to have
	CtrlSecretFile string `yaml:"ctrl_secret_file,omitempty"` // the secret that controllers prove to the host; empty: they can't
}

func (c *Config) checkAuthentication() *FieldError {
	a := c.Authentication
	if a == nil {
		return nil
	}
	// With an empty list no host could authenticate itself; and once marshaled, it would mean
	// all.
	if a.Hashes != nil && len(a.Hashes) == 0 {
		return field("authentication.hashes", "", "it is empty: name what may be used, or leave it out, for all")
	}
	if a.DHGroups != nil && len(a.DHGroups) == 0 {
		return field("authentication.dh_groups", "", "it is empty: name what may be used, or leave it out, for all")
	}
	seen := map[string]bool{}
	for i, h := range a.Hosts {
		at := fmt.Sprintf("authentication.hosts[%d].", i)
		if err := checkNQN(at+"nqn", h.NQN); err != nil {
			return err
		}
		if seen[h.NQN] {
			return field(at+"nqn", h.NQN, "it is given twice")
		}
		seen[h.NQN] = true
		if h.SecretFile == "" {
			return field(at+"secret_file", "", "it is missing: name a file that `nvmetgt gen-dhchap-key` has made")
		}
	}
	return nil
}

func (a *Authentication) clone() *Authentication {
	if a == nil {
		return nil
	}
	b := *a
	b.Hosts, b.Hashes, b.DHGroups = slices.Clone(a.Hosts), slices.Clone(a.Hashes), slices.Clone(a.DHGroups)
	return &b
}
