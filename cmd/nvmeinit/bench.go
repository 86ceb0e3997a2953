package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/version"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// benchFlags holds fio's options, and where to run.
type benchFlags struct {
	conn        connFlags
	nsid        uint32
	controllers int
	readonly    bool
	line        lineJobs // the job options
	idle        fio.Idles
	sections    []string // of the job file; nil for all
	output      formats
	minimal     bool   // as fio names Terse
	parseOnly   bool   // nothing is run
	results     string // file
	metrics     string
	status      time.Duration  // how often results are printed before the end; 0 for never
	asked       chan os.Signal // whoever sends it wants them now
	campaign    campaignFlags

	queueSizeGiven bool // -Q was given by the user

	jobs   []*fio.Job // what is to run
	file   string     // that has them, "" for the command line
	global map[string]string
}

const benchName = "bench"

// defaultName is the name of a job on the command line that gives none.
const defaultName = "bench"

func newBench() *cobra.Command {
	f := &benchFlags{line: lineJobs{common: fio.NewJob(defaultName)}}
	c := &cobra.Command{
		Use:   benchName + " -t TRANSPORT -a ADDRESS --rw PATTERN [JOBFILE]",
		Short: "Benchmark a namespace as fio does",
		Long: `bench runs jobs of reads, writes and trims, and reports operations and bytes a second,
latency percentiles, and the processor time of this side. Job options, job files (- is
standard input) and the fields of -o json and json+ are fio's. Job options on the command
line override those in a job file.

With --rate or --rate_iops operations are due at fixed times, whether earlier ones have
ended or not, and latencies count from when an operation was due.

With --compare the same work runs over several paths in turns, and one table shows the
ratios and their spread; --report plots it all on a page.

With --path or --all-paths I/O uses several paths, and continues when one is lost; with
--ctrl-loss-tmo alone it continues when the target of a single path is restarted.

Patterns that write or trim destroy the content of the namespace.`,
		Example: `  nvmeinit bench -t rdma -a 127.0.0.1 --rw randread --bs 4k --iodepth 32 --runtime 10s
  nvmeinit bench -t tcp -a 127.0.0.1 --rw randrw --rwmixread 70 --numjobs 4 --runtime 30s -o json
  nvmeinit bench -t rdma -a 127.0.0.1 --rw randread --rate_iops 20k --iodepth 64 --runtime 30s
  nvmeinit bench -t rdma -a 127.0.0.1 --rw write --bs 128k --iodepth 16 --size 1g --verify crc32c
  nvmeinit bench -t rdma -a 127.0.0.1 jobs.fio
  make-jobs | nvmeinit bench -t rdma -a 127.0.0.1 -
  nvmeinit bench -t rdma -a 127.0.0.1 --all-paths --rw randrw --verify crc32c --runtime 60s --ctrl-loss-tmo 30
  nvmeinit bench --compare rdma,tcp -a 127.0.0.1 --rw randread --iodepth 32 --runtime 2s --report out.html`,
		Args: jobFileArg,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c, args); err != nil || f.parseOnly {
				return err
			}
			f.asked = make(chan os.Signal, 1)
			signal.Notify(f.asked, unix.SIGUSR1) // as in fio
			defer signal.Stop(f.asked)
			out, err := openResults(c, f.results)
			if err != nil {
				return err
			}
			if f.campaign.wanted() {
				return out.close(runCampaign(c, f))
			}
			return out.close(bench(c, f))
		},
	}
	f.add(c)
	c.SetFlagErrorFunc(foreignFlag)
	return c
}

