package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ctl is what the commands of ctl share.
type ctl struct{ socket string }

func (x *ctl) client() *control.Client { return control.NewClient(x.socket) }

func newCtl() *cobra.Command {
	x := &ctl{}
	c := &cobra.Command{
		Use:   "ctl",
		Short: "Look at a running target, and change it",
		Long: `ctl speaks to an nvmetgt that runs with --control SOCKET, or control: SOCKET in its file.
Each change is made as a whole or not at all, and hosts that it doesn't concern don't
notice. It is gone with the program unless "ctl save" writes it to the program's file.`,
		Example: `  nvmetgt serve --config target.yaml &      # with control: /tmp/target.sock in it
  nvmetgt ctl --socket /tmp/target.sock show
  nvmetgt ctl --socket /tmp/target.sock add-namespace --volume more.img --size 1GiB
  nvmetgt ctl --socket /tmp/target.sock save`,
	}
	c.PersistentFlags().StringVar(&x.socket, "socket", control.DefaultSocket, "control `SOCKET` of the target")
	c.AddCommand(x.newShow(), x.newConfig(), x.newApply(),
		x.newPost("reload", "Read the program's file again, and become what it says", (*control.Client).Reload),
		x.newPost("save", "Write what the target is to the program's file", (*control.Client).Save),
		x.newDrain(), x.newPost("resume", "Take hosts again after drain", (*control.Client).Resume),
		x.newAddSubsystem(), x.newRemoveSubsystem(), x.newAddNamespace(), x.newRemoveNamespace(),
		x.newHost("allow-host", "Let a host connect that may not yet", allowHost),
		x.newHost("forbid-host", "Let a host connect no more, and disconnect it", forbidHost),
		x.newSetANA(),
		x.newListen("listen", "Listen on one more endpoint", addListener),
		x.newListen("unlisten", "Stop listening on an endpoint, and disconnect who came by it", removeListener))
	for _, sub := range c.Commands() {
		sub.Example = "  nvmetgt ctl " + ctlExamples[sub.Name()]
	}
	return cli.Parent(c)
}

// ctlExamples have an example of each command of ctl.
var ctlExamples = map[string]string{
	"show":             "show -o json",
	"config":           "config > target.yaml",
	"apply":            "apply target.yaml",
	"reload":           "reload",
	"save":             "save",
	"drain":            "drain --timeout 30s",
	"resume":           "resume",
	"add-subsystem":    "add-subsystem -n nqn.2026-11.org.example:more --allow-host nqn.2026-11.org.example:host1",
	"remove-subsystem": "remove-subsystem -n nqn.2026-11.org.example:more",
	"add-namespace":    "add-namespace --volume more.img --size 1GiB",
	"remove-namespace": "remove-namespace --nsid 2",
	"allow-host":       "allow-host nqn.2026-11.org.example:host2",
	"forbid-host":      "forbid-host nqn.2026-11.org.example:host2",
	"set-ana":          "set-ana 1 non-optimized --listen tcp://192.0.2.1:4420",
	"listen":           "listen tcp://192.0.2.1:4420",
	"unlisten":         "unlisten tcp://192.0.2.1:4420",
}

func (x *ctl) newConfig() *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "Print what the target is, as a configuration file", Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, _, err := x.client().Config(c.Context())
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(b)
			return err
		},
	}
}

func (x *ctl) newApply() *cobra.Command {
	return &cobra.Command{
		Use: "apply FILE", Short: "Become what a file says", Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			_, text, err := loadText(c.Context(), "apply", args[0])
			if err != nil {
				return err
			}
			return x.client().Apply(c.Context(), text, "")
		},
	}
}

func (x *ctl) newShow() *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show namespaces, hosts, queues and what they do", Args: cli.NoArgs}
	var output cli.Format
	cli.OutputFlag(c.Flags(), &output)
	c.RunE = func(c *cobra.Command, _ []string) error {
		st, err := x.client().Status(c.Context())
		if err != nil {
			return err
		}
		if output == cli.JSON {
			return cli.PrintJSON(c.OutOrStdout(), st)
		}
		showStatus(c.OutOrStdout(), st)
		return nil
	}
	return c
}

// edit sends a change of the configuration.
func (x *ctl) edit(c *cobra.Command, change func(*config.Config) error) error {
	err := x.client().Change(c.Context(), change)
	if err == nil || !lineOfRequest.MatchString(err.Error()) {
		return err
	}
	return cli.Say(err, "%s: %s", c.Name(), lineOfRequest.ReplaceAllString(err.Error(), ""))
}

// lineOfRequest is where the target found a mistake in a configuration that nobody wrote.
var lineOfRequest = regexp.MustCompile(`^request:\d+: `)

// subsystem finds one that a flag names.
func subsystem(cfg *config.Config, nqn string) (*config.Subsystem, error) {
	if nqn == "" && len(cfg.Subsystems) == 1 {
		return &cfg.Subsystems[0], nil
	}
	if nqn == "" {
		return nil, cli.Usage("there are %d subsystems: say which, with -n NQN", len(cfg.Subsystems))
	}
	if s := cfg.Subsystem(nqn); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("-n %s: there is no such subsystem; nvmetgt ctl config shows those that there are", nqn)
}

