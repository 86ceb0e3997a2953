package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/persist"
)

func newPmem() *cobra.Command {
	c := &cobra.Command{
		Use:   "pmem",
		Short: "Check, repair and format persistent-memory volumes",
		Example: `  nvmetgt pmem check volume.img
  nvmetgt pmem format --yes /dev/sdb`,
	}
	c.AddCommand(newPmemCheck(), newPmemFormat())
	return cli.Parent(c)
}

func newPmemCheck() *cobra.Command {
	var repair bool
	var output cli.Format
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Report what a volume holds and what is wrong with it",
		Long: `check reads the superblock and the whole map of a volume that is written out of place
(pmem:PATH without a mode), and says what it found. The volume may not be in use.

With --repair it writes a damaged copy of the superblock again, carries over the writes
of a program that was killed, and has blocks whose place is lost fail to be read until
they are written or discarded. Data is never guessed.

The exit code is 0 where nothing is wrong, or everything was repaired and no data is lost.`,
		Example: `  nvmetgt pmem check volume.img
  nvmetgt pmem check -o json volume.img
  nvmetgt pmem check --repair volume.img`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := persist.Check(args[0], repair)
			if err != nil {
				return pmemError("check", args[0], err)
			}
			if output == cli.JSON {
				err = cli.PrintJSON(c.OutOrStdout(), r)
			} else {
				err = printReport(c.OutOrStdout(), args[0], r)
			}
			if err != nil {
				return err
			}
			return verdict(args[0], r)
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "write what is needed to make the volume whole")
	cli.OutputFlag(c.Flags(), &output)
	return c
}

func newPmemFormat() *cobra.Command {
	var block cli.Size
	var yes bool
	c := &cobra.Command{
		Use:   "format FILE --yes",
		Short: "Make a volume of an existing file or device; what it held is lost",
		Long: `format makes an empty volume of a file or of a device like /dev/sdb, as large as that
allows. A file that doesn't exist yet needs no formatting: serve creates it with --size.`,
		Example: `  nvmetgt pmem format --yes /dev/sdb
  nvmetgt pmem format --yes --block-size 512 volume.img`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if !yes {
				return cli.Usage("format makes what %s holds unreadable; add --yes if that is right", args[0])
			}
			if err := (&blockdev.Options{BlockSize: int(block)}).Validate(); err != nil {
				return cli.Usage("--block-size: %w", err)
			}
			if err := persist.Format(args[0], int(block)); err != nil {
				return pmemError("format", args[0], err)
			}
			r, err := persist.Check(args[0], false)
			if err != nil {
				return pmemError("format", args[0], err)
			}
			return printReport(c.OutOrStdout(), args[0], r)
		},
	}
	c.Flags().Var(&block, "block-size", "logical block in bytes, as 512 (default 4096)")
	c.Flags().BoolVar(&yes, "yes", false, "really do it")
	return c
}

// pmemError says why a command can't process a file.
func pmemError(command, path string, err error) error {
	var op *blockdev.OpError
	switch {
	case missing(path):
		return cli.Say(err, "pmem %s %s: no such file; nvmetgt serve --volume pmem:%[2]s --size SIZE creates it", command, path)
	case errors.As(err, &op) && op.Err != nil && !errors.Is(err, blockdev.ErrBusy):
		return cli.Say(err, "pmem %s %s: %v", command, path, op.Err)
	}
	return fmt.Errorf("pmem %s: %w", command, err)
}

// missing reports whether nothing of that name exists, not even a link.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// mostShown is how many damaged entries are listed.
const mostShown = 10

// printReport shows a report to people.
func printReport(w io.Writer, path string, r *persist.Report) error {
	var b strings.Builder
	size := func(n int64) string { s, _, _ := strings.Cut(blockdev.FormatSize(n), " ("); return s }
	fmt.Fprintf(&b, "%s: %s in blocks of %d bytes, format %d, %s\n", path, size(r.Size), r.BlockSize, r.Version, english.Plural(r.Extents, "extent", ""))
	fmt.Fprintf(&b, "space    %s of file: %s of spare blocks and %s of maps and padding, %.1f%% beyond the volume\n",
		size(r.FileSize), size(r.Spare), size(r.Overhead), 100*float64(r.FileSize-r.Size)/float64(r.Size))
	fmt.Fprintf(&b, "map      %d blocks written, %d lost\n", r.Used, r.Lost)
	if r.Open {
		fmt.Fprintln(&b, "session  not closed: the next program that opens it finds all completed writes")
	}
	for _, s := range r.Supers {
		fmt.Fprintf(&b, "damage   superblock, %s\n", s)
	}
	for i, d := range r.Damage {
		if i == mostShown {
			fmt.Fprintf(&b, "damage   and %d blocks more\n", len(r.Damage)-i)
			break
		}
		fmt.Fprintf(&b, "damage   logical block %d: %s\n", d.Block, d.Reason)
	}
	if r.Repaired {
		fmt.Fprintln(&b, "repaired")
	} else if r.Clean() {
		fmt.Fprintln(&b, "clean")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict returns an error if data is lost or something needs repair.
func verdict(path string, r *persist.Report) error {
	switch lost := len(r.Damage) + r.Lost; {
	case r.Clean() || r.Repaired && lost == 0:
		return nil
	case r.Repaired || len(r.Damage)+len(r.Supers) == 0:
		return fmt.Errorf("%s: %d %s lost, until they are written or discarded", path, lost, english.PluralWord(lost, "block is", "blocks are"))
	}
	return fmt.Errorf("%s: the volume is damaged; --repair makes it usable", path)
}
