package main

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// inspection is a command that connects and shows something.
type inspection struct {
	use, short, long, example string

	silent  bool // it prints nothing, so it needs no -o
	bits    bool // it shows bit fields, so it has -H
	lasting bool // the target remembers what it does by the host's name
	// One of them. The others are for commands that take --nsid: showNS shows a namespace, even one that can't be used
	// here.
	run     func(c *cobra.Command, f *connFlags, s *session) error
	runOnNS func(c *cobra.Command, f *connFlags, ns *host.Namespace) error
	showNS  func(c *cobra.Command, f *connFlags, s *session, ns *host.NamespaceInfo) error
}

func (i inspection) command() *cobra.Command {
	f := &connFlags{lasting: i.lasting}
	var nsid uint32
	c := &cobra.Command{Use: i.use + " -t TRANSPORT -a ADDRESS", Short: i.short, Long: i.long, Example: i.example, Args: cli.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		s, err := f.connect(c.Context(), oneQueue)
		if err != nil {
			return err
		}
		defer closing(s, &err)
		switch {
		case i.run != nil:
			return i.run(c, f, s)
		case i.showNS != nil:
			info, err := s.namespaceInfo(c.Context(), nsid)
			if err != nil {
				return err
			}
			return i.showNS(c, f, s, info)
		}
		ns, err := s.namespace(c.Context(), nsid)
		if err != nil {
			return err
		}
		return i.runOnNS(c, f, ns)
	}
	if i.run == nil {
		c.Flags().Uint32Var(&nsid, "nsid", 1, "`number` of the namespace")
	}
	if !i.silent {
		f.addOutput(c)
	}
	if i.bits {
		f.addDecode(c)
	}
	f.add(c, true)
	return c
}

// oneQueue limits a connection to one queue, which is enough for commands that look at the controller.
func oneQueue(c *host.Config) { c.Queues = 1 }

// mustHave rejects a command line without flags that have no default.
func mustHave(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if !c.Flags().Changed(name) {
			return cli.Usage("no --%s given; see %s --help", name, c.CommandPath())
		}
	}
	return nil
}

// upTo rejects a number beyond the last.
func upTo(flag string, v, last uint8) error {
	if v > last {
		return cli.Usage("--%s %d: want 0 to %d", flag, v, last)
	}
	return nil
}

func newIDCtrl() *cobra.Command {
	return inspection{
		use: "id-ctrl", short: "Show the Identify Controller page",
		long: `id-ctrl shows what the controller says of itself: its names, its limits and what it
can do, with the field names of the specification and of nvme-cli.`,
		example: "  nvmeinit id-ctrl -t rdma -a 127.0.0.1 -H\n  nvmeinit id-ctrl -t tcp -a 127.0.0.1 -o json",
		bits:    true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			return printFields(c.OutOrStdout(), f.output, f.decoded(controllerFields(s.Identify())))
		},
	}.command()
}

func newIDNS() *cobra.Command {
	return inspection{
		use: "id-ns", short: "Show the Identify Namespace page of a namespace",
		long: `id-ns shows the size, formats and abilities of a namespace, with the field names of
the specification and of nvme-cli.`,
		example: "  nvmeinit id-ns -t rdma -a 127.0.0.1 --nsid 1 -H\n  nvmeinit id-ns -t tcp -a 127.0.0.1 --nsid 2 -o json",
		bits:    true,
		showNS: func(c *cobra.Command, f *connFlags, _ *session, ns *host.NamespaceInfo) error {
			return printFields(c.OutOrStdout(), f.output, f.decoded(namespaceFields(&ns.Identity)))
		},
	}.command()
}

func newList() *cobra.Command {
	return inspection{
		use: "list", short: "List the namespaces of a subsystem",
		long: `list shows a line for each namespace of the subsystem. One that can't be used here, such
as one with metadata, is left out: the command then fails, and says why.`,
		example: "  nvmeinit list -t rdma -a 127.0.0.1\n  nvmeinit list -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			all, err := s.Namespaces(c.Context())
			if all == nil {
				return err
			}
			return errors.Join(printNamespaces(c, f.output, s, all), err)
		},
	}.command()
}

func printNamespaces(c *cobra.Command, format cli.Format, s *session, all []*host.Namespace) error {
	id := s.Identify()
	if format == cli.JSON {
		type device struct {
			NSID     uint32 `json:"NameSpace"`
			SubNQN   string `json:"SubsystemNQN"`
			Firmware string `json:"Firmware"`
			Model    string `json:"ModelNumber"`
			Serial   string `json:"SerialNumber"`
			Used     uint64 `json:"UsedBytes"`
			Blocks   uint64 `json:"MaximumLBA"`
			Size     int64  `json:"PhysicalSize"`
			Block    int    `json:"SectorSize"`
			UUID     string `json:"UUID,omitempty"`
		}
		devices := []device{}
		for _, n := range all {
			devices = append(devices, device{
				NSID: n.ID, SubNQN: s.Config().SubNQN,
				Firmware: id.FirmwareRevision(), Model: id.ModelNumber(), Serial: id.SerialNumber(),
				Used: n.Identity.NUSE * uint64(n.BlockSize()), Blocks: n.Blocks(), Size: n.Size(), Block: n.BlockSize(), UUID: uuidText(n),
			})
		}
		return cli.PrintJSON(c.OutOrStdout(), map[string]any{"Devices": devices})
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(c.OutOrStdout(), "no namespaces")
		return err
	}
	t := cli.NewTable(c.OutOrStdout(), "namespace", "size", "block", "UUID", "model", "serial")
	for _, n := range all {
		t.AppendRow([]any{n.ID, blockdev.FormatSize(n.Size()), n.BlockSize(), uuidText(n),
			id.ModelNumber(), id.SerialNumber()})
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
