package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/report"
)

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
		f: f, began: time.Now(), live: newLive(c.ErrOrStderr(), f.output.has(cli.Normal)),
		json: fio.NewReport(program(), time.Now(), f.global),
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if err := k.open(c.Context()); err != nil {
		return err
	}
	k.count(c.ErrOrStderr())
	defer k.watch(c.Context())()
	works, err := k.run(c.Context())
	k.live.clear()
	if k.done > 0 {
		err = errors.Join(err, k.print(c.OutOrStdout(), works))
	}
	if len(works) == 0 {
		return err
	}
	return errors.Join(err, page.write(k.page(works)))
}

// print prints the figures, which JSON has of each run. Only repeats that are complete can be compared.
func (k *campaign) print(w io.Writer, works []*report.Work) error {
	if !k.f.output.only(cli.Normal) {
		k.json.Compare = comparison(works)
		k.json.End(time.Now())
		if err := cli.PrintJSON(w, k.json); err != nil {
			return err
		}
	}
	tables := k.f.output.tables(w)
	if k.f.output.has(cli.Normal) && len(works) > 0 {
		printComparison(tables, works)
	}
	return tables.flush()
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

// count counts the runs, and tells how many they are and how long they take.
func (k *campaign) count(w io.Writer) {
	var length time.Duration // 0 if the jobs have no runtime
	for _, jobs := range fio.Phases(k.f.jobs) {
		runs := len(k.f.depthsOf(jobs)) * k.f.campaign.repeats * len(k.paths)
		k.all += runs
		length += time.Duration(runs) * longest(jobs)
	}
	text := fmt.Sprintf("%d runs", k.all)
	if length = length.Round(time.Second); length > 0 {
		text += fmt.Sprintf(", about %v", length)
	}
	fmt.Fprintln(w, text)
}

// longest returns how long the given jobs run together, as far as their options say.
func longest(jobs []*fio.Job) (d time.Duration) {
	for _, j := range jobs {
		d = max(d, j.Delay+j.RampTime+j.Runtime)
	}
	return d
}

// run returns what was done before the first run that failed, if one does.
func (k *campaign) run(ctx context.Context) ([]*report.Work, error) {
	var works []*report.Work
	for _, jobs := range fio.Phases(k.f.jobs) {
		w, err := k.work(ctx, jobs)
		if len(w.Depths) > 0 {
			works = append(works, w)
		}
		if err != nil {
			return works, err
		}
	}
	return works, nil
}

// work runs the jobs of one phase at each depth. If a run fails, the work has the repeats that were complete by then.
func (k *campaign) work(ctx context.Context, jobs []*fio.Job) (*report.Work, error) {
	w := &report.Work{Name: workName(jobs), Paths: k.names, Late: make([]uint64, len(k.paths))}
	for _, depth := range k.f.depthsOf(jobs) {
		m := newMeasured(len(k.paths))
		err := k.repeat(ctx, k.f.jobsAt(jobs, depth), depth, m)
		if len(m.runs[0]) > 0 {
			w.Depths = append(w.Depths, report.Depth{Depth: depth, Runs: m.runs})
			if w.Depths[w.Main].Depth != deepest(jobs) || len(w.Depths) == 1 {
				w.Main, w.Tails, w.Course = len(w.Depths)-1, m.tails(), m.courses()
			}
			for path, n := range m.late {
				w.Late[path] += n
			}
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// repeat runs jobs at one depth as often as was asked for: in each repeat all paths one after another, in an order that
// alternates between forward and backward. Repeats that are complete are added to m.
func (k *campaign) repeat(ctx context.Context, jobs []*fio.Job, depth int, m *measured) error {
	for r := range k.f.campaign.repeats {
		all := make([]*loadgen.Result, len(k.paths))
		for n := range k.paths {
			path := n
			if r%2 == 1 {
				path = len(k.paths) - 1 - n
			}
			var err error
			if all[path], err = k.one(ctx, jobs, path, r, depth); err != nil {
				return prefixPath(len(k.paths), k.names[path], err)
			}
		}
		m.add(all)
	}
	return nil
}

// one makes a single run.
func (k *campaign) one(ctx context.Context, jobs []*fio.Job, path, repeat, depth int) (*loadgen.Result, error) {
	k.live.begin(fmt.Sprintf("%d of %d%s: %s ×%d", k.done+1, k.all, k.left(), k.names[path], depth))
	res, err := k.f.run(ctx, k.paths[path], jobs, loadgen.Options{Interval: sampleInterval(jobs), Report: k.live.show})
	if err != nil {
		return nil, err
	}
	k.done++
	first := len(k.json.Jobs)
	k.json.Add(jobs, res, k.f.output.has(jsonPlus))
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
	return fmt.Sprintf(", %v left", (each * time.Duration(k.all-k.done)).Round(time.Second))
}

// workName describes what jobs do.
func workName(jobs []*fio.Job) string {
	if len(jobs) > 1 {
		return jobNames(jobs, " + ")
	}
	j := jobs[0]
	name := j.Pattern() + " " + blockSizes(&j.Spec)
	if j.Name != defaultName {
		name = j.Name + ": " + name
	}
	if j.NumJobs > 1 {
		name += fmt.Sprintf(", %d jobs", j.NumJobs)
	}
	return name
}
