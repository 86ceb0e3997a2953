package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBenchFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeText(t, dir+"/unknown.fio", "[one]\nrw=read\ngibberish=1\n")
	writeText(t, dir+"/mistyped.fio", "[one]\niodpeth=4\n")
	writeText(t, dir+"/foreign.fio", "[global]\nioengine=libaio\nbuffered=1\n[one]\nrw=read\n")
	writeText(t, dir+"/bad.fio", "[one]\niodepth=0\n")
	bench := func(flags string) []string {
		return append(args("bench -t tcp -a 127.0.0.1"), args(strings.ReplaceAll(flags, "DIR", dir))...)
	}
	check(t, "nvmeinit", []mistake{
		{bench("--bssplit 4k/70:64k/40"), exitUsage, []string{"--bssplit", "110 percent, want 100"}},
		{bench("--random_distribution zipf:x"), exitUsage, []string{"--random_distribution", `"zipf:x"`, "a number"}},
		{bench("--verify md5"), exitUsage, []string{"--verify", `"md5"`, "want crc32c"}},
		{bench("--rate 1m --rate_iops 5"), exitUsage, []string{"--rate=", "one of them"}},
		{bench("--flow 8"), exitUsage, []string{"--flow: ", "rate_iops", "leave the option out"}},
		{bench("--write_lat_log DIR/run --log_avg_msec 100 --repeats 2"), exitUsage, []string{"write_lat_log", "a single run"}},
		{bench("--bsrange 64k-4k"), exitUsage, []string{"--bsrange", `"64k-4k"`, "as 4k-64k"}},
		{bench("--bs 4k-64k"), exitUsage, []string{"--bs", "bsrange"}},
		{bench("--rwmixwrite 110"), exitUsage, []string{"--rwmixwrite", `"110"`, "0 to 100 percent"}},
		{bench("--random_distribution zoned:60/10"), exitUsage, []string{"--random_distribution=zoned", "60 percent", "want 100"}},
		{bench("--percentile_list 50:x"), exitUsage, []string{"--percentile_list", `"x"`, "50:99:99.9"}},
		{bench("--ioengine libaio --direct=0"), exitUsage, []string{`--direct "0": `, "leave the option out"}},
		{bench("--name a --rw read --name b --iodepth 0"), exitUsage, []string{`--name "b"`, "iodepth=0"}},
		{bench("--name a --name b DIR/bad.fio"), exitUsage, []string{`--name "b"`, "the jobs are those of", "bad.fio"}},
		{bench("--iodpeth 4"), exitUsage, []string{"unknown flag: --iodpeth", "is --iodepth meant?"}},
		{bench("--rate-iops 500"), exitUsage, []string{"unknown flag: --rate-iops", "is --rate_iops meant?"}},
		{bench("--time-based"), exitUsage, []string{"unknown flag: --time-based", "is --time_based meant?"}},
		{bench("--rwx randread"), exitUsage, []string{"unknown flag: --rwx", "is --rw meant?"}},
		{bench("-o xml"), exitUsage, []string{`--output-format "xml"`, "json+"}},
		{bench("--controllers 0"), exitUsage, []string{"--controllers 0", "want 1 to"}},
		{bench("one.fio two.fio"), exitUsage, []string{"one job file", "two.fio"}},
		{bench("DIR/none.fio"), exitFailure, []string{"job file", "none.fio", "no such file"}},
		{bench("DIR/unknown.fio"), exitUsage, []string{"unknown.fio:3:", `"gibberish"`, "--help"}},
		{bench("DIR/mistyped.fio"), exitUsage, []string{"mistyped.fio:2:", "iodpeth", "is iodepth meant?"}},
		{bench("DIR/foreign.fio"), exitUsage, []string{"foreign.fio:3:", "buffered", "leave the option out"}},
		{bench("DIR/bad.fio"), exitUsage, []string{"bad.fio [one]", "iodepth=0"}},
	})
}

