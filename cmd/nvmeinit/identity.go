package main

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/identity"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// identity returns the name and UUID of this host: from the flags, and otherwise as saved. A name of the UUID form
// includes the UUID.
func (f *connFlags) identity() (nqn string, id nvme.HostID, err error) {
	if f.hostID != "" {
		u, err := uuid.Parse(f.hostID)
		if err != nil {
			return "", id, cli.Usage("--hostid %q: want a UUID, as 6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a", f.hostID)
		}
		if id = nvme.HostID(u); id.IsZero() {
			return "", id, cli.Usage("--hostid %s: it names nobody; leave it out for this host's", f.hostID)
		}
	} else {
		id, _ = nvme.HostIDOf(f.hostNQN)
	}
	if nqn = f.hostNQN; nqn == "" || id.IsZero() {
		saved, err := identity.Default().Load()
		if err != nil {
			return "", id, fmt.Errorf("this host's identity: %w", err)
		}
		if f.lasting {
			if err := mustLast(&saved); err != nil {
				return "", id, err
			}
		}
		nqn = cmp.Or(nqn, saved.NQN)
		if id.IsZero() {
			id = saved.ID
		}
	}
	f.name = nqn
	return nqn, id, nil
}

// mustLast returns an error if the next command will have another identity.
func mustLast(id *identity.Identity) error {
	if id.Unsaved == nil {
		return nil
	}
	return cli.Say(id.Unsaved, "this host's name can't be saved, so every command has a new one: %v; "+
		"provide /etc/machine-id or /etc/nvme/hostnqn, or connect with -q and -I", id.Unsaved)
}

func newShowHostNQN() *cobra.Command {
	var output cli.Format
	c := &cobra.Command{
		Use:   "show-hostnqn",
		Short: "Show the name by which targets know this host",
		Long: `show-hostnqn shows the NVMe Qualified Name that nvmeinit connects with unless -q gives another.

It is that of nvme-cli: /etc/nvme/hostnqn, with the UUID in /etc/nvme/hostid; for an
ordinary user where these are missing, the same files in $XDG_CONFIG_HOME/nvme
(~/.config/nvme). Where none is saved it is derived from /etc/machine-id, and the same
each time. Without that file a new one is saved; if that fails, every command has another
name, and there is none to show. -o json shows the UUID and the source too.`,
		Example: "  nvmeinit show-hostnqn\n  nvmetgt serve --volume disk.img --allow-host $(nvmeinit show-hostnqn)",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			id, err := identity.Default().Load()
			if err := cmp.Or(err, mustLast(&id)); err != nil {
				return err
			}
			if output == cli.JSON {
				return cli.PrintJSON(c.OutOrStdout(), map[string]string{"hostnqn": id.NQN, "hostid": id.ID.String(), "source": id.Source})
			}
			fmt.Fprintln(c.OutOrStdout(), id.NQN)
			return nil
		},
	}
	cli.OutputFlag(c.Flags(), &output)
	return c
}

func newGenHostNQN() *cobra.Command {
	var save bool
	c := &cobra.Command{
		Use:   "gen-hostnqn",
		Short: "Make a new name for this host",
		Long: `gen-hostnqn prints a name that nobody has, of the UUID form. With --save it becomes this
host's: hostnqn and hostid are written to /etc/nvme by root, and to $XDG_CONFIG_HOME/nvme
by others. What is saved already is never replaced.`,
		Example: "  nvmeinit gen-hostnqn\n  nvmeinit gen-hostnqn --save",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			id := identity.New()
			if save {
				if _, err := identity.Default().Save(id); err != nil {
					return cli.Say(err, "--save: %v", err)
				}
			}
			fmt.Fprintln(c.OutOrStdout(), id.NQN)
			return nil
		},
	}
	c.Flags().BoolVar(&save, "save", false, "make it this host's")
	return c
}
