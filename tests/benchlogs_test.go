package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// loggedFile is a job file that writes logs, of two jobs at once and one after them.
const loggedFile = `
[global]
size=4m
bs=4k
iodepth=4
rate_iops=400
time_based
runtime=1s
log_avg_msec=100
write_bw_log=run
write_iops_log=run
write_lat_log=run

[mix]
ioengine=null
rw=randrw
numjobs=2

[writer]
ioengine=null
stonewall
rw=randwrite
`

// readLogs reads fio's logs in a directory, or what claims to be those, by their names without .log.
func readLogs(t *testing.T, dir string, fieldCount int) map[string][][]int {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.log")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][][]int{}
	for _, path := range paths {
		b := readFile(t, path)
		name := strings.TrimSuffix(filepath.Base(path), ".log")
		all[name] = nil
		for line := range strings.Lines(string(b)) {
			var fields []int
			for text := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), ", ") {
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Errorf("%s: %q: %v", path, line, err)
				}
				fields = append(fields, n)
			}
			if len(fields) != fieldCount {
				t.Fatalf("%s: %q has %d fields, want %d", path, line, len(fields), fieldCount)
			}
			all[name] = append(all[name], fields)
		}
	}
	return all
}

// moved returns how much was done in the intervals of a log of rates (IOPS or bandwidth) in one direction, by the
// intervals' lengths in milliseconds.
func moved(log [][]int, direction int) (n float64) {
	last := 0
	for _, f := range log {
		if f[2] == direction {
			n += float64(f[1]) * float64(f[0]-last) / 1000
			last = f[0]
		}
	}
	return n
}

// inTime reports whether no interval of a log of rates was twice as long as loggedFile asks for. fio computes a rate as if
// it had been in time to log it.
func inTime(log [][]int) bool {
	last := 0
	for _, f := range log {
		if f[0]-last > 200 {
			return false
		}
		last = f[0]
	}
	return true
}

// fio and nvmeinit write logs of the same names and format, which show what was done in the course of the run.
func TestBenchLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := dir + "/logged.fio"
	writeText(t, path, loggedFile)
	tgt := startTarget(t, "--volume", "mem:8MiB")
	check := func(t *testing.T, who string, out []byte, dir string) {
		logs, jobs := readLogs(t, dir, 5), readJobs(t, string(out))
		for i, j := range jobs {
			for direction, s := range []fioSide{j.Read, j.Write} {
				iops, bw := logs[fmt.Sprintf("run_iops.%d", i+1)], logs[fmt.Sprintf("run_bw.%d", i+1)]
				known := who != "fio" || inTime(iops) && inTime(bw)
				// The rest of the last interval is in no log, and values are rounded.
				if n := moved(iops, direction); known && math.Abs(n-s.Total) > s.Total/2 {
					t.Errorf("%s: job %d: %.0f operations are logged in direction %d, of %v; %v", who, i+1, n, direction, s.Total, iops)
				}
				if n := moved(bw, direction) * 1024; known && math.Abs(n-s.Bytes) > s.Bytes/2 {
					t.Errorf("%s: job %d: %.0f bytes are logged in direction %d, of %v; %v", who, i+1, n, direction, s.Bytes, bw)
				}
				for name, lat := range map[string]fioLatency{"clat": s.CLat, "lat": s.Lat} {
					ns := 0
					for _, f := range logs[fmt.Sprintf("run_%s.%d", name, i+1)] {
						if f[2] != direction {
							continue
						}
						if ns++; float64(f[1]) < lat.Min-1 || float64(f[1]) > lat.Max {
							t.Errorf("%s: job %d: %v in %s, and latencies are %v to %v", who, i+1, f, name, lat.Min, lat.Max)
						}
					}
					if (ns > 0) != (s.Total > 0) {
						t.Errorf("%s: job %d: %d lines of %s in direction %d", who, i+1, ns, name, direction)
					}
				}
			}
		}
		if len(jobs) != 3 {
			t.Errorf("%s: %d jobs", who, len(jobs))
		}
		var names []string
		for name := range logs {
			if !strings.Contains(name, "slat") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if want := args("run_bw.1 run_bw.2 run_bw.3 run_clat.1 run_clat.2 run_clat.3 run_iops.1 run_iops.2 run_iops.3 run_lat.1 run_lat.2 run_lat.3"); !slices.Equal(names, want) {
			t.Errorf("%s: logs %v, want %v", who, names, want)
		}
	}
	for _, transport := range transports {
		logs := t.TempDir()
		flags := logFlags(path, logs)
		check(t, transport, []byte(tgt.must(t, cliTimeout, transport, "bench", flags...)), logs)
		if transport == "rdma" {
			continue
		}
		tgt.must(t, cliTimeout, transport, "bench", append(flags, "--per_job_logs", "0", "--log_avg_msec", "300")...)
		log := readLogs(t, logs, 5)["run_iops"]
		if n := moved(log[:len(log)/2], 1); len(log) < 2*3*2+3 || n == 0 {
			t.Errorf("the log of all jobs has %v", log)
		}
	}
	t.Run("fio", func(t *testing.T) {
		logs := t.TempDir()
		check(t, "fio", runFio(t, logs, "--output-format=json", path), logs)
	})
}

