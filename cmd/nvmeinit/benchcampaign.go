package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/report"
)

// campaignFlags request the same work more than once: over several paths, at several depths, several times.
type campaignFlags struct {
	compare []string // paths, such as rdma or tcp://127.0.0.1:4420
	repeats int
	depths  []int
	report  string // file of the page
}

// Bounds and defaults.
const (
	maxPaths       = 6 // the number that a page has colours for
	maxRepeats     = 1000
	compareRepeats = 5
)

// reportDepths are the depths that a page shows by default, in addition to that of the jobs.
var reportDepths = []int{1, 4, 16, 64}

func (f *campaignFlags) add(c *cobra.Command) {
	fl := cli.NewFlags()
	fl.StringSliceVar(&f.compare, "compare", nil, "`PATHS` to run the same work over in turns, as rdma,tcp instead of -t, or with addresses, as tcp://127.0.0.1:4420")
	cli.Offer(fl, "compare", cli.Transports())
	fl.IntVar(&f.repeats, "repeats", 0, "`number` of times to run everything (default 5 with --compare, else 1)")
	fl.IntSliceVar(&f.depths, "depths", nil, "`depths` to run everything at, as 1,4,16 (default --iodepth; with --report 1,4,16,64 too)")
	fl.StringVar(&f.report, "report", "", "`FILE` to write a page with plots to, as HTML; it must not exist")
	cli.AddFlags(c, "Comparing", fl)
}

// wanted reports whether more than one run or a page is requested.
func (f *campaignFlags) wanted() bool {
	return len(f.compare) > 0 || f.repeats > 1 || len(f.depths) > 0 || f.report != ""
}

// checkCampaign validates the flags, and fills in their defaults.
func (f *benchFlags) checkCampaign() error {
	p := &f.campaign
	switch {
	case len(p.compare) > maxPaths:
		return cli.Usage("--compare: %d paths are too many: want at most %d", len(p.compare), maxPaths)
	case len(p.compare) > 0 && f.conn.transport != "":
		return cli.Usage("-t %s and --compare %s: want one of them", f.conn.transport, strings.Join(p.compare, ","))
	case f.conn.paths.wanted():
		return cli.Usage("--path, --all-paths and what belongs to them go with a single run: without --compare, --repeats, --depths and --report")
	case f.metrics != "" || f.conn.pcap != "":
		return cli.Usage("--metrics and --pcap go with a single run: without --compare, --repeats, --depths and --report")
	}
	for _, j := range f.jobs {
		if option := j.Logged(); option != "" {
			return cli.Usage("%s goes with a single run: without --compare, --repeats, --depths and --report", option)
		}
		if j.LatencyTarget > 0 {
			return cli.Usage("latency_target goes with a single run: without --compare, --repeats, --depths and --report")
		}
	}
	if p.repeats == 0 {
		p.repeats = 1
		if len(p.compare) > 0 {
			p.repeats = compareRepeats
		}
	}
	for _, d := range p.depths {
		for _, j := range f.jobs {
			if err := atDepth(j, d).Check(); err != nil {
				return cli.Usage("--depths: %w", err)
			}
		}
	}
	return nil
}

// ofEach returns the names and flags of the paths to compare.
func (f *benchFlags) ofEach() (names []string, all []*benchFlags, err error) {
	if len(f.campaign.compare) == 0 {
		return []string{f.conn.transport}, []*benchFlags{f}, nil
	}
	for _, text := range f.campaign.compare {
		g := *f
		if _, err := cli.ParseTransport(text); err == nil {
			g.conn.transport = text
		} else {
			e, err := cli.ParseEndpoint(text)
			if err != nil {
				return nil, nil, cli.Usage("--compare: %w", err)
			}
			g.conn.transport = e.Transport.String()
			g.conn.traddr, g.conn.trsvcid = e.Addr.Addr().String(), strconv.Itoa(int(e.Addr.Port()))
		}
		if g.conn.transport == "rdma" {
			g.conn.hdrDigest, g.conn.dataDigest = false, false // RDMA has its ICRC instead
		}
		names, all = append(names, pathName(text, f.campaign.compare[:len(all)])), append(all, &g)
	}
	return names, all, nil
}

