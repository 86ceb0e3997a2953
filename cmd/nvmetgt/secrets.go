package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// authentication reads the files of secrets that a configuration names; nil where it names none.
func (s *server) authentication(cfg *config.Config) (*target.Authentication, error) {
	c := cfg.Authentication
	if c == nil {
		return nil, nil //nolint:nilnil // no authentication is what the target takes nil for
	}
	a := &target.Authentication{Hosts: map[string]target.HostSecrets{}, Optional: c.Optional, Hashes: c.Hashes, DHGroups: c.DHGroups}
	if c.Secrets != "" {
		what := "authentication.secrets"
		if s.file == "" {
			what = "--dhchap-secrets"
		}
		all, err := cli.ReadSecrets(what, c.Secrets)
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
		if x.Host, err = cli.ReadSecret(at+"secret_file", h.SecretFile); err != nil {
			return nil, err
		}
		if h.CtrlSecretFile != "" {
			if x.Controller, err = cli.ReadSecret(at+"ctrl_secret_file", h.CtrlSecretFile); err != nil {
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

// admitsNobody tells whether each host has to authenticate itself, and none can.
func admitsNobody(a *target.Authentication) bool {
	return a != nil && len(a.Hosts) == 0 && !a.Optional
}

func newGenKey() *cobra.Command {
	var hmac uint8
	var length int
	var output string
	c := &cobra.Command{
		Use:   "gen-dhchap-key",
		Short: "Make a secret for authentication",
		Long: `gen-dhchap-key draws a secret for DH-HMAC-CHAP, of a host or of controllers, and prints
it, or writes it to a file that only you may read. It is what nvme-cli's command of that
name makes, and Linux takes it too.`,
		Example: `  nvmetgt gen-dhchap-key --output host1.key
  echo "nqn.2026-11.org.example:host1 $(nvmetgt gen-dhchap-key)" >> secrets; chmod 600 secrets`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("key-length") && hmac > 0 {
				length = nvme.AuthHash(hmac).Size()
			}
			s, err := dhchap.Generate(nvme.AuthHash(hmac), length)
			switch {
			case hmac > uint8(nvme.AuthSHA512):
				return cli.Usage("--hmac %d: want 0 (none), 1 (SHA-256), 2 (SHA-384) or 3 (SHA-512)", hmac)
			case err != nil:
				return cli.Usage("--key-length %d: want 32, 48 or 64 bytes", length)
			case output != "":
				return cli.CreateSecret("--output", output, s.Text()+"\n")
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), s.Text())
			return err
		},
	}
	c.Flags().SortFlags = false
	c.Flags().Uint8VarP(&hmac, "hmac", "m", 1, "hash `function` that ties the secret to a name: 0 none, 1 SHA-256, 2 SHA-384, 3 SHA-512")
	c.Flags().IntVarP(&length, "key-length", "l", 32, "`bytes` of the secret: 32, 48 or 64 (default as long as the hash)")
	c.Flags().StringVar(&output, "output", "", "`FILE` to make, which must not exist (default standard output)")
	return c
}