// What is written with --verify is checked, also by a later run; data overwritten by somebody else is detected.
func TestBenchVerify(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	for _, transport := range transports {
		flags := args("--bs 8k --iodepth 16 --numjobs 2 --size 8m --verify crc32c --group_reporting")
		out := tgt.must(t, cliTimeout, transport, "bench", append(flags, "--rw", "randwrite")...)
		if !strings.Contains(out, "verified: 8.0 MiB") {
			t.Errorf("%s: two jobs on the same 8 MiB: %s", transport, out)
		}
		tgt.must(t, cliTimeout, transport, "bench", append(flags, "--rw", "randread")...)
	}
	file := filepath.Join(t.TempDir(), "zeroes")
	makeFile(t, file, 4096)
	tgt.must(t, cliTimeout, "tcp", "write", "--offset", "1MiB", "--input", file)
	r := tgt.run(t, cliTimeout, "tcp", "bench", args("--rw read --bs 8k --size 8m --verify crc32c")...)
	if r.code != exitFailure || !strings.Contains(r.stderr, "offset 1048576") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// TestBenchInterrupt: a run that is interrupted shows what it measured, begins nothing more, and is no success, as with
// fio.
func TestBenchInterrupt(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	dir := t.TempDir()
	writeText(t, dir+"/phases.fio", "[one]\nrw=randread\nruntime=1m\n[two]\nstonewall\nrw=randwrite\nruntime=1m\n")
	for i, flags := range []string{
		"--rw randwrite --runtime 1m",
		"--rw randwrite --runtime 1m -o json",
		"--rw randwrite --loops 100000",
		"--rw randwrite --verify crc32c --runtime 1m",
		dir + "/phases.fio",
	} {
		pcap := fmt.Sprintf("%s/%d.pcapng", dir, i)
		p := tgt.startInit(t, "tcp", "bench", append(args(flags), "--pcap", pcap)...)
		eventually(t, cliTimeout, "I/O", func() bool { st, err := os.Stat(pcap); return err == nil && st.Size() > 64<<10 })
		p.signal([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[i%2])
		r := p.result(t, cliTimeout)
		shown := strings.Contains(r.stdout, "IOPS")
		if strings.Contains(flags, "json") {
			shown = readJobs(t, r.stdout)[0].Write.Total > 0
		}
		if r.code != exitInterrupted || !shown || strings.Contains(r.stdout, "two") {
			t.Errorf("%s: exit code %d, want %d: %s%s", flags, r.code, exitInterrupted, r.stdout, r.stderr)
		}
	}
	tgt.stop(t)
}

// TestBenchInterruptHanging: a run can also be interrupted if the volume hangs and the connection doesn't.
func TestBenchInterruptHanging(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	tgt := startTargetAt(t, addr, "--volume", "freeze:manual:mem:16MiB", "--metrics", addr.String()+":"+metricsPort)
	tgt.signal(syscall.SIGUSR1)
	var runs []*program
	for _, flags := range []string{"", "--ctrl-loss-tmo 60", "--depths 1"} {
		for _, transport := range transports {
			runs = append(runs, tgt.startInit(t, transport, "bench", args("--rw randread --runtime 10m "+flags)...))
		}
	}
	eventually(t, cliTimeout, "the volume has the reads of all", func() bool {
		return tgt.scrape(t).sum(t, "nvmeof_namespace_requests_in_flight") == float64(len(runs))
	})
	for _, p := range runs {
		p.signal(syscall.SIGINT)
	}
	for _, p := range runs {
		if code := p.wait(t, cliTimeout); code != exitInterrupted {
			t.Errorf("%s: exit code %d: %s", p, code, p.stderr.String())
		}
	}
	tgt.signal(syscall.SIGUSR1)
}

// With a rate, a stalled target affects all operations that were due meanwhile, not only the few in flight.
func TestBenchRate(t *testing.T) {
	alone(t)
	const rate, stall, least = 1000, 400 * time.Millisecond, 100 * time.Millisecond
	tgt := startTarget(t, "--volume", "mem:16MiB")
	for _, transport := range transports {
		figures := freeAddr(t).String() + ":" + metricsPort
		began := time.Now()
		p := tgt.startInit(t, transport, "bench",
			args(fmt.Sprintf("--rw randread --rate_iops %d --iodepth 4 --runtime 10m -o json+ --metrics %s", rate, figures))...)
		eventually(t, cliTimeout, "it has begun", func() bool { return completed(t, figures, "read") > 0 })
		tgt.signal(syscall.SIGSTOP)
		time.Sleep(stall)
		tgt.signal(syscall.SIGCONT)
		due := rate * time.Since(began).Seconds()
		eventually(t, cliTimeout, "all that was due meanwhile has ended", func() bool { return completed(t, figures, "read") >= due })
		p.signal(syscall.SIGINT)
		res := p.result(t, cliTimeout)
		if res.code != exitInterrupted {
			t.Fatalf("%s: exit code %d: %s", transport, res.code, res.stderr)
		}
		late := 0.0
		for took, n := range readJobs(t, res.stdout)[0].Read.CLat.Bins {
			if ns, err := strconv.ParseFloat(took, 64); err != nil {
				t.Fatal(err)
			} else if ns >= float64(least) {
				late += n
			}
		}
		// Those that were due in the first 300 of 400 ms waited 100 ms at least, and some were due before.
		if want := rate * (stall - least).Seconds(); late < 0.95*want {
			t.Errorf("%s: %v operations took %v or longer, want %v", transport, late, least, want)
		}
	}
}

// completed returns how many operations of that direction an initiator that serves its figures there has completed; 0
// while it doesn't serve them yet.
func completed(t *testing.T, figures, op string) float64 {
	t.Helper()
	s, _ := readFigures(t, figures)
	return s[`nvmeof_bench_ios_total{op="`+op+`"}`]
}

// The figures of a run over several controllers are those of all.
func TestBenchFiguresOfControllers(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	figures := freeAddr(t).String() + ":" + metricsPort
	p := tgt.startInit(t, "tcp", "bench", args("--rw randread --controllers 3 --numjobs 3 --runtime 10m --metrics "+figures)...)
	eventually(t, cliTimeout, "it has begun", func() bool { return completed(t, figures, "read") > 0 })
	_, body := get(t, "http://"+figures+"/metrics")
	if n := strings.Count(body, "\nnvmeof_host_controller_up{"); n != 3 {
		t.Errorf("there are figures of %d controllers, want 3", n)
	}
	p.signal(syscall.SIGINT)
	p.result(t, cliTimeout)
	tgt.stop(t)
}

// Trims discard exactly what they name, and what trimwrite writes after its trims is there.
func TestBenchTrim(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	dir := t.TempDir()
	for i, transport := range transports {
		full := args("--rw write --bs 128k --iodepth 4 --size 16m")
		tgt.must(t, cliTimeout, transport, "bench", full...)
		out := tgt.must(t, cliTimeout, transport, "bench", args("--rw randtrim --bs 64k --iodepth 8 --offset 4m --size 8m -o json")...)
		if tr := readJobs(t, out)[0].Trim; tr.Total != 128 || tr.Bytes != 8<<20 || tr.CLat.N != 128 {
			t.Errorf("%s: %+v", transport, tr)
		}
		for offset, zero := range map[string]bool{"0": false, "4128768": false, "4194304": true, "12517376": true, "12582912": false, "16711680": false} {
			file := filepath.Join(dir, offset+transport)
			tgt.must(t, cliTimeout, transport, "read", "--offset", offset, "--length", "65536", "--output", file)
			b, err := os.ReadFile(file)
			if err != nil || len(b) != 65536 {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			if isZero := !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }); isZero != zero {
				t.Errorf("%s: zeroes at offset %s: %t", transport, offset, isZero)
			}
		}
		out = tgt.must(t, cliTimeout, transport, "bench",
			args("--rw "+[]string{"trimwrite", "randtrimwrite"}[i]+" --bs 32k --iodepth 8 --size 16m --verify crc32c")...)
		if !strings.Contains(out, "verified: 16 MiB") || !strings.Contains(out, "trim") {
			t.Errorf("%s: %s", transport, out)
		}
	}
	tgt.stop(t)
}

// Requests that the queues have no room for wait in the host: a run with such a depth is told so, and what to do about
// it.
func TestBenchCrowded(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB", "--queue-depth", "64", "--max-queues", "2")
	for _, transport := range transports {
		for _, c := range []struct {
			flags string
			says  []string
		}{
			{"--iodepth 63", nil},
			{"--iodepth 31 --numjobs 4", nil},
			{"--iodepth 256", []string{"256 operations", "one I/O queue, which takes 63", "--numjobs"}},
			{"--iodepth 32 -Q 8", []string{"32 operations", "takes 7", "raise -Q 8"}},
			{"--iodepth 32 -i 1 --numjobs 2", []string{"64 operations", "takes 63", "raise -i 1"}},
			{"--iodepth 32 --numjobs 4", []string{"64 operations", "takes 63", "--controllers"}},
			{"--iodepth 32 --depths 1,64", []string{"64 operations", "takes 63"}},
		} {
			p := tgt.startInit(t, transport, "bench", append(args(c.flags), "--rw", "randread", "--runtime", "20ms", "-o", "json")...)
			r := p.result(t, cliTimeout)
			var out struct {
				Warnings []string `json:"nvmeinit_warnings"`
			}
			if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != 0 {
				t.Fatalf("%s: exit code %d, %v: %s", c.flags, r.code, err, r.stderr)
			}
			if len(out.Warnings) != min(len(c.says), 1) || (r.stderr == "") != (c.says == nil) {
				t.Errorf("%s: %q, and %q on standard error", c.flags, out.Warnings, r.stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(r.stderr, want) || !strings.Contains(strings.Join(out.Warnings, ""), want) {
					t.Errorf("%s: %q, and %q on standard error; want %q in both", c.flags, out.Warnings, r.stderr, want)
				}
			}
		}
	}
	tgt.stop(t)
}

// Many controllers at once: some have jobs, the others are just held, and all are gone in the end.
func TestBenchControllers(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	for _, transport := range transports {
		out := tgt.must(t, time.Minute, transport, "bench",
			args("--controllers 40 --numjobs 8 -i 2 --iodepth 2 --rw randread --runtime 200ms -o json")...)
		r := readJobs(t, out)
		if len(r) != 8 {
			t.Errorf("%s: %d jobs, want 8", transport, len(r))
		}
		for i, j := range r {
			if j.Read.Total == 0 {
				t.Errorf("%s: job %d did nothing", transport, i)
			}
		}
	}
	tgt.stop(t)
}

// TestBenchTooManyControllers: a run with fewer controllers than it asks for doesn't begin.
func TestBenchTooManyControllers(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB", "--max-controllers", "3")
	for _, transport := range transports {
		r := tgt.run(t, cliTimeout, transport, "bench", append(args("--controllers 5 --number_ios 1"), "-n", testNQN)...)
		if r.code != exitFailure || r.stdout != "" || !strings.Contains(r.stderr, " of 5: ") {
			t.Errorf("%s: exit code %d, %q, %q", transport, r.code, r.stdout, r.stderr)
		}
	}
	tgt.stop(t)
}

type fioJobs []struct{ Read, Write, Trim fioSide }

func readJobs(t *testing.T, out string) fioJobs {
	t.Helper()
	var r struct{ Jobs fioJobs }
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Jobs) == 0 {
		t.Fatalf("%v in %s", err, out)
	}
	return r.Jobs
}

// The commands of docs/bench.md do what it says, with its job file; here for a moment each.
func TestBenchDocument(t *testing.T) {
	t.Parallel()
	b := readFile(t, "../docs/bench.md")
	dir := t.TempDir()
	_, file, _ := strings.Cut(string(b), "```ini\n")
	file, _, _ = strings.Cut(file, "```")
	writeText(t, dir+"/jobs.fio", file)
	tgt := startTarget(t, "--volume", "mem:64MiB")
	ran := 0
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", " ")) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		ran++
		if strings.Contains(command, "--runtime") || strings.Contains(command, ".fio") {
			command += " --runtime 50ms" // the last one counts
		}
		shell(t, dir, strings.ReplaceAll(command, "127.0.0.1", tgt.addr.String()))
	}
	if ran < 8 {
		t.Errorf("%d commands were found", ran)
	}
}
