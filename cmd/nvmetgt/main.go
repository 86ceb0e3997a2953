package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/version"
)

func main() { os.Exit(cli.Main(newRoot())) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nvmetgt",
		Short: "Export volumes as NVMe namespaces over RDMA and TCP",
		Long: `nvmetgt exports files, memory and persistent memory as NVMe namespaces, to any
NVMe over Fabrics host: over RDMA, with a software RNIC that needs no hardware,
kernel module or root, and over NVMe/TCP.`,
		Example: `  nvmetgt serve --volume disk.img --size 1GiB
  nvmetgt serve --volume mem:1GiB --listen rdma://192.0.2.1 --listen tcp://192.0.2.1
  nvmetgt pmem check volume.img`,
		Version: version.Version,
	}
	root.AddCommand(newServe(), newCheck(), newImport(), newCtl(), cli.NewGenKey(genKeyExample), newPmem())
	return cli.Parent(root)
}
