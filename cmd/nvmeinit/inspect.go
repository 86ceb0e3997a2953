package main

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// inspect makes a command that connects, without I/O queues, and shows something.
func inspect(use, short, example string, run func(c *cobra.Command, f *connFlags, s *session) error) (*cobra.Command, *connFlags) {
	f := &connFlags{}
	c := &cobra.Command{Use: use + " -t TRANSPORT -a ADDRESS", Short: short, Example: example, Args: cli.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		s, err := f.connect(c.Context(), oneQueue)
		if err != nil {
			return err
		}
		defer closing(s, &err)
		return run(c, f, s)
	}
	f.add(c, true)
	return c, f
}

// oneQueue is enough for commands that look at the controller.
func oneQueue(c *host.Config) { c.Queues = 1 }

func newIDCtrl() *cobra.Command {
	c, _ := inspect("id-ctrl", "Show the Identify Controller page",
		"  nvmeinit id-ctrl -t rdma -a 127.0.0.1\n  nvmeinit id-ctrl -t tcp -a 127.0.0.1 -o json",
		func(c *cobra.Command, f *connFlags, s *session) error {
			return printPage(c.OutOrStdout(), f.output, s.Identify())
		})
	return c
}

func newIDNS() *cobra.Command {
	var nsid uint32
	c, _ := inspect("id-ns", "Show the Identify Namespace page of a namespace",
		"  nvmeinit id-ns -t rdma -a 127.0.0.1 --nsid 1",
		func(c *cobra.Command, f *connFlags, s *session) error {
			ns, err := s.Namespace(c.Context(), nsid)
			if err != nil {
				return err
			}
			size, block := blockdev.FormatSize(ns.Size()), ns.BlockSize()
			return printPage(c.OutOrStdout(), f.output, &ns.Identity,
				field{"size", size, ns.Size()}, field{"block size", fmt.Sprint(block), block})
		})
	c.Flags().Uint32Var(&nsid, "nsid", 1, "namespace")
	return c
}

func newSmartLog() *cobra.Command {
	c, _ := inspect("smart-log", "Show the SMART / health information log",
		"  nvmeinit smart-log -t rdma -a 127.0.0.1",
		func(c *cobra.Command, f *connFlags, s *session) error {
			log, err := s.SMART(c.Context())
			if err != nil {
				return err
			}
			return printPage(c.OutOrStdout(), f.output, log)
		})
	return c
}

func newList() *cobra.Command {
	c, _ := inspect("list", "List the namespaces of a subsystem",
		"  nvmeinit list -t rdma -a 127.0.0.1\n  nvmeinit list -t tcp -a 127.0.0.1 -o json",
		func(c *cobra.Command, f *connFlags, s *session) error {
			all, err := s.Namespaces(c.Context())
			if err != nil {
				return err
			}
			return printNamespaces(c, f.output, s, all)
		})
	return c
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
		return printJSON(c.OutOrStdout(), map[string]any{"Devices": devices})
	}
	t := newTable(c.OutOrStdout(), "namespace", "size", "block", "UUID", "model", "serial")
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
