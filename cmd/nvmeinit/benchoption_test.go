package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
)

// TestIdleFlags: the command line accepts the same options without effect as a job file, reports them in the same
// way, and rejects the same ones.
func TestIdleFlags(t *testing.T) {
	const goesOn = "nvmeinit: -t: no transport given: want rdma or tcp\n" // printed once the whole command line has been read
	wantRefused(t, "bench", map[string]string{
		"--direct=1 --ioengine=libaio --rw read":     "without effect here: direct, ioengine\n" + goesOn,
		"--ioengine libaio --thread --iodepth 4":     "without effect here: ioengine, thread\n" + goesOn,
		"--direct 1 --filename /dev/nvme0n1 --hipri": "without effect here: direct, filename, hipri\n" + goesOn,
		"--log_offset 1 --thread --invalidate 1":     "without effect here: thread, invalidate\n" + goesOn,
		"--iodepth 4":                                goesOn,
		"--direct=0":                                 `nvmeinit: --direct "0": commands go to the namespace past every cache of this machine; leave the option out`,
		"--gtod_reduce=1 --eta never":                "without effect here: gtod_reduce, eta\n" + goesOn,
		"--slat_percentiles 1":                       `nvmeinit: --slat_percentiles "1": an operation is submitted at once`,
		"--rw randwrite --readonly":                  "nvmeinit: --rw=randwrite: it changes the namespace, and --readonly forbids that",
		"--rw randread --readonly":                   goesOn,
		"--filename=a --filename=b":                  `nvmeinit: --filename "b": filename=b, and a: all jobs run on one namespace`,
		"--directory=a --directory=b":                `nvmeinit: --directory "b": directory=b, and a: all jobs run on one namespace`,
		"--iodepth_batch_submit=64 --iodepth 64":     "without effect here: iodepth_batch_submit\n" + goesOn,
		"--iodepth_batch_complete_min=16":            `nvmeinit: --iodepth_batch_complete_min "16": an operation begins`,
		"--ioengine=":                                `nvmeinit: --ioengine "": it is empty`,
		"--status-interval 0":                        `nvmeinit: --status-interval "0": want more than 0`,
		"--status-interval x":                        `nvmeinit: --status-interval "x": want a positive time`,
		"--status-interval 500ms --rw read":          goesOn,
		"--status-interval 1 --repeats 2":            "nvmeinit: --metrics, --pcap and --status-interval go with a single run",
		"--minimal --repeats 2":                      "nvmeinit: -o terse goes with a single run",
		"--minimal --terse-version 3":                "without effect here: terse-version\n" + goesOn,
		"--minimal --terse-version 4":                `nvmeinit: --terse-version "4": -o terse prints version 3`,
		"--write_iolog=x --direct=1":                 "nvmeinit: --write_iolog: --pcap writes down every packet",
		"--client=host":                              "nvmeinit: --client: nvmeinit runs where it is started",
		"--write_hint=short":                         `nvmeinit: --write_hint "short": the namespace has no streams`,
	})
}

// TestOptionsOfFio: each of fio 3.33's options, of jobs, of its usual engines and of its command line, is one of bench's, or
// bench says what to do without it.
func TestOptionsOfFio(t *testing.T) {
	program, err := exec.LookPath("fio")
	if err != nil {
		t.Skip("fio's own options take fio: tests/setup.sh installs it")
	}
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if version := strings.TrimSpace(string(out)); version != "fio-3.33" {
		t.Skipf("%s: other versions than fio-3.33 have other options", version)
	}
	bench := newBench()
	known := func(name string) bool {
		return bench.Flags().Lookup(name) != nil || fio.Foreign(name) != "" || name == "help" || name == "version"
	}
	for list, name := range map[string]*regexp.Regexp{
		"--help":             regexp.MustCompile(`(?m)^ +--([a-z-]+)`),
		"--cmdhelp=all":      regexp.MustCompile(`(?m)^ *([a-z_-]+) *:`),
		"--enghelp=libaio":   regexp.MustCompile(`(?m)^ *([a-z_-]+) *:`),
		"--enghelp=io_uring": regexp.MustCompile(`(?m)^ *([a-z_-]+) *:`),
	} {
		out, err := exec.Command(program, list).Output()
		found := name.FindAllStringSubmatch(string(out), -1)
		if err != nil || len(found) < 4 {
			t.Errorf("fio %s: %v: %d options in\n%s", list, err, len(found), out)
		}
		for _, m := range found {
			if !known(m[1]) {
				t.Errorf("fio %s has %s, and bench says nothing of it", list, m[1])
			}
		}
	}
}

// TestNamedJobs: as in fio, each --name begins a job, with the options before the first and those behind it.
func TestNamedJobs(t *testing.T) {
	l := lineJobs{common: fio.NewJob(defaultName)}
	fl := cli.NewFlags()
	options := fio.Options()
	for i := range options {
		addOption(fl, &options[i], &l)
	}
	if err := fl.Parse(strings.Fields("--loops=5 --bssplit=4k/50:8k/50 --name=a --rw=write --name=b --rw=randread --bs=1m --stonewall")); err != nil {
		t.Fatal(err)
	}
	jobs := l.jobs()
	if len(jobs) != 2 {
		t.Fatalf("%d jobs, want 2", len(jobs))
	}
	a, b := jobs[0], jobs[1]
	if a.Name != "a" || a.RW != "write" || a.Loops != 5 || len(a.BS[0]) != 2 || a.Stonewall {
		t.Errorf("%+v", a)
	}
	if b.Name != "b" || b.RW != "randread" || b.Loops != 5 || !b.Stonewall {
		t.Errorf("%+v", b)
	}
	if got, want := b.Given(), map[string]string{"name": "b", "rw": "randread", "bs": "1m", "stonewall": "1"}; !maps.Equal(got, want) {
		t.Errorf("b was given %v, want %v", got, want)
	}
}

// TestNamedOverrides: options on both sides of a --name override those of a job file, as if they stood together: a
// bssplit comes before a bs.
func TestNamedOverrides(t *testing.T) {
	l := lineJobs{common: fio.NewJob(defaultName)}
	for _, o := range [][2]string{{"bssplit", "4k/50:8k/50"}, {"iodepth", "2"}, {"name", "n"}, {"bs", "1m"}, {"iodepth", "4"}} {
		if err := l.set(o[0], o[1]); err != nil {
			t.Fatal(err)
		}
	}
	file, err := fio.Parse("x.fio", strings.NewReader("[one]\nbs=64k\niodepth=8\n"))
	if err != nil {
		t.Fatal(err)
	}
	j := file.Jobs[0]
	if err := l.apply(j); err != nil || j.Name != "n" || len(j.BS[0]) != 2 || j.IODepth != 4 {
		t.Errorf("%v, %+v", err, j.Spec)
	}
}

// TestOrigin: an error about a job of several says which.
func TestOrigin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.fio")
	if err := os.WriteFile(file, []byte("[one]\nrw=write\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "bench", map[string]string{
		"--iodepth 0":                           "nvmeinit: --iodepth=0",
		"--name a --name b --iodepth 0":         `nvmeinit: --name "b": iodepth=0`,
		"--readonly " + file:                    "nvmeinit: " + file + " [one]: rw=write",
		"--iodepth 0 " + file:                   "nvmeinit: " + file + " [one]: iodepth=0",
		"--name a --rw read --name b " + file:   `nvmeinit: --name "b": the jobs are those of ` + file,
		"--name a --rw read --readonly " + file: "nvmeinit: -t: no transport given",
	})
}