// pathName distinguishes a path that is listed repeatedly from the earlier ones of the same name.
func pathName(text string, before []string) string {
	n := 1
	for _, other := range before {
		if other == text {
			n++
		}
	}
	if n == 1 {
		return text
	}
	return fmt.Sprintf("%s (%d)", text, n)
}

// campaign is a campaign in progress.
type campaign struct {
	f     *benchFlags
	names []string
	paths []*benchDevice
	json  *fio.Report
	live  *live
	began time.Time
	done  int // completed runs
	all   int
}

// runCampaign runs everything, and shows it as a table or as JSON, and as a page.
func runCampaign(c *cobra.Command, f *benchFlags) (err error) {
	page, err := createPage(f.campaign.report)
	if err != nil {
		return err
	}
	defer func() { err = page.close(err) }()
	k := &campaign{
		f: f, began: time.Now(), live: newLive(c.ErrOrStderr(), f.output == cli.Normal),
		json: fio.NewReport(program(), time.Now(), f.global),
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if err := k.open(c.Context()); err != nil {
		return err
	}
	defer k.watch(c.Context())()
	works, err := k.run(c.Context())
	k.live.clear()
	if err != nil {
		return err
	}
	if f.output == cli.Normal {
		printComparison(c.OutOrStdout(), works)
	} else {
		k.json.Compare = comparison(works)
		k.json.End(time.Now())
		if err := cli.PrintJSON(c.OutOrStdout(), k.json); err != nil {
			return err
		}
	}
	return page.write(k.page(works))
}

// watch watches all paths, until the function that it returns is called.
func (k *campaign) watch(ctx context.Context) (end func()) {
	var ends []func()
	for _, d := range k.paths {
		ends = append(ends, d.watch(ctx, nil))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (k *campaign) open(ctx context.Context) error {
	names, flags, err := k.f.ofEach()
	if err != nil {
		return err
	}
	k.names = names
	for i, g := range flags {
		d, err := g.open(ctx)
		if err != nil {
			return prefixPath(len(flags), names[i], err)
		}
		k.paths = append(k.paths, d)
		if crowded := g.crowded(d); crowded != "" {
			crowded = names[i] + ": " + crowded
			fmt.Fprintln(g.conn.stderr(), crowded)
			k.json.Warnings = append(k.json.Warnings, crowded)
		}
	}
	return nil
}

// prefixPath adds the name of the failed path to the error if there are several.
func prefixPath(paths int, name string, err error) error {
	if paths == 1 {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (k *campaign) close() error {
	var errs []error
	for _, d := range k.paths {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func (k *campaign) run(ctx context.Context) ([]*report.Work, error) {
	phases := fio.Phases(k.f.jobs)
	for _, jobs := range phases {
		k.all += len(k.f.depthsOf(jobs)) * k.f.campaign.repeats * len(k.paths)
	}
	var works []*report.Work
	for _, jobs := range phases {
		w, err := k.work(ctx, jobs)
		if err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}

// depthsOf returns the depths to run jobs at, in ascending order.
func (f *benchFlags) depthsOf(jobs []*fio.Job) []int {
	list := slices.Clone(f.campaign.depths)
	if len(list) == 0 {
		list = []int{deepest(jobs)}
		// If all operations are due at a rate, the depth changes little.
		if f.campaign.report != "" && !slices.ContainsFunc(jobs, func(j *fio.Job) bool { return j.Paced() }) {
			list = append(list, reportDepths...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// deepest returns the largest depth of the given jobs.
func deepest(jobs []*fio.Job) int {
	n := 0
	for _, j := range jobs {
		n = max(n, j.IODepth)
	}
	return n
}

// atDepth returns a copy of j with another depth.
func atDepth(j *fio.Job, depth int) *fio.Job {
	j = j.Clone()
	if err := j.Set("iodepth", strconv.Itoa(depth)); err != nil {
		panic(err) // iodepth takes a number
	}
	return j
}

// jobsAt returns the jobs of a phase for one of its depths: all of them at that depth, or unchanged, each with its
// own depth, if that is what they ask for.
func (f *benchFlags) jobsAt(jobs []*fio.Job, depth int) []*fio.Job {
	if len(f.campaign.depths) == 0 && depth == deepest(jobs) {
		return jobs
	}
	at := make([]*fio.Job, len(jobs))
	for i, j := range jobs {
		at[i] = atDepth(j, depth)
	}
	return at
}

// work runs the jobs of one phase: at each depth several repeats, and in each repeat all paths one after another,
// in an order that alternates between forward and backward.
func (k *campaign) work(ctx context.Context, jobs []*fio.Job) (*report.Work, error) {
	w := &report.Work{Name: workName(jobs), Paths: k.names, Late: make([]uint64, len(k.paths))}
	depths := k.f.depthsOf(jobs)
	if w.Main = slices.Index(depths, deepest(jobs)); w.Main < 0 {
		w.Main = len(depths) - 1
	}
	for i, depth := range depths {
		at := k.f.jobsAt(jobs, depth)
		m := newMeasured(len(k.paths))
		for r := range k.f.campaign.repeats {
			for n := range k.paths {
				path := n
				if r%2 == 1 {
					path = len(k.paths) - 1 - n
				}
				res, err := k.one(ctx, at, path, r, depth)
				if err != nil {
					return nil, prefixPath(len(k.paths), k.names[path], err)
				}
				w.Late[path] += m.add(path, res)
			}
		}
		w.Depths = append(w.Depths, report.Depth{Depth: depth, Runs: m.runs})
		if i == w.Main {
			w.Tails, w.Course = m.tails(), m.courses()
		}
	}
	return w, nil
}

// one makes a single run.
func (k *campaign) one(ctx context.Context, jobs []*fio.Job, path, repeat, depth int) (*loadgen.Result, error) {
	k.live.begin(fmt.Sprintf("%d of %d%s: %s ×%d", k.done+1, k.all, k.left(), k.names[path], depth))
	res, err := k.f.run(ctx, k.paths[path], jobs, k.live.show)
	if err != nil {
		return nil, err
	}
	k.done++
	first := len(k.json.Jobs)
	k.json.Add(jobs, res, k.f.output == cli.JSONPlus)
	for i := range k.json.Jobs[first:] {
		j := &k.json.Jobs[first+i]
		j.Path, j.Repeat = k.names[path], repeat+1
	}
	return res, nil
}

// left says how long the rest will take, judging by what has been done.
func (k *campaign) left() string {
	if k.done == 0 {
		return ""
	}
	each := time.Since(k.began) / time.Duration(k.done)
	return fmt.Sprintf(", %v in all", (each * time.Duration(k.all-k.done)).Round(time.Second))
}

// workName describes what jobs do.
func workName(jobs []*fio.Job) string {
	if len(jobs) > 1 {
		return jobNames(jobs, " + ")
	}
	j := jobs[0]
	name := j.RW + " " + blockSizes(&j.Spec)
	if j.NumJobs > 1 {
		name += fmt.Sprintf(", %d jobs", j.NumJobs)
	}
	return name
}

// measured collects the runs of one depth.
type measured struct {
	runs   [][]report.Figures // by path
	lat    []*loadgen.Histogram
	series [][]report.Course // by path, by repeat
}

func newMeasured(paths int) *measured {
	m := &measured{runs: make([][]report.Figures, paths), series: make([][]report.Course, paths)}
	for range paths {
		m.lat = append(m.lat, new(loadgen.Histogram))
	}
	return m
}

// add adds a run, and returns how many of its operations were due and never began.
func (m *measured) add(path int, res *loadgen.Result) (late uint64) {
	g := loadgen.Group(res.Jobs)
	m.runs[path] = append(m.runs[path], report.FiguresOf(&g))
	m.lat[path].Merge(&g.Total().Latency)
	m.series[path] = append(m.series[path], res.Series)
	return g.Unstarted
}

func (m *measured) tails() []report.Tail {
	var t []report.Tail
	for _, h := range m.lat {
		t = append(t, report.TailOf(h))
	}
	return t
}

// courses returns, for each path, the course of the repeat with the median IOPS.
func (m *measured) courses() []report.Course {
	var c []report.Course
	for path, runs := range m.runs {
		order := make([]int, len(runs))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(runs[a].IOPS, runs[b].IOPS) })
		c = append(c, m.series[path][order[len(order)/2]])
	}
	return c
}

// endpoint describes where a path leads.
func (k *campaign) endpoint(path int) string {
	s := k.paths[path].sessions[0]
	return fmt.Sprintf("%s, %s", s.fabric.Type(), s.Remote())
}
