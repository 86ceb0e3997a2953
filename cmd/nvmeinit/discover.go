package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newDiscover() *cobra.Command {
	f := &connFlags{}
	c := &cobra.Command{
		Use:   "discover -t TRANSPORT -a ADDRESS",
		Short: "List the subsystems that a target has",
		Long: `discover asks the target's discovery controller which subsystems it has for this
host, and where each is reached.`,
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
	fab, err := openFabric(f)
	if err != nil {
		return err
	}
	defer closing(fab, &err)
	cfg, err := f.config(fab)
	if err != nil {
		return err
	}
	cfg.KATO = 0 // none, as is usual for a look at the log
	log, err := host.Discover(c.Context(), cfg)
	if err != nil {
		return f.explain(err)
	}
	if f.output == "json" {
		return cli.PrintJSON(c.OutOrStdout(), discoveryJSON(log))
	}
	printDiscovery(c.OutOrStdout(), log)
	return nil
}

// closing closes x and keeps its error where there is no other.
func closing(x io.Closer, err *error) {
	if cerr := x.Close(); *err == nil {
		*err = cerr
	}
}

func printDiscovery(w io.Writer, log *host.DiscoveryLog) {
	fmt.Fprintf(w, "%d records, generation %d\n", len(log.Entries), log.Generation)
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

// discoveryJSON is the log with the names of nvme discover -o json.
func discoveryJSON(log *host.DiscoveryLog) any {
	type record struct {
		TRTYPE  string `json:"trtype"`
		ADRFAM  string `json:"adrfam"`
		SUBTYPE string `json:"subtype"`
		TREQ    uint8  `json:"treq"`
		PORTID  uint16 `json:"portid"`
		TRSVCID string `json:"trsvcid"`
		SUBNQN  string `json:"subnqn"`
		TRADDR  string `json:"traddr"`
		CNTLID  uint16 `json:"cntlid"`
		ASQSZ   uint16 `json:"asqsz"`
		EFLAGS  uint16 `json:"eflags"`
	}
	records := []record{}
	for i := range log.Entries {
		e := &log.Entries[i]
		records = append(records, record{
			e.TRTYPE.String(), e.ADRFAM.String(), e.SUBTYPE.String(), uint8(e.TREQ), e.PORTID,
			e.Service(), e.NQN(), e.Address(), e.CNTLID, e.ASQSZ, uint16(e.EFLAGS),
		})
	}
	return map[string]any{"genctr": log.Generation, "records": records}
}
