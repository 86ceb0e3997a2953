package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
)

// TestJobsFromStandardInput: - is a job file on standard input, as in fio.
func TestJobsFromStandardInput(t *testing.T) {
	read := func(jobs string) (int, error) {
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetIn(strings.NewReader(jobs))
		f := &benchFlags{controllers: 1, line: lineJobs{common: fio.NewJob("bench")}}
		err := f.readJobs(c, []string{"-"})
		return len(f.jobs), err
	}
	if n, err := read("[a]\nrw=randread\n[b]\nrw=read\n"); err != nil || n != 2 {
		t.Errorf("%d jobs, %v", n, err)
	}
	var usage *cli.UsageError
	for jobs, want := range map[string]string{
		"[a]\nrw=randread\ngibberish=1\n": "standard input:3: ",
		"[a]\niodepth=0\n":                "standard input [a]: iodepth=0",
		"":                                "standard input:1: no job",
	} {
		if _, err := read(jobs); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", jobs, err, want)
		}
	}
}

// TestParseOnly: with --parse-only nothing is connected to, and no target need be named; what is wrong is told as ever.
func TestParseOnly(t *testing.T) {
	for jobs, want := range map[string]int{"[a]\nrw=randread\n": cli.ExitOK, "[a]\nrw=ready\n": cli.ExitUsage} {
		root := newRoot()
		var out, said strings.Builder
		root.SetIn(strings.NewReader(jobs))
		root.SetOut(&out)
		root.SetArgs([]string{"bench", "--parse-only", "-"})
		if code := cli.Execute(t.Context(), root, &said); code != want || out.Len() > 0 || (said.Len() > 0) != (want != cli.ExitOK) {
			t.Errorf("%q: exit code %d, %q, %q", jobs, code, out.String(), said.String())
		}
	}
}

// TestJobsDrawDifferently: the jobs of a file have one seed, like fio's, but separate streams; otherwise a job
// behind a stonewall would only read what the previous one has had fetched.
func TestJobsDrawDifferently(t *testing.T) {
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetIn(strings.NewReader("[a]\nnumjobs=3\n[b]\n[c]\nstonewall\n"))
	f := &benchFlags{controllers: 1, line: lineJobs{common: fio.NewJob("bench")}}
	if err := f.readJobs(c, []string{"-"}); err != nil {
		t.Fatal(err)
	}
	if a, b, c := f.jobs[0], f.jobs[1], f.jobs[2]; a.Number != 0 || b.Number != 3 || c.Number != 4 || a.Seed != c.Seed {
		t.Errorf("they begin at %d, %d and %d", a.Number, b.Number, c.Number)
	}
}

// TestDepthsOfJobs: jobs with depths of their own run at those, in addition to the other depths that a page shows
// of all of them; with --depths all run at the given ones.
func TestDepthsOfJobs(t *testing.T) {
	probe, load := fio.NewJob("probe"), fio.NewJob("load")
	load.IODepth = 32
	jobs := []*fio.Job{probe, load}
	for _, c := range []struct {
		flags campaignFlags
		want  [][2]int
	}{
		{campaignFlags{}, [][2]int{{1, 32}}},
		{campaignFlags{report: "x.html"}, [][2]int{{1, 1}, {4, 4}, {16, 16}, {1, 32}, {64, 64}}},
		{campaignFlags{depths: []int{32}}, [][2]int{{32, 32}}},
		{campaignFlags{depths: []int{2, 8}}, [][2]int{{2, 2}, {8, 8}}},
	} {
		f := &benchFlags{campaign: c.flags}
		var got [][2]int
		for _, depth := range f.depthsOf(jobs) {
			at := f.jobsAt(jobs, depth)
			got = append(got, [2]int{at[0].IODepth, at[1].IODepth})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: depths %v, want %v", c.flags, got, c.want)
		}
	}
}
