package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
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
	}
	if what := f.forSingleRuns(); what != "" {
		return cli.Usage("%s with a single run: without --compare, --repeats, --depths and --report", what)
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

// forSingleRuns says which of the given flags and options go with a single run only; it is empty if none does.
func (f *benchFlags) forSingleRuns() string {
	switch {
	case f.conn.paths.wanted():
		return "--path, --all-paths and what belongs to them go"
	case f.output.has(terse):
		return "-o terse goes"
	case f.metrics != "" || f.conn.pcap != "" || f.status > 0:
		return "--metrics, --pcap and --status-interval go"
	}
	for _, j := range f.jobs {
		if option := j.Logged(); option != "" {
			return option + " goes"
		}
		if j.LatencyTarget > 0 {
			return "latency_target goes"
		}
	}
	return ""
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
