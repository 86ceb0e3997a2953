package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// fioFile is a job file that both fio and nvmeinit accept. Most of its jobs end after an amount of work, since it is
// unknown how much a busy machine does in a given time.
const fioFile = `
[global]
bs=4k
size=4m
runtime=1m
percentile_list=50:99:99.9

[mix]
rw=randrw
rwmixread=70
numjobs=2
group_reporting

[writer]
stonewall
rw=write
bssplit=4k/50:16k/50
numjobs=2
runtime=300ms
time_based=1

[thinker]
stonewall
rw=randread
startdelay=100ms
thinktime=20000
thinktime_blocks=2
number_ios=8

[trimmer]
stonewall
ioengine=null
rw=randtrimwrite
bs=16k

[ranger]
stonewall
rw=randread
bsrange=4k-16k
random_distribution=zoned:60/10:40/90

[mixed]
stonewall
rw=randrw
unified_rw_reporting=mixed

[both]
stonewall
rw=randrw
unified_rw_reporting=both
`

// fioReport is the part of fio's JSON that tools read.
type fioReport struct {
	Version string `json:"fio version"`
	Jobs    []struct {
		Name        string  `json:"jobname"`
		GroupID     int     `json:"groupid"`
		Elapsed     float64 `json:"elapsed"` // s
		Error       int     `json:"error"`
		Options     map[string]string
		Read, Write fioSide
		Trim, Mixed fioSide
		Runtime     float64            `json:"job_runtime"`
		Depths      map[string]float64 `json:"iodepth_level"`
		Micros      map[string]float64 `json:"latency_us"`
		Millis      map[string]float64 `json:"latency_ms"`
		Nanos       map[string]float64 `json:"latency_ns"`
	}
}

type fioSide struct {
	Bytes   float64 `json:"io_bytes"`
	KBytes  float64 `json:"io_kbytes"`
	BWBytes float64 `json:"bw_bytes"`
	BW      float64
	IOPS    float64
	Runtime float64
	Total   float64    `json:"total_ios"`
	CLat    fioLatency `json:"clat_ns"`
	Lat     fioLatency `json:"lat_ns"`
}

type fioLatency struct {
	Min, Max, Mean, N float64
	Percentile, Bins  map[string]float64
}

// runFio runs fio in a directory, and returns what it prints.
func runFio(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), installed(t, "fio"), args...)
	cmd.Dir = dir
	out, err := process.Output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readFio reads fio's JSON, or what claims to be that, and checks its figures against each other.
func readFio(t *testing.T, out []byte) fioReport {
	t.Helper()
	var r fioReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	within := func(what string, got, want, off float64) {
		t.Helper()
		if math.Abs(got-want) > off {
			t.Errorf("%s: %s is %v, want %v", r.Version, what, got, want)
		}
	}
	near := func(what string, got, want float64) {
		t.Helper()
		within(what, got, want, want/50+1)
	}
	for _, j := range r.Jobs {
		share := 0.0
		for _, m := range []map[string]float64{j.Nanos, j.Micros, j.Millis} {
			for _, v := range m {
				share += v
			}
		}
		if j.Read.Total+j.Write.Total+j.Trim.Total+j.Mixed.Total > 0 {
			near("the sum of the shares of latencies", share, 100)
		}
		for _, s := range []fioSide{j.Read, j.Write, j.Trim, j.Mixed} {
			if s.Total == 0 {
				continue
			}
			off := 1/s.Runtime + 0.02 // milliseconds are rounded
			iops, bw := s.Total/s.Runtime*1000, s.Bytes/s.Runtime*1000
			within("iops", s.IOPS, iops, iops*off)
			within("bw_bytes", s.BWBytes, bw, bw*off)
			near("bw", s.BW, s.BWBytes/1024)
			near("io_kbytes", s.KBytes, s.Bytes/1024)
			near("N", s.CLat.N, s.Total)
			l := s.CLat
			if !(l.Min <= l.Percentile["50.000000"]*1.02 && l.Percentile["50.000000"] <= l.Percentile["99.000000"] &&
				l.Percentile["99.000000"] <= l.Max*1.02 && l.Min <= l.Mean && l.Mean <= l.Max && len(l.Percentile) == 3) {
				t.Errorf("%s: latencies %+v", r.Version, l)
			}
			bins := 0.0
			for _, n := range l.Bins {
				bins += n
			}
			near("the sum of the bins", bins, l.N)
		}
	}
	return r
}

