package main

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// inspection is a command that connects and shows something.
type inspection struct {
	use, short, long, example string

	nsid   bool // it takes --nsid
	silent bool // it prints nothing, so that it needs no -o
	run    func(c *cobra.Command, f *connFlags, s *session, nsid uint32) error
}

func (i inspection) command() *cobra.Command {
	f := &connFlags{}
	var nsid uint32
	c := &cobra.Command{Use: i.use + " -t TRANSPORT -a ADDRESS", Short: i.short, Long: i.long, Example: i.example, Args: cli.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		s, err := f.connect(c.Context(), oneQueue)
		if err != nil {
			return err
		}
		defer closing(s, &err)
		return i.run(c, f, s, nsid)
	}
	c.Flags().SortFlags = false
	if i.nsid {
		c.Flags().Uint32Var(&nsid, "nsid", 1, "`number` of the namespace")
	}
	if !i.silent {
		f.addOutput(c)
	}
	f.add(c, true)
	return c
}

// oneQueue is enough for commands that look at the controller.
func oneQueue(c *host.Config) { c.Queues = 1 }

func newIDCtrl() *cobra.Command {
	return inspection{
		use: "id-ctrl", short: "Show the Identify Controller page",
		long: `id-ctrl shows what the controller says of itself: its names, its limits and what it
can do, with the field names of the specification and of nvme-cli.`,
		example: "  nvmeinit id-ctrl -t rdma -a 127.0.0.1\n  nvmeinit id-ctrl -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session, _ uint32) error {
			return printFields(c.OutOrStdout(), f.output, fields(s.Identify()))
		},
	}.command()
}

func newIDNS() *cobra.Command {
	return inspection{
		use: "id-ns", short: "Show the Identify Namespace page of a namespace",
		long: `id-ns shows the size, formats and abilities of a namespace, with the field names of
the specification and of nvme-cli.`,
		example: "  nvmeinit id-ns -t rdma -a 127.0.0.1 --nsid 1\n  nvmeinit id-ns -t tcp -a 127.0.0.1 --nsid 2 -o json",
		nsid:    true,
		run: func(c *cobra.Command, f *connFlags, s *session, nsid uint32) error {
			ns, err := s.namespace(c.Context(), nsid)
			if err != nil {
				return err
			}
			size, block := blockdev.FormatSize(ns.Size()), ns.BlockSize()
			return printFields(c.OutOrStdout(), f.output, append(fields(&ns.Identity),
				field{"size", size, ns.Size()}, field{"block_size", fmt.Sprint(block), block}))
		},
	}.command()
}

func newSmartLog() *cobra.Command {
	return inspection{
		use: "smart-log", short: "Show the SMART / health information log",
		long:    `smart-log shows what the controller counted: commands, data moved, errors, hours.`,
		example: "  nvmeinit smart-log -t rdma -a 127.0.0.1\n  nvmeinit smart-log -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session, _ uint32) error {
			log, err := s.SMART(c.Context())
			if err != nil {
				return err
			}
			return printFields(c.OutOrStdout(), f.output, smartFields(log))
		},
	}.command()
}

// smartFields are the fields of the SMART log with nvme-cli's names.
func smartFields(l *nvme.SMARTLog) []field {
	small := func(name string, n uint64) field { return field{name, fmt.Sprint(n), n} }
	big := func(name string, n nvme.Uint128) field { return field{name, n.String(), json.Number(n.String())} }
	return []field{
		{"critical_warning", fmt.Sprintf("%#x", uint8(l.CriticalWarning)), uint8(l.CriticalWarning)},
		{"temperature", fmt.Sprintf("%d K", l.Kelvin()), l.Kelvin()},
		small("avail_spare", uint64(l.AvailableSpare)),
		small("spare_thresh", uint64(l.SpareThreshold)),
		small("percent_used", uint64(l.PercentageUsed)),
		small("endurance_grp_critical_warning_summary", uint64(l.EnduranceWarning)),
		big("data_units_read", l.DataUnitsRead),
		big("data_units_written", l.DataUnitsWritten),
		big("host_read_commands", l.HostReads),
		big("host_write_commands", l.HostWrites),
		big("controller_busy_time", l.BusyTime),
		big("power_cycles", l.PowerCycles),
		big("power_on_hours", l.PowerOnHours),
		big("unsafe_shutdowns", l.UnsafeShutdowns),
		big("media_errors", l.MediaErrors),
		big("num_err_log_entries", l.ErrorLogEntries),
		small("warning_temp_time", uint64(l.WarningTempTime)),
		small("critical_comp_time", uint64(l.CriticalTempTime)),
	}
}

func newList() *cobra.Command {
	return inspection{
		use: "list", short: "List the namespaces of a subsystem",
		long:    `list shows a line for each namespace of the subsystem.`,
		example: "  nvmeinit list -t rdma -a 127.0.0.1\n  nvmeinit list -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session, _ uint32) error {
			all, err := s.Namespaces(c.Context())
			if err != nil {
				return err
			}
			return printNamespaces(c, f.output, s, all)
		},
	}.command()
}

func printNamespaces(c *cobra.Command, format string, s *session, all []*host.Namespace) error {
	id := s.Identify()
	if format == "json" {
		type device struct {
			NSID   uint32 `json:"NameSpace"`
			SubNQN string `json:"SubsystemNQN"`
			Serial string `json:"SerialNumber"`
			Model  string `json:"ModelNumber"`
			Size   int64  `json:"PhysicalSize"`
			Block  int    `json:"SectorSize"`
			Blocks uint64 `json:"MaximumLBA"`
			UUID   string `json:"UUID,omitempty"`
		}
		devices := []device{}
		for _, n := range all {
			devices = append(devices, device{n.ID, s.Config().SubNQN, nvme.Text(id.SN[:]), nvme.Text(id.MN[:]),
				n.Size(), n.BlockSize(), n.Blocks(), uuidText(n)})
		}
		return cli.PrintJSON(c.OutOrStdout(), map[string]any{"Devices": devices})
	}
	t := cli.NewTable(c.OutOrStdout(), "namespace", "size", "block", "UUID", "model", "serial")
	for _, n := range all {
		t.AppendRow([]any{n.ID, blockdev.FormatSize(n.Size()), n.BlockSize(), uuidText(n),
			nvme.Text(id.MN[:]), nvme.Text(id.SN[:])})
	}
	t.Render()
	return nil
}

func uuidText(n *host.Namespace) string {
	if n.Descriptors.UUID == [16]byte{} {
		return ""
	}
	return uuid.UUID(n.Descriptors.UUID).String()
}
