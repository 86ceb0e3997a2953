package main

import (
	"context"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
)

// ctl is the state that the commands of ctl share.
type ctl struct{ socket string }

func (x *ctl) client() *control.Client { return control.NewClient(x.socket) }

func newCtl() *cobra.Command {
	x := &ctl{}
	c := &cobra.Command{
		Use:   "ctl",
		Short: "Look at a running target, and change it",
		Long: `ctl talks to an nvmetgt that runs with --control SOCKET, or control: SOCKET in its file.
Each change is made as a whole or not at all, and doesn't disturb hosts that it doesn't
concern. It is lost when the program ends unless "ctl save" writes it to the program's
file.`,
		Example: `  nvmetgt serve --config target.yaml &      # with control: /tmp/target.sock in it
  nvmetgt ctl --socket /tmp/target.sock show
  nvmetgt ctl --socket /tmp/target.sock add-namespace --volume more.img --size 1GiB
  nvmetgt ctl --socket /tmp/target.sock save`,
	}
	c.PersistentFlags().StringVar(&x.socket, "socket", control.DefaultSocket, "control `SOCKET` of the target")
	c.AddCommand(x.newShow(), x.newConfig(), x.newApply(),
		x.newPost("reload", "Reload the program's configuration file", (*control.Client).Reload),
		x.newPost("save", "Save the current configuration to the program's file", (*control.Client).Save),
		x.newDrain(), x.newPost("resume", "Accept hosts again after drain", (*control.Client).Resume),
		x.newAddSubsystem(), x.newRemoveSubsystem(), x.newAddNamespace(), x.newRemoveNamespace(),
		x.newHost("allow-host", "Allow one more host to connect", allowHost),
		x.newHost("forbid-host", "Forbid a host to connect, and disconnect it", forbidHost),
		x.newSetANA(),
		x.newListen("listen", "Listen on one more endpoint", addListener),
		x.newListen("unlisten", "Stop listening on an endpoint, and disconnect its hosts", removeListener))
	for _, sub := range c.Commands() {
		sub.Example = "  nvmetgt ctl " + ctlExamples[sub.Name()]
	}
	return cli.Parent(c)
}

// ctlExamples has an example of each command of ctl.
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
		Use: "config", Short: "Print the current configuration as a configuration file", Args: cli.NoArgs,
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
		Use: "apply FILE", Short: "Change the target to what a configuration file says", Args: oneFile,
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

// editSubsystem sends a change of the subsystem that a flag names.
func (x *ctl) editSubsystem(c *cobra.Command, nqn string, change func(*config.Config, *config.Subsystem) error) error {
	return x.edit(c, func(cfg *config.Config) error {
		s, err := subsystem(cfg, nqn)
		if err != nil {
			return err
		}
		return change(cfg, s)
	})
}

// lineOfRequest is the position of a mistake that the target found in a configuration that no user wrote.
var lineOfRequest = regexp.MustCompile(`^request:\d+: `)

// subsystem returns the subsystem that a flag names.
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

// newPost returns a command that makes the target do something.
func (x *ctl) newPost(name, short string, do func(*control.Client, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return do(x.client(), c.Context()) },
	}
}

func (x *ctl) newDrain() *cobra.Command {
	c := &cobra.Command{
		Use: "drain", Short: "Disconnect every host, and accept none until resume", Args: cli.NoArgs,
		Long: `drain ends when no host is connected any more. Outstanding commands are completed; later
ones are left to the hosts to retry, elsewhere or after "ctl resume". Hosts that try to
connect are refused in a way that makes them try again.`,
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

// oneArg requires exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usage("%s takes %s; see %s --help", c.Name(), what, c.CommandPath())
		}
		return nil
	}
}