// fio and nvmeinit accept the same job file, and one reader reads what they print.
func TestFioJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.fio")
	writeText(t, path, fioFile)
	tgt := startTarget(t, "--volume", "mem:8MiB")
	reports := map[string]fioReport{}
	for _, transport := range transports {
		reports[transport] = readFio(t, []byte(tgt.must(t, cliTimeout, transport, "bench", "-o", "json+", path)))
	}
	t.Run("fio", func(t *testing.T) {
		reports["fio"] = readFio(t, runFio(t, t.TempDir(), "--output-format=json+", path))
	})
	for who, r := range reports {
		took, group := 0.0, -1 // ms, of all groups, one after another
		for _, j := range r.Jobs {
			if j.GroupID > group {
				took, group = took+max(j.Read.Runtime, j.Write.Runtime, j.Mixed.Runtime), j.GroupID
			}
		}
		var names []string
		for _, j := range r.Jobs {
			names = append(names, fmt.Sprintf("%s %d", j.Name, j.GroupID))
			all := j.Read.Total + j.Write.Total
			if share := j.Read.Total / all; j.Name == "mix" && (share < 0.6 || share > 0.8 || all != 2048) {
				t.Errorf("%s: %.2f of the mix are reads, of %v, want 0.7 of 2048", who, share, all)
			}
			// One that happens to be 4 or 16 KiB is 6 KiB off the mean; the mean of n is off by that divided by √n.
			far := max(1200, 5*6144/math.Sqrt(j.Write.Total))
			if mean := j.Write.Bytes / j.Write.Total; j.Name == "writer" && (math.Abs(mean-10240) > far || j.Read.Total > 0 || j.Runtime < 290) {
				t.Errorf("%s: %v operations of the writer have %.0f bytes on average, want 10240; %v ms", who, j.Write.Total, mean, j.Runtime)
			}
			if j.Name == "thinker" && (j.Read.Total != 8 || j.Runtime < 59) {
				t.Errorf("%s: the thinker read %v times in %v ms, want 8, with three rests of 20 ms between", who, j.Read.Total, j.Runtime)
			}
			if tr, w := j.Trim, j.Write; j.Name == "trimmer" && (tr.Total != 256 || w.Total != 256 || tr.Bytes != 4<<20) {
				t.Errorf("%s: the trimmer trimmed %v times, %v bytes, and wrote %v times", who, tr.Total, tr.Bytes, w.Total)
			}
			if mean := j.Read.Bytes / j.Read.Total; j.Name == "ranger" && math.Abs(mean-10240) > 5*4579/math.Sqrt(j.Read.Total) {
				t.Errorf("%s: %v operations of the ranger have %.0f bytes on average, want 10240", who, j.Read.Total, mean)
			}
			if j.Name == "mixed" && (j.Mixed.Total != 1024 || all > 0) || j.Name == "both" && (j.Mixed.Total != 1024 || all != 1024) {
				t.Errorf("%s: %s: %v reads and writes together, %v apart", who, j.Name, j.Mixed.Total, all)
			}
			if least := math.Floor(took / 1000); j.Elapsed != r.Jobs[0].Elapsed || j.Elapsed < least {
				t.Errorf("%s: %s: %v s have elapsed, and all groups together took %v ms", who, j.Name, j.Elapsed, took)
			}
			if j.Error != 0 || j.Depths["1"] < 99 {
				t.Errorf("%s: %s: error %d, depths %v", who, j.Name, j.Error, j.Depths)
			}
		}
		if want := []string{"mix 0", "writer 1", "writer 1", "thinker 2", "trimmer 3", "ranger 4", "mixed 5", "both 6"}; !slices.Equal(names, want) {
			t.Errorf("%s reports %v, want %v", who, names, want)
		}
	}
}