// nqnFlag adds -n.
func nqnFlag(c *cobra.Command) *string {
	return c.Flags().StringP("nqn", "n", "", "`NQN` of the subsystem (default the only one)")
}

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
	c.Flags().StringArrayVar(&s.Hosts, "allow-host", nil, "`NQN` of a host that may connect; again for more (default every host)")
	c.Flags().IntVar(&s.MaxControllers, "max-controllers", 0, "`controllers` at most; 0: as many as the target")
	return c
}

func (x *ctl) newRemoveSubsystem() *cobra.Command {
	c := &cobra.Command{Use: "remove-subsystem", Short: "Remove a subsystem, and disconnect its hosts", Args: cli.NoArgs}
	nqn := nqnFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return x.edit(c, func(cfg *config.Config) error {
			s, err := subsystem(cfg, *nqn)
			if err != nil {
				return err
			}
			name := s.NQN
			cfg.Subsystems = slices.DeleteFunc(cfg.Subsystems, func(o config.Subsystem) bool { return o.NQN == name })
			return nil
		})
	}
	return c
}

func (x *ctl) newAddNamespace() *cobra.Command {
	var n config.Namespace
	var id string
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
	fl.StringVar(&n.IO, "io", "auto", "how a file is reached: "+cli.Or(config.IOModes))
	cli.Offer(fl, "io", config.IOModes)
	fl.StringVar(&id, "uuid", "", "`UUID` of the namespace (default derived)")
	fl.Uint32Var(&n.ANAGroup, "ana-group", 0, "ANA `group` of the namespace (default 1)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if n.Volume == "" {
			return cli.Usage("nothing to export: give a --volume, as --volume disk.img --size 1GiB")
		}
		if id != "" {
			n.UUID = new(config.UUID)
			if err := n.UUID.UnmarshalText([]byte(id)); err != nil {
				return cli.Usage("--uuid %w", err)
			}
		}
		volume, err := absolute(n.Volume)
		if err != nil {
			return cli.FileError("--volume", n.Volume, err)
		}
		n.Volume = volume
		var given uint32
		err = x.edit(c, func(cfg *config.Config) error {
			s, err := subsystem(cfg, *nqn)
			if err != nil {
				return err
			}
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

func (x *ctl) newRemoveNamespace() *cobra.Command {
	c := &cobra.Command{Use: "remove-namespace", Short: "Export a volume no more; hosts are told", Args: cli.NoArgs}
	nqn := nqnFlag(c)
	nsid := c.Flags().Uint32("nsid", 0, "namespace `ID`")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return x.edit(c, func(cfg *config.Config) error {
			s, err := subsystem(cfg, *nqn)
			if err != nil {
				return err
			}
			if s.Namespace(*nsid) == nil && *nsid == 0 {
				return cli.Usage("remove-namespace: say which, with --nsid; nvmetgt ctl show lists them")
			}
			if s.Namespace(*nsid) == nil {
				return fmt.Errorf("--nsid %d: subsystem %s has no such namespace; nvmetgt ctl show lists those that it has", *nsid, s.NQN)
			}
			s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n config.Namespace) bool { return n.NSID == *nsid })
			return nil
		})
	}
	return c
}

func (x *ctl) newSetANA() *cobra.Command {
	var at string
	c := &cobra.Command{
		Use: "set-ana GROUP STATE", Short: "Give an ANA group a state; hosts are told",
		Long: `set-ana gives an ANA group a state at one endpoint, or at all. States are optimized,
non-optimized, inaccessible, persistent-loss and change.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usage("set-ana takes a group and its state, as 1 non-optimized; see %s --help", c.CommandPath())
			}
			return nil
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

// newPost is a command that has the target do something.
func (x *ctl) newPost(name, short string, do func(*control.Client, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return do(x.client(), c.Context()) },
	}
}

func (x *ctl) newDrain() *cobra.Command {
	c := &cobra.Command{
		Use: "drain", Short: "Let every host go, and take none until resume", Args: cli.NoArgs,
		Long: `drain ends when no host is connected any more. Commands under way are finished; those that
come later are left to hosts to send again, elsewhere or after "ctl resume". Hosts that try
to connect are refused in a way that has them try again.`,
	}
	timeout := c.Flags().Duration("timeout", 0, "`time` that commands under way have (default the target's --drain-timeout)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("timeout") {
			return x.client().Drain(c.Context(), nil)
		}
		if *timeout < 0 {
			return cli.Usage("--timeout %v: want a time, as 500ms, 10s or 1m", *timeout)
		}
		return x.client().Drain(c.Context(), timeout)
	}
	return c
}

// newHost is a command that changes which hosts may connect.
func (x *ctl) newHost(name, short string, change func(s *config.Subsystem, host string) error) *cobra.Command {
	c := &cobra.Command{Use: name + " NQN", Short: short, Args: oneArg("the NQN of a host")}
	nqn := nqnFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := cli.CheckNQN(name, args[0]); err != nil {
			return err
		}
		return x.edit(c, func(cfg *config.Config) error {
			s, err := subsystem(cfg, *nqn)
			if err != nil {
				return err
			}
			return change(s, args[0])
		})
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

// allowsAll is the error where a subsystem names no hosts. To name the first would put all others out.
func allowsAll(s *config.Subsystem) error {
	return fmt.Errorf("subsystem %s allows every host; write those that it shall allow below its hosts: in what nvmetgt ctl config prints, and ctl apply that", s.NQN)
}

// newListen is a command that changes where the target listens.
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

// oneArg wants exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usage("%s takes %s; see %s --help", c.Name(), what, c.CommandPath())
		}
		return nil
	}
}
