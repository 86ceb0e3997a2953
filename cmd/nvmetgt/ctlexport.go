package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func (x *ctl) newAddSubsystem() *cobra.Command {
	var s config.Subsystem
	c := &cobra.Command{
		Use: "add-subsystem", Short: "Add a subsystem, without namespaces yet", Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckNQN("--nqn", s.NQN); err != nil {
				return err
			}
			return x.edit(c, func(cfg *config.Config) error {
				if cfg.Subsystem(s.NQN) != nil {
					return fmt.Errorf("--nqn %s: there is such a subsystem already; choose another name, or add to it with add-namespace", s.NQN)
				}
				cfg.Subsystems = append(cfg.Subsystems, s)
				return nil
			})
		},
	}
	c.Flags().StringVarP(&s.NQN, "nqn", "n", "", "`NQN` of the subsystem")
	c.Flags().StringVar(&s.Serial, "serial", "", "serial `number` (default derived from --nqn)")
	c.Flags().StringVar(&s.Model, "model", "", "`model` (default the program's name)")
	c.Flags().StringArrayVar(&s.Hosts, "allow-host", nil, "`NQN` of a host that may connect; repeat for more (default every host)")
	c.Flags().IntVar(&s.MaxControllers, "max-controllers", 0, "`controllers` at most; 0: as many as the target")
	return c
}

func (x *ctl) newRemoveSubsystem() *cobra.Command {
	c := &cobra.Command{Use: "remove-subsystem", Short: "Remove a subsystem, and disconnect its hosts", Args: cli.NoArgs}
	nqn := nqnFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return x.editSubsystem(c, *nqn, removeSubsystem)
	}
	return c
}

func removeSubsystem(cfg *config.Config, s *config.Subsystem) error {
	nqn := s.NQN
	if len(cfg.Subsystems) == 1 {
		return fmt.Errorf("remove-subsystem: %s is the last one; stop the program instead", nqn)
	}
	cfg.Subsystems = slices.DeleteFunc(cfg.Subsystems, func(o config.Subsystem) bool { return o.NQN == nqn })
	return nil
}

func (x *ctl) newAddNamespace() *cobra.Command {
	var n config.Namespace
	var ids namespaceIDs
	c := &cobra.Command{
		Use: "add-namespace", Short: "Export one more volume", Args: cli.NoArgs,
		Long: `add-namespace exports a volume, and prints the namespace that it is. A path counts from where
the command runs, not from where the target does.`,
	}
	nqn := nqnFlag(c)
	fl := c.Flags()
	fl.StringVarP(&n.Volume, "volume", "v", "", "what to export, as `SPEC` of serve")
	fl.Uint32Var(&n.NSID, "nsid", 0, "namespace `ID` (default the lowest that is free)")
	fl.Var(&n.Size, "size", "size of a file to create, as 1GiB")
	fl.Var(&n.BlockSize, "block-size", "logical block in bytes, as 512")
	fl.BoolVar(&n.ReadOnly, "read-only", false, "refuse writes")
	fl.BoolVar(&n.Preallocate, "preallocate", false, "reserve the space of a file that is created")
	fl.StringVar(&n.IO, "io", config.IOModes[blockdev.IOAuto], "how a file is reached: "+cli.Or(config.IOModes))
	cli.Offer(fl, "io", config.IOModes)
	fl.StringVar(&ids.uuid, "uuid", "", "`UUID` of the namespace (default derived)")
	fl.StringVar(&ids.nguid, "nguid", "", "`NGUID` of the namespace, 32 hexadecimal digits (default none)")
	fl.StringVar(&ids.eui64, "eui64", "", "`EUI64` of the namespace, 16 hexadecimal digits (default none)")
	fl.Uint32Var(&n.ANAGroup, "ana-group", 0, "ANA `group` of the namespace (default 1)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if n.Volume == "" {
			return cli.Usage("nothing to export: give a --volume, as --volume disk.img --size 1GiB")
		}
		if err := ids.set(&n); err != nil {
			return err
		}
		volume, err := absolute(n.Volume)
		if err != nil {
			return cli.FileError("--volume", n.Volume, err)
		}
		n.Volume, n.IO = volume, stated(n.IO, config.IOModes[blockdev.IOAuto])
		var given uint32
		err = x.editSubsystem(c, *nqn, func(cfg *config.Config, s *config.Subsystem) error {
			if n.NSID != 0 && s.Namespace(n.NSID) != nil {
				return fmt.Errorf("--nsid %d: subsystem %s has that namespace already; without --nsid it gets one that is free", n.NSID, s.NQN)
			}
			s.Namespaces = append(s.Namespaces, n)
			cfg.Complete()
			given = s.Namespaces[len(s.Namespaces)-1].NSID
			return nil
		})
		if err == nil {
			fmt.Fprintf(c.OutOrStdout(), "namespace %d\n", given)
		}
		return err
	}
	return c
}

// namespaceIDs are the identifiers of a namespace, as the user gives them.
type namespaceIDs struct{ uuid, nguid, eui64 string }

// set gives a namespace the identifiers that there are.
func (ids *namespaceIDs) set(n *config.Namespace) error {
	for _, id := range []struct {
		flag, text string
		parse      func([]byte) error
	}{
		{"uuid", ids.uuid, func(b []byte) error { n.UUID = new(config.UUID); return n.UUID.UnmarshalText(b) }},
		{"nguid", ids.nguid, func(b []byte) error { n.NGUID = new(config.NGUID); return n.NGUID.UnmarshalText(b) }},
		{"eui64", ids.eui64, func(b []byte) error { n.EUI64 = new(config.EUI64); return n.EUI64.UnmarshalText(b) }},
	} {
		if id.text == "" {
			continue
		}
		if err := id.parse([]byte(id.text)); err != nil {
			return cli.Usage("--%s %w", id.flag, err)
		}
	}
	return nil
}

func (x *ctl) newRemoveNamespace() *cobra.Command {
	c := &cobra.Command{Use: "remove-namespace", Short: "Stop exporting a volume, and notify hosts", Args: cli.NoArgs}
	nqn := nqnFlag(c)
	nsid := c.Flags().Uint32("nsid", 0, "namespace `ID`")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return x.editSubsystem(c, *nqn, func(_ *config.Config, s *config.Subsystem) error { return removeNamespace(s, *nsid) })
	}
	return c
}

func removeNamespace(s *config.Subsystem, nsid uint32) error {
	switch {
	case nsid == 0:
		return cli.Usage("remove-namespace: say which, with --nsid; nvmetgt ctl show lists them")
	case s.Create != nil && nsid >= target.FirstCreatedNSID:
		return fmt.Errorf("--nsid %d: from %d on they are namespaces that hosts create, and delete, as by nvmeinit delete-ns", nsid, target.FirstCreatedNSID)
	case s.Namespace(nsid) == nil:
		return fmt.Errorf("--nsid %d: subsystem %s has no such namespace; nvmetgt ctl show lists those that it has", nsid, s.NQN)
	}
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n config.Namespace) bool { return n.NSID == nsid })
	return nil
}