// add adds all flags.
func (f *benchFlags) add(c *cobra.Command) {
	fl := cli.NewFlags()
	options := fio.Options()
	for i := range options {
		addOption(fl, &options[i], &f.line)
	}
	addIdle(fl, &f.idle)
	cli.AddFlags(c, "Jobs", fl)
	f.campaign.add(c)
	fl = c.Flags()
	fl.Uint32Var(&f.nsid, "nsid", 1, "`number` of the namespace")
	fl.IntVar(&f.controllers, "controllers", 1, "`number` of times to connect, each with -i queues; the jobs spread over them, and those beyond numjobs stay idle")
	fl.BoolVar(&f.readonly, "readonly", false, "refuse jobs that write or trim")
	f.output.add(fl)
	fl.BoolVar(&f.minimal, "minimal", false, "the same as -o terse")
	_ = fl.MarkHidden("minimal")
	fl.StringVar(&f.results, "output", "", "`FILE` for the results, in place of standard output; what it holds is overwritten")
	fl.BoolVar(&f.parseOnly, "parse-only", false, "check the options and the job file, connect to nobody and run nothing")
	fl.Var(&timeFlag{&f.status}, "status-interval", "`time` after which to print the results so far, again and again, in seconds or as 500ms")
	fl.StringArrayVar(&f.sections, "section", nil, "`NAME` of the only section of the job file to run; repeat for more")
	fl.StringVar(&f.metrics, "metrics", "", "`ADDRESS:PORT` to serve metrics for Prometheus on meanwhile")
	f.conn.paths.add(c, "any of these")
	f.conn.add(c, true) // but for --timeout, which is fio's other name of runtime
}

// foreignFlag says why bench doesn't have a flag that fio has, or not for that purpose.
func foreignFlag(c *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) && bad.GetFlag().Name == "output-format" && strings.ContainsAny(bad.GetValue(), "./") {
		return cli.Usage("-o %q: %v; is --output %[1]s meant?", bad.GetValue(), bad.Unwrap())
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if why := fio.Foreign(unknown.GetSpecifiedName()); why != "" {
			return cli.Usage("--%s: %s", unknown.GetSpecifiedName(), why)
		}
	}
	return c.Root().FlagErrorFunc()(c, err)
}

func jobFileArg(c *cobra.Command, args []string) error {
	for _, arg := range args {
		if name, _, assigns := strings.Cut(arg, "="); assigns && slices.Contains(fio.Names(), name) {
			return cli.Usage("%s: want dashes in front, as --%[1]s, or a job file", arg)
		}
	}
	if len(args) > 1 {
		return cli.Usage("%s takes one job file, not %q too; see %s --help", c.Name(), args[1], c.CommandPath())
	}
	return nil
}

// maxControllers bounds --controllers: each takes several connections on both sides.
const maxControllers = 4096

// read determines what to run, and checks what needs no connection.
func (f *benchFlags) read(c *cobra.Command, args []string) error {
	f.queueSizeGiven = c.Flags().Changed("queue-size")
	if f.minimal {
		f.output = formats{terse}
	}
	if err := f.readJobs(c, args); err != nil {
		return err
	}
	if n := f.campaign.repeats; n < 0 || n > maxRepeats {
		return cli.Usage("--repeats %d: want 1 to %d", n, maxRepeats)
	}
	if f.campaign.wanted() {
		return f.checkCampaign()
	}
	return nil
}

func (f *benchFlags) readJobs(c *cobra.Command, args []string) error {
	switch {
	case f.conn.paths.wanted() && f.controllers != 1:
		return cli.Usage("--controllers %d: want 1, since each path has a controller; give an endpoint several times to connect to it several times", f.controllers)
	case f.controllers < 1 || f.controllers > maxControllers:
		return cli.Usage("--controllers %d: want 1 to %d", f.controllers, maxControllers)
	}
	if err := cli.CheckAddrPort("--metrics", f.metrics); err != nil {
		return err
	}
	if notice := f.idle.Notice(); notice != "" {
		fmt.Fprintln(c.ErrOrStderr(), notice)
	}
	f.jobs = f.line.jobs()
	if len(f.line.named) > 0 {
		f.global = f.line.common.Given()
	}
	switch {
	case len(args) > 0:
		if err := f.readFile(c, args[0]); err != nil {
			return err
		}
	case len(f.sections) > 0:
		return cli.Usage("--section %q: only a job file has sections, and none is given", f.sections[0])
	}
	number := 0
	for _, j := range f.jobs {
		j.Number = number
		number += max(j.NumJobs, 0)
		if err := f.check(j); err != nil {
			return cli.Usage("%s%w", f.origin(j), err)
		}
	}
	return nil
}

