package main

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// otherNames holds what nvme-cli, or fio's users, call commands of ours.
var otherNames = map[string][]string{
	"bench":     {"fio", "perf"},
	"discard":   {"dsm", "trim", "unmap"},
	"discover":  {"list-subsys"},
	"show-regs": {"get-property", "get-reg"},
	"list-ns":   {"get-ns-id"},
	"get-log": {
		"ave-discovery-log", "boot-part-log", "changed-alloc-ns-list-log", "changed-ns-list-log",
		"dispersed-ns-participating-nss-log", "endurance-event-agg-log", "endurance-log", "host-discovery-log",
		"lba-status-log", "media-unit-stat-log", "mgmt-addr-list-log", "mi-cmd-support-effects-log", "phy-rx-eom-log",
		"pred-lat-event-agg-log", "predictable-lat-log", "pull-model-ddc-req-log", "reachability-associations-log",
		"reachability-groups-log", "resv-notif-log", "rotational-media-info-log", "self-test-log",
		"supported-cap-config-log", "telemetry-log",
	},
}

// otherFlags holds those of nvme-cli's flags for ranges, which it counts in blocks, and for files whose purpose others of
// ours have.
var otherFlags = map[string][]string{
	"start-block": {"offset"}, "slbs": {"offset"}, "sdlba": {"to"},
	"block-count": {"length"}, "blocks": {"length"}, "data-size": {"length"},
	"data": {"input", "output"},
}

// otherFlag says which flag of c is meant by one of nvme-cli's.
func otherFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		for _, name := range otherFlags[unknown.GetSpecifiedName()] {
			if f := c.Flags().Lookup(name); f != nil {
				_, usage := pflag.UnquoteUsage(f)
				return cli.Usage("%w; is --%s meant: %s?", err, name, usage)
			}
		}
		if instead := insteadOf(c, unknown.GetSpecifiedName()); instead != "" {
			return cli.Usage("%w: %s", err, instead)
		}
	}
	return c.Root().FlagErrorFunc()(c, err)
}

// misplaced refuses what names a target as an argument of c, which has flags for that, and leaves other arguments to
// check.
func misplaced(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		for _, arg := range args {
			if flags := flagsFor(arg, cli.Or(cli.Transports())); flags != "" && c.Flags().Lookup("traddr") != nil {
				return cli.Usage("%s: flags say where the target is: want %s; see %s --help", arg, flags, c.CommandPath())
			}
		}
		return check(c, args)
	}
}

// flagsFor returns the flags for a target that is named as an endpoint, an address or a device; "" for anything else. The
// transport is that of an address.
func flagsFor(arg, transport string) string {
	if strings.HasPrefix(arg, "/dev/nvme") || strings.HasPrefix(arg, "/dev/ng") {
		return "-t, -a and, for a namespace, --nsid in place of a device"
	}
	rest := arg
	scheme, behind, isURL := strings.Cut(arg, "://")
	if isURL {
		transport, rest = scheme, behind
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.Trim(rest, "[]"), ""
	}
	if _, err := netip.ParseAddr(host); err != nil && !isURL || host == "" {
		return ""
	}
	flags := "-t " + transport + " -a " + host
	if port != "" {
		flags += " -s " + port
	}
	return flags
}

// doubleDashed returns args with two dashes in front of those of bench's options that have one, which is enough for
// fio: -rw=read would be taken for -r w=read.
func doubleDashed(root *cobra.Command, args []string) []string {
	c, _, err := root.Find(args)
	if err != nil || c.Name() != benchName {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && len(name) > 1 && c.Flags().Lookup(name) != nil {
			args[i] = "-" + arg
		}
	}
	return args
}
