package main

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// authentication reads the files of secrets that a configuration names; it returns nil if it names none.
func (s *server) authentication(cfg *config.Config) (*target.Authentication, error) {
	c := cfg.Authentication
	if c == nil {
		return nil, nil //nolint:nilnil // no authentication is what the target takes nil for
	}
	ctx := s.starting
	if ctx == nil {
		ctx = context.Background()
	}
	a := &target.Authentication{Hosts: map[string]target.HostSecrets{}, Optional: c.Optional, Hashes: c.Hashes, DHGroups: c.DHGroups}
	if c.Secrets != "" {
		what := "authentication.secrets"
		if s.file == "" {
			what = "--dhchap-secrets"
		}
		all, err := cli.ReadSecrets(ctx, what, c.Secrets, s.patience)
		if err != nil {
			return nil, err
		}
		for _, h := range all {
			a.Hosts[h.NQN] = target.HostSecrets{Host: h.Host, Controller: h.Controller}
		}
	}
	for i, h := range c.Hosts {
		at := fmt.Sprintf("authentication.hosts[%d].", i)
		if _, ok := a.Hosts[h.NQN]; ok {
			return nil, fmt.Errorf("%snqn %s: %s has secrets of this host, too; remove one", at, h.NQN, c.Secrets)
		}
		var x target.HostSecrets
		var err error
		if x.Host, err = cli.ReadSecret(ctx, at+"secret_file", h.SecretFile, s.patience); err != nil {
			return nil, err
		}
		if h.CtrlSecretFile != "" {
			if x.Controller, err = cli.ReadSecret(ctx, at+"ctrl_secret_file", h.CtrlSecretFile, s.patience); err != nil {
				return nil, err
			}
		}
		a.Hosts[h.NQN] = x
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return a, nil
}

// admitsNobody reports whether every host has to authenticate itself, and none can.
func admitsNobody(a *target.Authentication) bool {
	return a != nil && len(a.Hosts) == 0 && !a.Optional
}

const genKeyExample = `  nvmetgt gen-dhchap-key --output host1.key
  echo "nqn.2026-11.org.example:host1 $(nvmetgt gen-dhchap-key)" >> secrets; chmod 600 secrets`