// readFile takes the jobs of a job file, with the options of the command line.
func (f *benchFlags) readFile(c *cobra.Command, path string) error {
	if len(f.jobs) > 1 {
		return cli.Usage("--name %q: the jobs are those of %s; leave the flag out", f.jobs[1].Name, path)
	}
	file, path, err := readJobFile(c, path)
	if err != nil {
		return err
	}
	if f.jobs, err = f.chosen(file.Jobs); err != nil {
		return cli.Usage("%s: %w", path, err)
	}
	f.file, f.global = path, file.Global
	if notice := file.Idle.Notice(); notice != "" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", path, notice)
	}
	for _, j := range f.jobs {
		if err := f.line.apply(j); err != nil {
			return cli.Usage("--%w", err)
		}
	}
	return nil
}

// chosen returns those of the jobs of a file that --section names, or all of them.
func (f *benchFlags) chosen(jobs []*fio.Job) ([]*fio.Job, error) {
	for _, name := range f.sections {
		if !slices.ContainsFunc(jobs, func(j *fio.Job) bool { return j.Heading == name }) {
			headings := make([]string, len(jobs))
			for i, j := range jobs {
				headings[i] = j.Heading
			}
			return nil, fmt.Errorf("--section %q: want one of %s", name, strings.Join(headings, ", "))
		}
	}
	if len(f.sections) == 0 {
		return jobs, nil
	}
	return slices.DeleteFunc(jobs, func(j *fio.Job) bool { return !slices.Contains(f.sections, j.Heading) }), nil
}

// check checks what needs no connection of a job.
func (f *benchFlags) check(j *fio.Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	if f.readonly && j.Changes() {
		return fmt.Errorf("rw=%s: it changes the namespace, and --readonly forbids that", j.Pattern())
	}
	return nil
}

// origin returns where a job's options were given, as it begins errors.
func (f *benchFlags) origin(j *fio.Job) string {
	switch {
	case f.file != "":
		return fmt.Sprintf("%s [%s]: ", f.file, j.Name)
	case len(f.jobs) > 1:
		return fmt.Sprintf("--name %q: ", j.Name)
	}
	return "--"
}

// readJobFile reads a job file; - is standard input, as in fio. name is the file's name in errors.
func readJobFile(c *cobra.Command, path string) (file *fio.File, name string, err error) {
	in, err := openInput(c.Context(), "job file", path, c.InOrStdin())
	if err != nil {
		return nil, "", err
	}
	defer in.close()
	file, err = fio.Parse(in.name, in)
	var unknown *fio.UnknownOptionError
	if errors.As(err, &unknown) && unknown.Remedy == "" {
		if near := cli.Nearest(unknown.Option, fio.Names()); near != "" {
			unknown.Remedy = fmt.Sprintf("there is no such option; is %s meant?", near)
		}
	}
	var bad *fio.SyntaxError
	if errors.As(err, &bad) {
		return nil, "", &cli.UsageError{Err: err}
	}
	return file, in.name, err
}

