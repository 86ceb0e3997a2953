package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func (x *ctl) newSetANA() *cobra.Command {
	var at string
	c := &cobra.Command{
		Use: "set-ana GROUP STATE", Short: "Set the state of an ANA group, and notify hosts",
		Long: `set-ana gives an ANA group a state at one endpoint, or at all. States are optimized,
non-optimized, inaccessible, persistent-loss and change.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usage("set-ana takes a group and its state, as 1 non-optimized; see %s --help", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return config.ANAStates(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&at, "listen", "", "only at this `ENDPOINT`, as tcp://192.0.2.1:4420 (default everywhere)")
	c.RunE = func(c *cobra.Command, args []string) error {
		group, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			return cli.Usage("set-ana %q: want the number of an ANA group", args[0])
		}
		var state config.ANAState
		if err := state.UnmarshalText([]byte(args[1])); err != nil {
			return cli.Usage("set-ana: state %w", err)
		}
		var listen *cli.Endpoint
		if at != "" {
			e, err := cli.ParseEndpoint(at)
			if err != nil {
				return cli.Usage("--listen %w", err)
			}
			listen = &e
		}
		return x.edit(c, func(cfg *config.Config) error {
			if listen != nil && !slices.Contains(cfg.Listen, *listen) {
				return fmt.Errorf("--listen %s: the target doesn't listen there; nvmetgt ctl show says where it does", listen)
			}
			cfg.SetANA(uint32(group), nvme.ANAState(state), listen)
			return nil
		})
	}
	return c
}

// newHost returns a command that changes which hosts may connect.
func (x *ctl) newHost(name, short string, change func(s *config.Subsystem, host string) error) *cobra.Command {
	c := &cobra.Command{Use: name + " NQN", Short: short, Args: oneArg("the NQN of a host")}
	nqn := nqnFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := cli.CheckNQN(name, args[0]); err != nil {
			return err
		}
		return x.editSubsystem(c, *nqn, func(_ *config.Config, s *config.Subsystem) error { return change(s, args[0]) })
	}
	return c
}

func allowHost(s *config.Subsystem, host string) error {
	if len(s.Hosts) == 0 {
		return allowsAll(s)
	}
	if !slices.Contains(s.Hosts, host) {
		s.Hosts = append(s.Hosts, host)
	}
	return nil
}

func forbidHost(s *config.Subsystem, host string) error {
	// A file may name a host more than once.
	others := slices.DeleteFunc(slices.Clone(s.Hosts), func(h string) bool { return h == host })
	switch {
	case len(s.Hosts) == 0:
		return allowsAll(s)
	case len(others) == len(s.Hosts):
		return fmt.Errorf("subsystem %s doesn't allow %s anyway", s.NQN, host)
	case len(others) == 0:
		return fmt.Errorf("%s is the only host of subsystem %s, and without it every host could connect; allow another one first, or remove the subsystem", host, s.NQN)
	}
	s.Hosts = others
	return nil
}

// allowsAll returns the error for a subsystem that lists no hosts. Listing the first one would exclude all others.
func allowsAll(s *config.Subsystem) error {
	return fmt.Errorf("subsystem %s allows every host; write those that it shall allow below its hosts: in what nvmetgt ctl config prints, and ctl apply that", s.NQN)
}

// newListen returns a command that changes where the target listens.
func (x *ctl) newListen(name, short string, change func(cfg *config.Config, e cli.Endpoint) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " TRANSPORT://ADDRESS:PORT", Short: short, Args: oneArg("an endpoint, as tcp://192.0.2.1:4420"),
		RunE: func(c *cobra.Command, args []string) error {
			e, err := cli.ParseEndpoint(args[0])
			if err != nil {
				return cli.Usage("%s %w", name, err)
			}
			return x.edit(c, func(cfg *config.Config) error { return change(cfg, e) })
		},
	}
}

func addListener(cfg *config.Config, e cli.Endpoint) error {
	if slices.Contains(cfg.Listen, e) {
		return fmt.Errorf("listen %s: the target listens there already", e)
	}
	cfg.Listen = append(cfg.Listen, e)
	return nil
}

func removeListener(cfg *config.Config, e cli.Endpoint) error {
	i := slices.Index(cfg.Listen, e)
	switch {
	case i < 0:
		return fmt.Errorf("unlisten %s: the target doesn't listen there; nvmetgt ctl show says where it does", e)
	case len(cfg.Listen) == 1:
		return fmt.Errorf("unlisten %s: it is the last one; stop the program instead", e)
	}
	cfg.Listen = slices.Delete(cfg.Listen, i, i+1)
	cfg.ANA = slices.DeleteFunc(cfg.ANA, func(a config.ANA) bool { return a.Listen != nil && *a.Listen == e })
	return nil
}
