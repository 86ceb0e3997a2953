package main

import (
	"errors"
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
