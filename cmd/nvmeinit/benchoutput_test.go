package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// TestResultsFile: results go to the file that --output names in the place of what it held, and it is an error if they
// can't.
func TestResultsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	if err := os.WriteFile(path, []byte("what an earlier run left, which was longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(path string) (string, error) {
		var stdout strings.Builder
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetOut(&stdout)
		out, err := openResults(c, path)
		if err != nil {
			return "", err
		}
		err = cli.PrintJSON(c.OutOrStdout(), 1)
		return stdout.String(), out.close(err)
	}
	if printed, err := write(path); printed != "" || err != nil {
		t.Errorf("printed %q, %v", printed, err)
	}
	if held, err := os.ReadFile(path); string(held) != "1\n" {
		t.Errorf("it holds %q, %v", held, err)
	}
	for _, path := range []string{"", "-"} {
		if printed, err := write(path); printed != "1\n" || err != nil {
			t.Errorf("%q: printed %q, %v", path, printed, err)
		}
	}
	for path, want := range map[string]string{
		"/dev/full": "--output /dev/full: no space left on device",
		filepath.Join(t.TempDir(), "none", "out.json"): "none first, or choose another place",
	} {
		if _, err := write(path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSections: --section chooses sections of the job file by what is in their brackets, as fio does.
func TestSections(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.fio")
	if err := os.WriteFile(file, []byte("[global]\nbs=8k\n[a]\nname=z\n[b]\nrw=write\n[c]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const goesOn = "nvmeinit: -t: no transport given"
	wantRefused(t, "bench", map[string]string{
		"--readonly --section a --section c " + file:               goesOn,
		"--readonly --section b " + file:                           "nvmeinit: " + file + " [b]: rw=write",
		"--section z " + file:                                      "nvmeinit: " + file + `: --section "z": want one of a, b, c`,
		"--section a --rw read":                                    `nvmeinit: --section "a": only a job file has sections`,
		"-o json,":                                                 `nvmeinit: --output-format "json,": want normal, json, terse or json+`,
		"--minimal --section a -o json,normal --repeats 2 " + file: "nvmeinit: -o terse goes with a single run",
		"-o json,terse --section a --repeats 2 " + file:            "nvmeinit: -o terse goes with a single run",
		"-o out.json":                                              `nvmeinit: -o "out.json": want normal, json, terse or json+; is --output out.json meant?`,
	})
}
