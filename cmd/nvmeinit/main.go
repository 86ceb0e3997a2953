package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/version"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func main() {
	root := newRoot()
	root.SetArgs(doubleDashed(root, os.Args[1:]))
	os.Exit(cli.Main(root))
}

// Groups of commands.
const (
	pagesGroup        = "pages" // commands that show a page
	namespacesGroup   = "namespaces"
	reservationsGroup = "reservations"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nvmeinit",
		Short: "Use NVMe namespaces over RDMA and TCP, from user space",
		Long: `nvmeinit is an NVMe over Fabrics host: it connects to any target over RDMA, with a
software RNIC that needs no hardware, kernel module or root, or over NVMe/TCP; shows
what is there, moves data, and benchmarks as fio does.

Flags are named as nvme-cli and fio name them.`,
		Example: `  nvmeinit discover -t rdma -a 127.0.0.1
  nvmeinit connect  -t rdma -a 127.0.0.1
  nvmeinit write    -t tcp  -a 127.0.0.1 --nsid 1 --input disk.img --verify
  nvmeinit bench    -t rdma -a 127.0.0.1 --rw randread --bs 4k --iodepth 32 --runtime 10s`,
		Version: version.Version,
	}
	root.AddCommand(newDiscover(), newConnect(), newConnectAll(), newList(), newRead(), newWrite(), newCompare(), newFlush(), newDiscard(),
		newWriteZeroes(), newWriteUncor(), newVerify(), newCopy(), newFormat(), newSanitize(), newBench(), newAdminPassthru(), newIOPassthru(), newShowHostNQN(), newGenHostNQN(),
		cli.NewGenKey(genKeyExample))
	root.AddGroup(&cobra.Group{ID: pagesGroup, Title: "Commands for pages, logs and features of a target"})
	for _, c := range []*cobra.Command{
		newListNS(), newListCtrl(), newIDCtrl(), newNVMIDCtrl(), newIDIOCS(), newIDNS(), newIndependentIDNS(), newNSDescs(),
		newSmartLog(), newErrorLog(), newANALog(), newFirmwareLog(), newEffectsLog(), newFeatureEffects(), newSupportedLogs(),
		newPersistentLog(), newSanitizeLog(), newGetLog(), newShowRegs(), newGetFeature(), newSetFeature(),
	} {
		c.GroupID = pagesGroup
		root.AddCommand(c)
	}
	root.AddGroup(&cobra.Group{ID: namespacesGroup, Title: "Commands for namespaces that hosts create"})
	for _, c := range []*cobra.Command{newCreateNS(), newAttachNS(), newDetachNS(), newDeleteNS()} {
		c.GroupID = namespacesGroup
		root.AddCommand(c)
	}
	root.AddGroup(&cobra.Group{ID: reservationsGroup, Title: "Commands for reservations"})
	for _, c := range []*cobra.Command{newResvReport(), newResvRegister(), newResvAcquire(), newResvRelease()} {
		c.GroupID = reservationsGroup
		root.AddCommand(c)
	}
	root.SetGlobalNormalizationFunc(alias)
	for _, c := range root.Commands() {
		c.SuggestFor, c.Args = otherNames[c.Name()], misplaced(c.Args)
		if c.Name() != benchName { // whose flags are fio's
			c.SetFlagErrorFunc(otherFlag)
		}
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error { return remedied(run(c, args)) }
	}
	cli.Absent(root, absentCommands)
	return cli.Parent(root)
}

// remedied says what to do about the status with which a stopping target aborts commands, and about the status for
// a log that the controller doesn't have.
func remedied(err error) error {
	switch {
	case errors.Is(err, nvme.StatusAbortSQDeleted):
		return cli.Say(err, "%v: the target stops or is drained; with --ctrl-loss-tmo commands wait for it, or take another path", err)
	case errors.Is(err, nvme.StatusInvalidLogPage):
		return cli.Say(err, "%v; nvmeinit supported-log-pages shows which the controller has", err)
	}
	return err
}

// alias accepts flags by the alternative names that nvme-cli has for them.
func alias(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "namespace-id" {
		name = "nsid"
	}
	return pflag.NormalizedName(name)
}
