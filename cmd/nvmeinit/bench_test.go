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

// TestJobsFromStandardInput: - is a job file that comes by standard input, as fio has it.
func TestJobsFromStandardInput(t *testing.T) {
	read := func(jobs string) (int, error) {
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetIn(strings.NewReader(jobs))
		f := &benchFlags{controllers: 1, job: fio.NewJob("bench")}
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

// TestDepthsOfJobs: jobs with depths of their own run as they are, beside what a page shows of all at other depths; and
// where --depths says so all run at those.
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
