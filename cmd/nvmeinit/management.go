package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// createFlags describes a namespace.
type createFlags struct {
	size, blockSize cli.Size
	blocks, room    uint64
	format, nmic    uint8
	group           uint32
}

func newCreateNS() *cobra.Command {
	f := &createFlags{}
	c := inspection{
		use: "create-ns", short: "Create a namespace",
		long: `create-ns creates a namespace in the subsystem, and shows its number. It is attached to
no controller: attach-ns does that. nvmetgt lets hosts create namespaces in subsystems
with "create" in its configuration file, and keeps for a host what it has attached.`,
		example: "  nvmeinit create-ns -t rdma -a 127.0.0.1 --size 1GiB\n" +
			"  nvmeinit create-ns -t tcp -a 127.0.0.1 --nsze 2097152 --flbas 1 -o json",
		run: func(c *cobra.Command, conn *connFlags, s *session) error {
			if err := s.manages(); err != nil {
				return err
			}
			spec, err := f.spec(c, s)
			if err != nil {
				return err
			}
			nsid, err := s.CreateNamespace(c.Context(), spec)
			if errors.Is(err, nvme.StatusInsufficientCapacity) {
				return cli.Say(err, "%v; unvmcap of nvmeinit id-ctrl is what is left", err)
			}
			if err != nil {
				return err
			}
			if conn.output == cli.JSON {
				return cli.PrintJSON(c.OutOrStdout(), object{number("nsid", nsid)})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "namespace %d\n", nsid)
			return err
		},
	}.command()
	fl := c.Flags()
	fl.Var(&f.size, "size", "its size in bytes, as 1GiB")
	fl.Uint64Var(&f.blocks, "nsze", 0, "its size in `blocks`, instead of --size")
	fl.Uint64Var(&f.room, "ncap", 0, "its capacity in `blocks` (default its size)")
	fl.Var(&f.blockSize, "block-size", "its block size in bytes, as 4096 (default that of LBA format 0)")
	fl.Uint8Var(&f.format, "flbas", 0, "`number` of its LBA format, instead of --block-size")
	fl.Uint8Var(&f.nmic, "nmic", 1, "`number` of its sharing: 1 several controllers may have it, 0 only one")
	fl.Uint32Var(&f.group, "anagrp-id", 0, "`number` of its ANA group (default chosen by the target)")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return f.check(c) }
	return c
}

// check rejects flags that don't describe a valid namespace.
func (f *createFlags) check(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("size") == c.Flags().Changed("nsze"):
		return cli.Usage("want the size of the namespace, by --size or by --nsze")
	case f.size == 0 && f.blocks == 0:
		return cli.Usage("a namespace of no blocks: want at least one")
	case c.Flags().Changed("flbas") && f.blockSize != 0:
		return cli.Usage("--flbas and --block-size: want one of them")
	case f.blockSize != 0 && bits.OnesCount64(uint64(f.blockSize)) != 1:
		return cli.Usage("--block-size %d: want a power of two, as 512 or 4096", f.blockSize)
	}
	return nil
}

// spec returns the namespace's specification, in blocks of a format that the controller has.
func (f *createFlags) spec(c *cobra.Command, s *session) (*nvme.NamespaceSpec, error) {
	spec := &nvme.NamespaceSpec{NSZE: f.blocks, NCAP: f.blocks, FLBAS: f.format, NMIC: nvme.NMIC(f.nmic), ANAGRPID: f.group}
	if f.size != 0 || f.blockSize != 0 {
		format, size, err := s.format(c.Context(), f.format, int64(f.blockSize))
		if err != nil {
			return nil, err
		}
		spec.FLBAS = format
		if f.size != 0 {
			if int64(f.size)%size != 0 {
				return nil, cli.Usage("--size %d: want a multiple of the block, %d bytes", f.size, size)
			}
			spec.NSZE = uint64(int64(f.size) / size)
			spec.NCAP = spec.NSZE
		}
	}
	if f.room != 0 {
		spec.NCAP = f.room
	}
	return spec, nil
}

// format returns the format with the given block size, or the block size of the given format, among those that
// namespaces can be created with.
func (s *session) format(ctx context.Context, format uint8, blockSize int64) (uint8, int64, error) {
	var id nvme.IdentifyNamespace // what all namespaces have in common
	if err := readIdentify(ctx, s.Controller, nvme.CNSNamespace, nvme.NSIDAll, &id); err != nil {
		return 0, 0, err
	}
	return formatAmong(&id, format, blockSize)
}