// logFlags have nvmeinit bench run a job file, print JSON and write logs into a directory.
func logFlags(path, dir string) []string {
	flags := []string{"-o", "json", path}
	for _, kind := range []string{"bw", "iops", "lat"} {
		flags = append(flags, "--write_"+kind+"_log", dir+"/run")
	}
	return flags
}

// singleFile is a job file that logs every operation.
const singleFile = `
[global]
ioengine=null
size=4m
io_size=1m
bssplit=4k/50:16k/50
log_offset=1
write_bw_log=run
write_iops_log=run
write_lat_log=run

[mix]
rw=randrw
percentage_random=100,0
refill_buffers
fsync=8
iodepth=4
`

// Logs without log_avg_msec contain exactly the operations of a run, with fio and here.
func TestBenchSingleLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := dir + "/single.fio"
	writeText(t, path, singleFile)
	check := func(t *testing.T, who string, out []byte, dir string) {
		logs, jobs := readLogs(t, dir, 6), readJobs(t, string(out))
		if len(jobs) != 1 {
			t.Fatalf("%s: %d jobs", who, len(jobs))
		}
		for direction, s := range []fioSide{jobs[0].Read, jobs[0].Write} {
			for _, name := range args("run_bw.1 run_iops.1 run_lat.1 run_clat.1") {
				lines, bytes, last := 0, 0, 0
				for i, f := range logs[name] {
					if f[0] < last || f[2] > 1 || f[3] != 4096 && f[3] != 16384 || f[4]+f[3] > 4<<20 || f[4]%4096 != 0 || f[5] != 0 {
						t.Errorf("%s: line %d of %s: %v", who, i, name, f)
					}
					last = f[0]
					if f[2] != direction {
						continue
					}
					lines, bytes = lines+1, bytes+f[3]
					bw, clat := logs["run_bw.1"][i][1], logs["run_clat.1"][i][1]
					if want := f[3] * 1e6 / max(clat, 1); logs["run_iops.1"][i][1] != 1 || bw != want {
						t.Errorf("%s: operation %d is logged as %d KB/s and %v, want %d KB/s, and 1", who, i, bw, logs["run_iops.1"][i], want)
					}
				}
				if float64(lines) != s.Total || float64(bytes) != s.Bytes || lines == 0 {
					t.Errorf("%s: %s has %d operations and %d bytes in direction %d, of %v and %v", who, name, lines, bytes, direction, s.Total, s.Bytes)
				}
			}
		}
		// The writes follow each other, in the order in which they began.
		var writes []int
		for _, f := range logs["run_lat.1"] {
			if f[2] == 1 {
				writes = append(writes, f[4])
			}
		}
		slices.Sort(writes)
		if n := len(slices.Compact(slices.Clone(writes))); n != len(writes) || writes[0] != 0 || writes[n-1] > 2<<20 {
			t.Errorf("%s: writes go to %v", who, writes)
		}
	}
	tgt := startTarget(t, "--volume", "mem:8MiB")
	for _, transport := range transports {
		logs := t.TempDir()
		flags := logFlags(path, logs)
		check(t, transport, []byte(tgt.must(t, cliTimeout, transport, "bench", flags...)), logs)
	}
	t.Run("fio", func(t *testing.T) {
		logs := t.TempDir()
		check(t, "fio", runFio(t, logs, "--output-format=json", path), logs)
	})
}
