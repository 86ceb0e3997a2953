package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// benchFlags are fio's options, and where to run.
type benchFlags struct {
	conn      connFlags
	nsid      uint32
	spec      loadgen.Spec
	bs        cli.Size
	size      cli.Size
	offset    cli.Size
	timeBased bool
	metrics   string
}

func newBench() *cobra.Command {
	f := &benchFlags{bs: 4096}
	c := &cobra.Command{
		Use:   "bench -t TRANSPORT -a ADDRESS --rw PATTERN",
		Short: "Measure a namespace as fio does",
		Long: `bench runs jobs of reads and writes, and reports operations and bytes a second,
percentiles of latency, and the processor time of this side. Options are named as
fio's, and so are the fields of -o json.

Patterns that write destroy what the namespace holds.`,
		Example: `  nvmeinit bench -t rdma -a 127.0.0.1 --rw randread --bs 4k --iodepth 32 --runtime 10s
  nvmeinit bench -t tcp -a 127.0.0.1 --rw randrw --rwmixread 70 --numjobs 4 --runtime 30s -o json
  nvmeinit bench -t rdma -a 127.0.0.1 --rw write --bs 128k --iodepth 16 --size 1GiB`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return bench(c, f) },
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.Uint32Var(&f.nsid, "nsid", 1, "`number` of the namespace")
	fl.StringVar(&f.spec.RW, "rw", "read", "`PATTERN`: read, write, randread, randwrite, rw or randrw")
	fl.IntVar(&f.spec.RWMixRead, "rwmixread", 50, "`percent` of reads in rw and randrw")
	fl.Var(&f.bs, "bs", "bytes of an operation, as 4k")
	fl.IntVar(&f.spec.IODepth, "iodepth", 1, "`number` of operations that each job keeps outstanding")
	fl.IntVar(&f.spec.NumJobs, "numjobs", 1, "`number` of jobs at once; each has an I/O queue of its own as far as there are")
	fl.Var(&f.offset, "offset", "where the range begins, in bytes (default 0)")
	fl.Var(&f.size, "size", "bytes of the range that each job works on (default up to the end)")
	fl.DurationVar(&f.spec.Runtime, "runtime", 0, "`time` to run (default once through the range)")
	fl.DurationVar(&f.spec.RampTime, "ramp_time", 0, "`time` to run before measuring")
	fl.BoolVar(&f.timeBased, "time_based", false, "as fio wants it with --runtime; here --runtime alone does the same")
	fl.Uint64Var(&f.spec.Seed, "randseed", 1, "`number` that offsets and data are made from")
	fl.StringVar(&f.spec.Name, "name", "bench", "`name` of the job in the report")
	fl.StringVar(&f.metrics, "metrics", "", "`ADDRESS:PORT` to serve figures for Prometheus on meanwhile")
	f.conn.addOutput(c)
	f.conn.add(c, true)
	return c
}

func bench(c *cobra.Command, f *benchFlags) (err error) {
	if f.timeBased && f.spec.Runtime == 0 {
		return cli.Usage("--time_based needs a --runtime")
	}
	f.spec.BS, f.spec.Size, f.spec.Offset = int(f.bs), int64(f.size), int64(f.offset)
	if err := f.spec.Check(); err != nil {
		return cli.Usage("--%w", err)
	}
	s, err := f.conn.connect(c.Context(), f.shape)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	ns, err := s.namespace(c.Context(), f.nsid)
	if err != nil {
		return err
	}
	if err := f.spec.Validate(ns.Size(), ns.BlockSize()); err != nil {
		return cli.Usage("--%w", err)
	}
	if f.spec.BS > ns.MaxTransfer() {
		return cli.Usage("--bs=%d: the controller takes at most %s a command (MDTS)", f.spec.BS, blockdev.FormatSize(int64(ns.MaxTransfer())))
	}
	figs, err := serveFigures(f.metrics, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, figs.close()) }()
	res, err := f.run(c.Context(), c.ErrOrStderr(), ns, figs)
	if res == nil {
		return err
	}
	if f.conn.output == "json" {
		return errors.Join(err, printJSON(c.OutOrStdout(), fioJSON(res)))
	}
	printResult(c.OutOrStdout(), res)
	return err
}

// shape asks for the queues that the jobs can use: one each, deep enough, unless the user
// said otherwise. One entry of a queue always stays free.
func (f *benchFlags) shape(cfg *host.Config) {
	if f.conn.queues == 0 {
		cfg.Queues = f.spec.NumJobs
	}
	if cfg.QueueSize <= f.spec.IODepth {
		cfg.QueueSize = f.spec.IODepth + 1
	}
}

func (f *benchFlags) run(ctx context.Context, w io.Writer, ns *host.Namespace, figs *figures) (*loadgen.Result, error) {
	var live func(loadgen.Progress)
	if isTerminal(w) && f.conn.output == "normal" {
		defer fmt.Fprint(w, "\r\033[K")
		var last loadgen.Progress
		live = func(p loadgen.Progress) { showProgress(w, last, p); last = p }
	}
	res, err := loadgen.Run(ctx, &benchDevice{ns: ns}, f.spec, time.Second, figs.watch(live))
	if err == nil && ctx.Err() != nil && f.spec.Runtime == 0 {
		err = ctx.Err()
	}
	return res, err
}

// showProgress writes the live line: the figures of the last interval.
func showProgress(w io.Writer, last, p loadgen.Progress) {
	var ios, bytes uint64
	for op := range p.IOs {
		ios += p.IOs[op] - last.IOs[op]
		bytes += p.Bytes[op] - last.Bytes[op]
	}
	dt := (p.Elapsed - last.Elapsed).Seconds()
	if dt <= 0 {
		return
	}
	state := ""
	if p.Ramping {
		state = "ramping, "
	}
	left := ""
	if p.Left > 0 {
		left = fmt.Sprintf(", %s left", p.Left.Round(time.Second))
	}
	fmt.Fprintf(w, "\r\033[K%s%s IOPS, %s/s%s", state, humanize.SIWithDigits(float64(ios)/dt, 1, ""),
		humanize.IBytes(uint64(float64(bytes)/dt)), left)
}
