package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// readIdentify reads an Identify page.
func readIdentify(ctx context.Context, c *host.Controller, cns nvme.CNS, nsid uint32, p page) error {
	b, err := c.IdentifyPage(ctx, cns, nsid, nvme.CSINVM)
	if err != nil {
		return err
	}
	return p.Parse(b)
}

func newListNS() *cobra.Command {
	var all bool
	c := inspection{
		use: "list-ns", short: "List the identifiers of namespaces",
		long: `list-ns lists the identifiers of the namespaces that are attached to the controller, or
with --all of those that the subsystem has; nvmeinit list shows what they are.`,
		example: "  nvmeinit list-ns -t rdma -a 127.0.0.1\n  nvmeinit list-ns -t tcp -a 127.0.0.1 --all -o json",
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			list := s.ActiveNamespaces
			if all {
				list = s.AllocatedNamespaces
			}
			ids, err := list(c.Context())
			if err != nil {
				return err
			}
			v := &view{list: "nsid_list", none: "no namespaces"}
			for _, id := range ids {
				v.rows = append(v.rows, object{number("nsid", id)})
			}
			return v.print(c.OutOrStdout(), f.output)
		},
	}.command()
	c.Flags().BoolVar(&all, "all", false, "also those that aren't attached to the controller")
	return c
}

func newListCtrl() *cobra.Command {
	var nsid uint32
	c := inspection{
		use: "list-ctrl", short: "List the controllers of the subsystem",
		long: `list-ctrl lists the identifiers of the controllers that the subsystem has at the moment,
that of this connection too, or with --nsid of those that a namespace is attached to.`,
		example: "  nvmeinit list-ctrl -t rdma -a 127.0.0.1\n  nvmeinit list-ctrl -t tcp -a 127.0.0.1 --nsid 1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			cns := nvme.CNSControllers
			if c.Flags().Changed("nsid") {
				cns = nvme.CNSAttachedControllers
			}
			b, err := s.IdentifyPage(c.Context(), cns, nsid, nvme.CSINVM)
			if err != nil {
				return err
			}
			ids, err := nvme.ParseControllerList(b)
			if err != nil {
				return err
			}
			v := &view{head: object{{"num_ctrl", "", len(ids)}}, list: "ctrl_list", none: "no controllers"}
			for _, id := range ids {
				v.rows = append(v.rows, object{number("ctrl_id", id)})
			}
			return v.print(c.OutOrStdout(), f.output)
		},
	}.command()
	c.Flags().Uint32Var(&nsid, "nsid", 0, "`number` of the namespace")
	return c
}

func newNSDescs() *cobra.Command {
	return inspection{
		use: "ns-descs", short: "Show the identifiers (UUID, NGUID, EUI64) of a namespace",
		long: `ns-descs shows the Namespace Identification Descriptors of a namespace: its UUID, NGUID
and EUI64, as far as it has them, and its command set.`,
		example: "  nvmeinit ns-descs -t rdma -a 127.0.0.1 --nsid 1\n  nvmeinit ns-descs -t tcp -a 127.0.0.1 -o json",
		showNS: func(c *cobra.Command, f *connFlags, _ *session, ns *host.NamespaceInfo) error {
			return descriptorView(&ns.Descriptors).print(c.OutOrStdout(), f.output)
		},
	}.command()
}

// descriptorView shows the Namespace Identification Descriptor list.
func descriptorView(d *nvme.NSDescriptors) *view {
	const header = 4
	v := &view{list: "ns-descs", none: "no descriptors"}
	at := 0
	add := func(t nvme.NIDT, length int, name, value string) {
		v.rows = append(v.rows, object{
			{"loc", "", at}, {"nidt", "", uint8(t)}, {"nidl", "", length}, {"Type", name, name}, {"value", value, nil}, {name, "", value},
		})
		at += header + length
	}
	if d.EUI64 != [8]byte{} {
		add(nvme.NIDTEUI64, len(d.EUI64), "eui64", hex.EncodeToString(d.EUI64[:]))
	}
	if d.NGUID != [16]byte{} {
		add(nvme.NIDTNGUID, len(d.NGUID), "nguid", hex.EncodeToString(d.NGUID[:]))
	}
	if d.UUID != [16]byte{} {
		add(nvme.NIDTUUID, len(d.UUID), "uuid", uuid.UUID(d.UUID).String())
	}
	if d.HasCSI {
		add(nvme.NIDTCSI, 1, "csi", fmt.Sprintf("%#x", uint8(d.CSI)))
	}
	return v
}

func newIDIOCS() *cobra.Command {
	return inspection{
		use: "id-iocs", short: "Show the I/O command sets",
		long: `id-iocs shows the Identify I/O Command Set page: which combinations of command sets the
controller has, each a number with a bit for each: bit 0 is the NVM command set.`,
		example: "  nvmeinit id-iocs -t rdma -a 127.0.0.1\n  nvmeinit id-iocs -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			var p nvme.CommandSets
			if err := readIdentify(c.Context(), s.Controller, nvme.CNSCommandSets, 0, &p); err != nil {
				return err
			}
			var fs []field
			for i, sets := range p {
				if sets != 0 {
					fs = append(fs, hexadecimal(fmt.Sprintf("I/O Command Set Combination[%d]", i), sets))
				}
			}
			return printFields(c.OutOrStdout(), f.output, fs)
		},
	}.command()
}

func newNVMIDCtrl() *cobra.Command {
	return inspection{
		use: "nvm-id-ctrl", short: "Show the limits of NVM command set commands",
		long: `nvm-id-ctrl shows the Identify Controller page of the NVM command set: how much one
Verify, Write Zeroes, Write Uncorrectable or Dataset Management takes; 0 is no limit.`,
		example: "  nvmeinit nvm-id-ctrl -t rdma -a 127.0.0.1\n  nvmeinit nvm-id-ctrl -t tcp -a 127.0.0.1 -o json",
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			var p nvme.IdentifyControllerNVM
			if err := readIdentify(c.Context(), s.Controller, nvme.CNSCommandSetController, 0, &p); err != nil {
				return err
			}
			return printFields(c.OutOrStdout(), f.output, fields(&p))
		},
	}.command()
}

func newIndependentIDNS() *cobra.Command {
	return inspection{
		use: "cmdset-ind-id-ns", short: "Show what is common to namespaces of any command set",
		long: `cmdset-ind-id-ns shows the I/O Command Set Independent Identify Namespace page of a
namespace: whether it is shared and ready, its ANA group, what reservations it takes.`,
		example: "  nvmeinit cmdset-ind-id-ns -t rdma -a 127.0.0.1 --nsid 1 -H\n  nvmeinit cmdset-ind-id-ns -t tcp -a 127.0.0.1 -o json",
		bits:    true,
		showNS: func(c *cobra.Command, f *connFlags, s *session, ns *host.NamespaceInfo) error {
			var p nvme.IdentifyNamespaceIndependent
			if err := readIdentify(c.Context(), s.Controller, nvme.CNSIndependentNamespace, ns.ID, &p); err != nil {
				return err
			}
			return printFields(c.OutOrStdout(), f.output, f.decodedBy(independentBits, fields(&p)))
		},
	}.command()
}
