package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// pathFlags says which other paths there are, and what happens when one is lost. The names are nvme-cli's if it has
// them.
type pathFlags struct {
	more           []string // such as tcp://192.0.2.1:4420
	all            bool
	policy         string
	reconnectDelay int // seconds
	lossTimeout    int // seconds
	failTimeout    int // seconds

	set *pflag.FlagSet
}

// add adds the flags to c. comeBack says, for the heading, when lost connections are re-established.
func (p *pathFlags) add(c *cobra.Command, comeBack string) {
	p.set = cli.NewFlags()
	p.set.StringArrayVar(&p.more, "path", nil, "`ENDPOINT` of one more path to the subsystem, as rdma://192.0.2.1:4420; repeat for more")
	p.set.BoolVar(&p.all, "all-paths", false, "use every path that discovery lists, too")
	policies := []string{}
	for _, policy := range multipath.Policies() {
		policies = append(policies, policy.String())
	}
	p.set.StringVar(&p.policy, "iopolicy", multipath.QueueDepth.String(), "`POLICY` that chooses among the best paths: "+cli.Or(policies))
	cli.Offer(p.set, "iopolicy", policies)
	p.set.IntVarP(&p.reconnectDelay, "reconnect-delay", "c", 10, "longest pause in `seconds` between attempts to reconnect")
	p.set.IntVarP(&p.lossTimeout, "ctrl-loss-tmo", "l", 600, "`seconds` after which a lost path is given up, 0 for at once, -1 for never")
	p.set.IntVarP(&p.failTimeout, "fast_io_fail_tmo", "F", -1, "`seconds` that I/O waits while there is no live path, 0 for not at all (default as long as --ctrl-loss-tmo)")
	cli.AddFlags(c, "Paths ("+comeBack+" makes it reconnect lost connections)", p.set)
}

// wanted reports whether any of the flags was given.
func (p *pathFlags) wanted() bool {
	given := false
	if p.set != nil {
		p.set.VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	}
	return given
}

// maxSeconds bounds the times.
const maxSeconds = 7 * 24 * 60 * 60

func (p *pathFlags) validate() error {
	switch {
	case p.reconnectDelay < 1 || p.reconnectDelay > maxSeconds:
		return cli.Usage("--reconnect-delay %d: want 1 to %d seconds", p.reconnectDelay, maxSeconds)
	case p.lossTimeout < -1 || p.lossTimeout > maxSeconds:
		return cli.Usage("--ctrl-loss-tmo %d: want 0 to %d seconds, or -1 for never", p.lossTimeout, maxSeconds)
	case p.failTimeout < -1 || p.failTimeout > maxSeconds:
		return cli.Usage("--fast_io_fail_tmo %d: want 0 to %d seconds, or -1 for as long as --ctrl-loss-tmo", p.failTimeout, maxSeconds)
	}
	if _, err := multipath.ParsePolicy(p.policy); err != nil {
		return cli.Usage("--iopolicy: %w", err)
	}
	for _, e := range p.more {
		if _, err := cli.ParseEndpoint(e); err != nil {
			return cli.Usage("--path: %w", err)
		}
	}
	return nil
}

// config returns the configuration for the flags, which must be valid, without the paths.
func (p *pathFlags) config() multipath.Config {
	policy, _ := multipath.ParsePolicy(p.policy)
	c := multipath.Config{
		Policy:         policy,
		ReconnectDelay: time.Duration(p.reconnectDelay) * time.Second,
		ControllerLoss: limit(p.lossTimeout),
	}
	if p.failTimeout >= 0 {
		c.FastIOFail = limit(p.failTimeout)
	}
	return c
}

// limit returns a time for multipath.Config, where zero stands for the default.
func limit(seconds int) time.Duration {
	if seconds == 0 {
		return time.Nanosecond
	}
	return time.Duration(seconds) * time.Second
}