func bench(c *cobra.Command, f *benchFlags) (err error) {
	d, err := f.open(c.Context())
	if err != nil {
		return err
	}
	defer closing(d, &err)
	figs, err := serveFigures(f.metrics, d, c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, figs.close()) }()
	live := newLive(c.ErrOrStderr(), f.output.has(cli.Normal))
	defer d.watch(c.Context(), live)()
	report := fio.NewReport(program(), time.Now(), f.global)
	tables := f.output.tables(c.OutOrStdout())
	if crowded := f.crowded(d); crowded != "" {
		fmt.Fprintln(c.ErrOrStderr(), crowded)
		report.Warnings = append(report.Warnings, crowded)
	}
	if err := createLogs(f.jobs); err != nil {
		return err
	}
	phases := fio.Phases(f.jobs)
	for i, jobs := range phases {
		live.begin(phaseName(jobs, i, len(phases)))
		o := loadgen.Options{
			Interval: sampleInterval(jobs), Report: func(p *loadgen.Progress) { live.show(p); figs.report(p) },
			StatusEach: f.status, StatusAsked: f.asked,
			Status: func(res *loadgen.Result) {
				live.clear()
				f.printStatus(c.OutOrStdout(), report, jobs, res, d)
			},
		}
		res, err := f.run(c.Context(), d, jobs, o)
		live.clear()
		if res != nil {
			figs.finish(res)
			report.Add(jobs, res, f.output.has(jsonPlus))
			switch all := fio.Groups(jobs, res); {
			case f.output.has(cli.Normal):
				printResult(tables, all)
			case f.output.only(terse): // its lines have no place for it
				for i := range all {
					printUnstarted(c.ErrOrStderr(), &all[i])
				}
			}
			err = errors.Join(err, writeLogs(c.Context(), jobs, res))
		}
		if err == nil && i < len(phases)-1 {
			err = c.Context().Err() // the remaining phases don't begin
		}
		if err != nil {
			return errors.Join(err, f.printReport(c.OutOrStdout(), report, tables, d))
		}
	}
	return f.printReport(c.OutOrStdout(), report, tables, d)
}

// printStatus prints what the jobs of a phase have done so far, in the forms of the end. As with fio, a report for
// programs has the phases before it too.
func (f *benchFlags) printStatus(w io.Writer, before *fio.Report, jobs []*fio.Job, res *loadgen.Result, d *benchDevice) {
	// What is wrong with the file is told at the end, when the last report is printed.
	_ = f.output.forPrograms(w, before.With(jobs, res, f.output.has(jsonPlus)), d)
	if f.output.has(cli.Normal) {
		tables := f.output.tables(w)
		printResult(tables, fio.Groups(jobs, res))
		_ = tables.flush()
	}
}

// program is the name of this program in the JSON, in the place of fio's name and version.
func program() string { return "nvmeinit " + version.Version }

// printReport prints the reports for programs, if requested, of what has run, and what each path did.
func (f *benchFlags) printReport(w io.Writer, r *fio.Report, tables *tables, d *benchDevice) error {
	err := f.output.forPrograms(w, r, d)
	if f.output.has(cli.Normal) && d.multi != nil {
		printPaths(tables, d.multi.Subsystem)
	}
	return errors.Join(err, tables.flush())
}

func phaseName(jobs []*fio.Job, i, n int) string {
	names := jobNames(jobs, ", ")
	if n == 1 {
		return names
	}
	return fmt.Sprintf("%s (%d of %d)", names, i+1, n)
}

func jobNames(jobs []*fio.Job, separator string) string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
	}
	return strings.Join(names, separator)
}

// run runs the jobs of a phase.
func (f *benchFlags) run(ctx context.Context, d *benchDevice, jobs []*fio.Job, o loadgen.Options) (*loadgen.Result, error) {
	res, err := loadgen.Run(ctx, d, fio.Specs(jobs), o)
	if ctx.Err() != nil && (err == nil || errors.Is(err, host.ErrClosed)) {
		err = ctx.Err() // less was measured than was asked for
	}
	return res, err
}

// Samples of a run: at fio's interval, or more often if the run is short.
const (
	longInterval  = 500 * time.Millisecond
	shortInterval = 20 * time.Millisecond
	samples       = 40
	manyJobs      = 64 // above this number the long interval is used, since sampling each job has a cost
)

func sampleInterval(jobs []*fio.Job) time.Duration {
	n, most := 0, time.Duration(0)
	for _, j := range jobs {
		n += j.NumJobs
		most = max(most, j.Runtime)
	}
	if n > manyJobs || most == 0 {
		return longInterval
	}
	return min(max(most/samples, shortInterval), longInterval)
}