// TestFioTerse: one reader reads the lines of fio and of nvmeinit, which have the same fields.
func TestFioTerse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.fio")
	writeText(t, path, "[global]\nsize=4m\ndisk_util=0\npercentile_list=50:99:99.9\n[mix]\nrw=randrw\nnumjobs=2\ngroup_reporting\n[writer]\nstonewall\nrw=write\nbs=64k\n")
	tgt := startTarget(t, "--volume", "mem:8MiB")
	lines := map[string]string{}
	for _, transport := range transports {
		lines[transport] = tgt.must(t, cliTimeout, transport, "bench", "--minimal", path)
	}
	t.Run("fio", func(t *testing.T) { lines["fio"] = string(runFio(t, t.TempDir(), "--minimal", path)) })
	for who, text := range lines {
		jobs := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(jobs) != 2 {
			t.Fatalf("%s: %d lines: %s", who, len(jobs), text)
		}
		for i, want := range []string{"3 mix 0 0", "3 writer 1 0"} {
			f := strings.Split(jobs[i], ";")
			if len(f) != 121 {
				t.Fatalf("%s: %d fields, want 121: %s", who, len(f), jobs[i])
			}
			number := func(k int) float64 {
				n, err := strconv.ParseFloat(strings.TrimSuffix(f[k], "%"), 64)
				if err != nil {
					t.Errorf("%s: field %d: %v", who, k, err)
				}
				return n
			}
			if got := strings.Join([]string{f[0], f[2], f[3], f[4]}, " "); got != want {
				t.Errorf("%s: %s, want %s", who, got, want)
			}
			if all := number(5) + number(46); all != []float64{8192, 4096}[i] {
				t.Errorf("%s: %s: %v KiB", who, f[2], all)
			}
			for _, side := range []int{5, 46} {
				if number(side) == 0 {
					continue
				}
				if ms := number(side + 3); ms < 1 || math.Abs(number(side+1)*ms/1000-number(side)) > number(side)*(1/ms+0.02)+ms/1000 {
					t.Errorf("%s: %s: %v KiB at %v KiB/s in %v ms", who, f[2], number(side), number(side+1), ms)
				}
				if least, most, mean := number(side+8), number(side+9), number(side+10); !(least <= mean && mean < most+1) {
					t.Errorf("%s: %s: latencies of %v to %v µs, %v on average", who, f[2], least, most, mean)
				}
				for k, name := range []string{"50.000000", "99.000000", "99.900000", "0", "0"} {
					if got, _, _ := strings.Cut(f[side+12+k], "%="); got != name {
						t.Errorf("%s: %s: percentile %s, want %s", who, f[2], f[side+12+k], name)
					}
				}
			}
			depths, latencies := 0.0, 0.0
			for k := 92; k < 121; k++ {
				if k < 99 {
					depths += number(k)
				} else {
					latencies += number(k)
				}
			}
			if depths != 100 || math.Abs(latencies-100) > 1 {
				t.Errorf("%s: %s: shares of depths are %v, and of latencies %v", who, f[2], depths, latencies)
			}
		}
	}
}

// TestBenchStatus: --status-interval prints what there is so far in the form of the end, with the jobs before.
func TestBenchStatus(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:8MiB")
	flags := args("--size 64k --name first --rw write --name second --stonewall --rw randread --runtime 2 --time_based --status-interval 300ms")
	text := tgt.must(t, cliTimeout, "tcp", "bench", append(flags, "-o", "json")...)
	var before fioReport
	reports := 0
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); reports++ {
		var r fioReport
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if len(r.Jobs) != 2 || r.Jobs[0].Write.Bytes != 64<<10 {
			t.Fatalf("report %d: %+v", reports, r)
		}
		now := r.Jobs[1].Read
		if reports > 0 { // the last ones may be of the same moment, if a machine is busy
			if last := before.Jobs[1].Read; now.Total < last.Total || now.Runtime < last.Runtime {
				t.Errorf("report %d: %v operations in %v ms, after %v in %v", reports, now.Total, now.Runtime, last.Total, last.Runtime)
			}
		} else if now.Runtime >= 2000 {
			t.Errorf("the first report is of %v ms", now.Runtime)
		}
		before = r
	}
	if reports < 2 || before.Jobs[1].Read.Runtime < 2000 {
		t.Errorf("%d reports, the last one after %v ms", reports, before.Jobs[1].Read.Runtime)
	}
	text = tgt.must(t, cliTimeout, "tcp", "bench", append(flags, "--minimal")...)
	if n := strings.Count(text, ";first;"); n < 2 || n != strings.Count(text, ";second;") {
		t.Errorf("%d lines of the first job: %s", n, text)
	}
	text = tgt.must(t, cliTimeout, "tcp", "bench", flags...)
	if n := strings.Count(text, "first: rw"); n != 1 || strings.Count(text, "second: rw") < 2 {
		t.Errorf("%d tables of the first job: %s", n, text)
	}
}