// formatAmong is format for the formats in id.
func formatAmong(id *nvme.IdentifyNamespace, format uint8, blockSize int64) (uint8, int64, error) {
	var sizes []string
	for i, l := range id.Formats() {
		size := int64(l.BlockSize())
		if size == 0 { // not available
			continue
		}
		if l.MS == 0 && (blockSize == size || blockSize == 0 && int(format) == i) {
			return uint8(i), size, nil
		}
		sizes = append(sizes, fmt.Sprintf("%d (%s)", i, blockdev.FormatSize(size)))
	}
	if blockSize == 0 {
		return 0, 0, cli.Usage("--flbas %d: want one of %s", format, cli.Or(sizes))
	}
	return 0, 0, cli.Usage("--block-size %d: want that of a format, %s", blockSize, cli.Or(sizes))
}

// manages rejects a controller that doesn't let hosts manage namespaces.
func (s *session) manages() error {
	if oacs := s.Identify().OACS; oacs&nvme.OACSNSManagement == 0 {
		return cli.Say(host.ErrUnsupported, "subsystem %s doesn't let hosts manage namespaces (OACS is %#x); with nvmetgt it takes create: in the file",
			s.Config().SubNQN, uint16(oacs))
	}
	return nil
}

func newDeleteNS() *cobra.Command {
	return managing("delete-ns", "Delete a namespace",
		`delete-ns deletes a namespace that a host has created, and what it holds. It prints
nothing.`,
		"  nvmeinit delete-ns -t rdma -a 127.0.0.1 --nsid 513",
		func(ctx context.Context, s *session, nsid uint32) error { return s.DeleteNamespace(ctx, nsid) })
}

func newAttachNS() *cobra.Command {
	return attaching("attach-ns", "Attach a namespace to this host",
		`attach-ns attaches a namespace to the controller of this connection, or to others. nvmetgt
keeps it attached for this host, whose next connection finds it. It prints nothing.`,
		func(ctx context.Context, s *session, nsid uint32, cntlids []uint16) error {
			return s.AttachNamespace(ctx, nsid, cntlids...)
		})
}

func newDetachNS() *cobra.Command {
	return attaching("detach-ns", "Detach a namespace from this host",
		`detach-ns takes back what attach-ns does, also where the target had attached the
namespace to every host. It prints nothing.`,
		func(ctx context.Context, s *session, nsid uint32, cntlids []uint16) error {
			return s.DetachNamespace(ctx, nsid, cntlids...)
		})
}

func attaching(use, short, long string, do func(context.Context, *session, uint32, []uint16) error) *cobra.Command {
	var cntlids []int
	c := managing(use, short, long,
		fmt.Sprintf("  nvmeinit %s -t rdma -a 127.0.0.1 --nsid 513\n  nvmeinit %s -t tcp -a 127.0.0.1 --nsid 513 --controllers 7,9", use, use),
		func(ctx context.Context, s *session, nsid uint32) error {
			ids := make([]uint16, len(cntlids))
			for i, id := range cntlids {
				if id < 0 || id > math.MaxUint16 {
					return cli.Usage("--controllers %d: want numbers from 0 to %d", id, math.MaxUint16)
				}
				ids[i] = uint16(id)
			}
			return do(ctx, s, nsid, ids)
		})
	c.Flags().IntSliceVar(&cntlids, "controllers", nil, "`numbers` of controllers with commas between (default that of this connection)")
	return c
}

// managing returns a command on a namespace that has to be specified.
func managing(use, short, long, example string, do func(context.Context, *session, uint32) error) *cobra.Command {
	var nsid uint32
	c := inspection{
		use: use, short: short, long: long, example: example, silent: true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			if err := s.manages(); err != nil {
				return err
			}
			err := do(c.Context(), s, nsid)
			if errors.Is(err, nvme.StatusInvalidNamespace) {
				return cli.Say(err, "--nsid %d: it is no namespace that hosts created; nvmeinit list-ns --all lists those that there are", nsid)
			}
			return err
		},
	}.command()
	c.Flags().Uint32Var(&nsid, "nsid", 0, "`number` of the namespace")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return mustHave(c, "nsid") }
	return c
}
