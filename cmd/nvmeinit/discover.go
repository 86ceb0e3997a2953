package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newDiscover() *cobra.Command {
	f := &connFlags{}
	c := &cobra.Command{
		Use:   "discover -t TRANSPORT -a ADDRESS",
		Short: "List the subsystems of a target",
		Long: `discover asks the target's discovery controller which subsystems it has for this
host, and at which addresses.`,
		Example: `  nvmeinit discover -t rdma -a 127.0.0.1
  nvmeinit discover -t tcp -a 192.0.2.1 -s 8009 -o json`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return discover(c, f) },
	}
	f.addOutput(c)
	f.add(c, false)
	return c
}

func discover(c *cobra.Command, f *connFlags) (err error) {
	if err := f.validate(); err != nil {
		return err
	}
	if err := f.lookUp(c.Context()); err != nil {
		return err
	}
	fab, err := openFabric(f)
	if err != nil {
		return err
	}
	defer closing(fab, &err)
	cfg, err := f.config(c.Context(), fab)
	if err != nil {
		return err
	}
	log, err := host.Discover(c.Context(), cfg)
	if err != nil {
		return f.explain(err)
	}
	if f.output == cli.JSON {
		return cli.PrintJSON(c.OutOrStdout(), discoveryJSON(log))
	}
	printDiscovery(c.OutOrStdout(), log)
	return nil
}

// closing closes x and keeps its error if there is no other.
func closing(x io.Closer, err *error) {
	if cerr := x.Close(); *err == nil {
		*err = cerr
	}
}

func printDiscovery(w io.Writer, log *host.DiscoveryLog) {
	fmt.Fprintf(w, "%s, generation %d\n", english.Plural(len(log.Entries), "record", ""), log.Generation)
	if len(log.Entries) == 0 {
		return
	}
	t := cli.NewTable(w, "trtype", "adrfam", "traddr", "trsvcid", "subtype", "portid", "subnqn")
	for i := range log.Entries {
		e := &log.Entries[i]
		t.AppendRow([]any{e.TRTYPE.String(), e.ADRFAM.String(), e.Address(), e.Service(), e.SUBTYPE.String(), e.PORTID, e.NQN()})
	}
	t.Render()
}

// discoveryJSON returns the log with the names and texts of nvme discover -o json.
func discoveryJSON(log *host.DiscoveryLog) any {
	records := []object{}
	for i := range log.Entries {
		e := &log.Entries[i]
		text := func(name, s string) field { return field{name, s, s} }
		record := object{
			text("trtype", e.TRTYPE.String()), text("adrfam", e.ADRFAM.String()), text("subtype", e.SUBTYPE.String()),
			text("treq", e.TREQ.String()), number("portid", e.PORTID), text("trsvcid", e.Service()), text("subnqn", e.NQN()),
			text("traddr", e.Address()), text("eflags", e.EFLAGS.String()), number("cntlid", e.CNTLID), number("asqsz", e.ASQSZ),
		}
		switch e.TRTYPE {
		case nvme.TransportRDMA:
			r := e.RDMA()
			record = append(record, text("rdma_prtype", nameOf(rdmaProviders[:], r.Provider)), text("rdma_qptype", nameOf(rdmaQPTypes[:], r.QPType)),
				text("rdma_cms", nameOf(rdmaCMs[:], r.CMS)), number("rdma_pkey", r.PKey))
		case nvme.TransportTCP:
			record = append(record, text("sectype", e.TCP().String()))
		}
		records = append(records, record)
	}
	return map[string]any{"genctr": log.Generation, "records": records}
}

// nvme-cli's names for the values of TSAS of RDMA.
var (
	rdmaProviders = [...]string{
		nvme.RDMAProviderNone: "not specified", nvme.RDMAProviderIB: "infiniband", nvme.RDMAProviderRoCE: "roce",
		nvme.RDMAProviderRoCE2: "roce-v2", nvme.RDMAProviderIWARP: "iwarp",
	}
	rdmaQPTypes = [...]string{nvme.RDMAQPConnected: "connected", nvme.RDMAQPDatagram: "datagram"}
	rdmaCMs     = [...]string{nvme.RDMACMS: "rdma-cm"}
)

func nameOf(names []string, v uint8) string {
	if int(v) >= len(names) || names[v] == "" {
		return "unrecognized"
	}
	return names[v]
}