// TestBenchStatusSignal: SIGUSR1 has the results so far printed, as with fio.
func TestBenchStatusSignal(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:8MiB")
	p := tgt.startInit(t, "tcp", "bench", args("-o json --rw randread --runtime 5m --metrics 127.0.0.1:0")...)
	eventually(t, cliTimeout, "the run is about to begin", func() bool { return strings.Contains(p.stderr.String(), "metrics http") })
	eventually(t, cliTimeout, "a report is printed", func() bool {
		p.signal(syscall.SIGUSR1)
		return strings.Contains(p.stdout.String(), `"total_ios"`)
	})
	p.signal(syscall.SIGINT)
	r := p.result(t, cliTimeout)
	var all []fioReport
	for d := json.NewDecoder(strings.NewReader(r.stdout)); d.More(); {
		var one fioReport
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%v in %s", err, r.stdout)
		}
		all = append(all, one)
	}
	if n := len(all); r.code != exitInterrupted || n < 2 || all[0].Jobs[0].Read.Total > all[n-1].Jobs[0].Read.Total {
		t.Errorf("exit code %d, %d reports: %s%s", r.code, n, r.stdout, r.stderr)
	}
}

// TestBenchFormats: of several formats fio prints each, in an order of its own, and nvmeinit does, too.
func TestBenchFormats(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB")
	job := args("--ioengine null --size 64k --name a --rw read --name b --stonewall --rw randread")
	forms := regexp.MustCompile(`(?m)^(?:3;[^;]*;(.)|(\{)|(.): (?:rw=|\(groupid)|\s*("bins"))`)
	parts := func(text string) (all []string) {
		for _, m := range forms.FindAllStringSubmatch(text, -1) {
			part := strings.Join(m[1:], "")
			if part == `"bins"` && slices.Contains(all, part) {
				continue // of another direction
			}
			if m[1] != "" {
				part += " terse"
			}
			all = append(all, part)
		}
		return all
	}
	for output, want := range map[string]string{
		"normal,json":       "{,a,b",
		"terse,json":        "a terse,b terse,{",
		"json+,normal,json": `{,"bins",a,b`,
		"normal,terse":      "a terse,b terse,a,b",
		"json,json":         "{",
		"normal":            "a,b",
	} {
		flags := append(args("--output-format "+output), job...)
		ours := tgt.must(t, cliTimeout, "tcp", "bench", flags...)
		if got := strings.Join(parts(ours), ","); got != want {
			t.Errorf("%s: nvmeinit prints %s, want %s: %s", output, got, want, ours)
		}
		t.Run("fio", func(t *testing.T) {
			if got := strings.Join(parts(string(runFio(t, t.TempDir(), flags...))), ","); got != want {
				t.Errorf("%s: fio prints %s, want %s", output, got, want)
			}
		})
	}
	flags := append(args("-o json,normal --status-interval 20ms"), append(job, args("--runtime 300ms --time_based")...)...)
	said := strings.Join(parts(tgt.must(t, cliTimeout, "tcp", "bench", flags...)), ",")
	if !strings.HasPrefix(said, "{,b,{,") || !strings.HasSuffix(said, ",{,a,b") {
		t.Errorf("with results in between it prints %s", said)
	}
}

// TestBenchMaxLatency: an operation that takes too long is an error, with fio's exit status and number in the JSON.
func TestBenchMaxLatency(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB")
	job := args("--output-format=json --name a --ioengine null --size 64k --rw randread --max_latency 1")
	check := func(who, stdout, stderr string, code int) {
		var r fioReport
		begin := strings.Index(stdout, "{") // fio has lines before its report then
		if err := json.Unmarshal([]byte(stdout[max(begin, 0):]), &r); err != nil {
			t.Fatalf("%s: %v in %s", who, err, stdout)
		}
		if j := r.Jobs[0]; code != exitFailure || j.Error != 110 || j.Read.Total != 1 {
			t.Errorf("%s: exit code %d, error %d after %v operations: %s", who, code, j.Error, j.Read.Total, stderr)
		}
	}
	r := tgt.run(t, cliTimeout, "tcp", "bench", job...)
	check("nvmeinit", r.stdout, r.stderr, r.code)
	if !strings.Contains(r.stderr, "read of 4096 bytes at offset ") || !strings.Contains(r.stderr, ", and max_latency is 1µs") {
		t.Errorf("it says %s", r.stderr)
	}
	tgt.must(t, cliTimeout, "tcp", "bench", append(job, "--max_latency", "1m")...)
	t.Run("fio", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), installed(t, "fio"), job...)
		cmd.Dir = t.TempDir()
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatal(err)
		}
		check("fio", stdout.String(), stderr.String(), exit.ExitCode())
	})
}
