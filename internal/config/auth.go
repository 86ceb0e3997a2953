package config

import (
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Authentication is which hosts have to authenticate themselves (DH-HMAC-CHAP), and how. Secrets
// lie in files of their own, which are read when the configuration takes effect.
type Authentication struct {
	Secrets string       `yaml:"secrets,omitempty"` // file with the secrets of many hosts; empty: none
	Hosts   []HostSecret `yaml:"hosts,omitempty"`
	// Hashes and DHGroups may be used, the preferred first; nil: target.Authentication's.
	Hashes   []nvme.AuthHash `yaml:"hashes,omitempty"`
	DHGroups []nvme.DHGroup  `yaml:"dh_groups,omitempty"`
	Optional bool            `yaml:"optional,omitempty"` // hosts without a secret may connect, too
}

// HostSecret is a host with a file, or two, for itself.
type HostSecret struct {
	NQN            string `yaml:"nqn"`
	SecretFile     string `yaml:"secret_file"`                // that the host proves to have
	CtrlSecretFile string `yaml:"ctrl_secret_file,omitempty"` // that controllers prove to it; empty: they can't
}

func (c *Config) checkAuthentication() *FieldError {
	a := c.Authentication
	if a == nil {
		return nil
	}
	// With none no host could authenticate itself; and written again, it would be all.
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
