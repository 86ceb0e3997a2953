package fio

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Every option's example can be set, and changes a job that doesn't have it.
func TestExamples(t *testing.T) {
	for _, o := range Options() {
		for _, name := range append([]string{o.Name}, o.Aliases...) {
			j := NewJob("test")
			value := o.Example
			if err := j.Set(name, value); err != nil {
				t.Errorf("%s=%s: %v", name, value, err)
			}
			if j.Given()[o.Name] == "" {
				t.Errorf("%s is not among what was given", name)
			}
			if !o.Flag && !o.Alone {
				if err := j.Set(name, ""); err == nil || !strings.Contains(err.Error(), name+"="+o.Example) {
					t.Errorf("%s without a value: %v", name, err)
				}
			}
		}
		for _, value := range o.Choices {
			j := NewJob("test")
			j.RateIOPS = [3]int{1, 1, 1} // for rate_process
			if err := errors.Join(j.Set(o.Name, value), j.Check()); err != nil {
				t.Errorf("%s=%s, which is a choice: %v", o.Name, value, err)
			}
		}
		if o.Usage == "" || strings.HasSuffix(o.Usage, ".") {
			t.Errorf("%s: %q", o.Name, o.Usage)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		option, value string
		check         func(j *Job) bool
	}{
		{"sync", "1", func(j *Job) bool { return j.Sync }},
		{"sync", "dsync", func(j *Job) bool { return j.Sync }},
		{"sync", "none", func(j *Job) bool { return !j.Sync }},
		{"fdatasync", "32", func(j *Job) bool { return j.Fsync == 32 }},
		{"io_limit", "1m", func(j *Job) bool { return j.IOSize == 1<<20 }},
		{"io_size", "50%", func(j *Job) bool { return j.IOPercent == 50 && j.IOSize == 0 }},
		{"bs", "0x1000", func(j *Job) bool { return j.BS[0][0].Bytes == 4096 }},
		{"size", "0x10m", func(j *Job) bool { return j.Size == 16<<20 }},
		{"iodepth", "0x10", func(j *Job) bool { return j.IODepth == 16 }},
		{"iodepth", "(2^3)", func(j *Job) bool { return j.IODepth == 8 }},
		{"numjobs", "(1+2*3)", func(j *Job) bool { return j.NumJobs == 7 }},
		{"bs", "(2*4k),(64k-4096)", func(j *Job) bool { return j.BS[0][0].Bytes == 8192 && j.BS[1][0].Bytes == 60<<10 }},
		{"runtime", "(2000*1000)", func(j *Job) bool { return j.Runtime == 2*time.Second }},
		{"runtime", "(2s+500ms)", func(j *Job) bool { return j.Runtime == 2500*time.Millisecond }},
		{"offset", "(4k-4096)", func(j *Job) bool { return j.Offset == 0 }},
		{"thinktime", "(2*1000)", func(j *Job) bool { return j.ThinkTime == 2*time.Millisecond }},
		{"loops", "3", func(j *Job) bool { return j.Loops == 3 }},
		{"number_ios", "1k", func(j *Job) bool { return j.NumberIOs == 1024 }},
		{"randrepeat", "0", func(j *Job) bool { return j.Seed != NewJob("").Seed }},
		{"randrepeat", "1", func(j *Job) bool { return j.Seed == NewJob("").Seed }},
		{"bs", "8k", func(j *Job) bool {
			return j.BS[0][0].Bytes == 8192 && j.BS[1][0].Bytes == 8192 && j.BS[2][0].Bytes == 8192
		}},
		{"bs", "8k,16k", func(j *Job) bool { return j.BS[2][0].Bytes == 16<<10 }},
		{"bs", "8k,16k,", func(j *Job) bool { return j.BS[1][0].Bytes == 16<<10 && j.BS[2][0].Bytes == 4096 }},
		{"bs", ",,1m", func(j *Job) bool { return j.BS[1][0].Bytes == 4096 && j.BS[2][0].Bytes == 1<<20 }},
		{"bs", "4K,64kb", func(j *Job) bool { return j.BS[0][0].Bytes == 4096 && j.BS[1][0].Bytes == 65536 }},
		{"bs", ",1MiB", func(j *Job) bool { return j.BS[0][0].Bytes == 4096 && j.BS[1][0].Bytes == 1<<20 }},
		{"bssplit", "4k/70:64k/30", func(j *Job) bool {
			return reflect.DeepEqual(j.BS[1], loadgen.Split{{Bytes: 4096, Percent: 70}, {Bytes: 65536, Percent: 30}})
		}},
		{"bssplit", "4k/50:8k/:16k/", func(j *Job) bool { return j.BS[0][1].Percent == 25 && j.BS[0][2].Percent == 25 }},
		{"bssplit", "4k:8k:16k", func(j *Job) bool { return j.BS[0][0].Percent == 33 && j.BS[0][2].Percent == 34 }},
		{"bssplit", "4k/100,8k/50:16k/50", func(j *Job) bool { return len(j.BS[0]) == 1 && len(j.BS[1]) == 2 }},
		{"bssplit", "4k/0:8k/100", func(j *Job) bool { return j.BS[0][0].Percent == 0 && j.BS[0][1].Percent == 100 }},
		{"bsrange", "4k-4k", func(j *Job) bool { return reflect.DeepEqual(j.BS[0], loadgen.Range(4096, 4096)) }},
		{"bsrange", "4k-64k", func(j *Job) bool { return reflect.DeepEqual(j.BS[1], loadgen.Range(4096, 65536)) }},
		{"blocksize_range", "4k-8k,(2*4k)-(128k-4k)", func(j *Job) bool {
			return reflect.DeepEqual(j.BS[0], loadgen.Range(4096, 8192)) && reflect.DeepEqual(j.BS[2], loadgen.Range(8192, 124<<10))
		}},
		{"size", "20%", func(j *Job) bool { return j.SizePercent == 20 && j.Size == 0 }},
		{"offset", "50%", func(j *Job) bool { return j.OffsetPercent == 50 && j.Offset == 0 }},
		{"offset", "0%", func(j *Job) bool { return j.OffsetPercent == 0 && j.Offset == 0 }},
		{"offset", "1m", func(j *Job) bool { return j.Offset == 1<<20 && j.OffsetPercent == 0 }},
		{"size", "1g", func(j *Job) bool { return j.Size == 1<<30 }},
		{"runtime", "10", func(j *Job) bool { return j.Runtime == 10*time.Second }},
		{"runtime", "500ms", func(j *Job) bool { return j.Runtime == 500*time.Millisecond }},
		{"runtime", "2m", func(j *Job) bool { return j.Runtime == 2*time.Minute }},
		{"runtime", "500msec", func(j *Job) bool { return j.Runtime == 500*time.Millisecond }},
		{"runtime", "2sec", func(j *Job) bool { return j.Runtime == 2*time.Second }},
		{"thinktime", "10usec", func(j *Job) bool { return j.ThinkTime == 10*time.Microsecond }},
		{"runtime", "1d", func(j *Job) bool { return j.Runtime == 24*time.Hour }},
		{"runtime", "10d", func(j *Job) bool { return j.Runtime == 240*time.Hour }},
		{"startdelay", "2", func(j *Job) bool { return j.Delay == 2*time.Second }},
		{"thinktime", "2500", func(j *Job) bool { return j.ThinkTime == 2500*time.Microsecond }},
		{"thinktime", "10ms", func(j *Job) bool { return j.ThinkTime == 10*time.Millisecond }},
		{"thinktime_blocks", "4", func(j *Job) bool { return j.ThinkIOs == 4 }},
		{"rwmixwrite", "30", func(j *Job) bool { return j.RWMixRead == 70 }},
		{"rwmixwrite", "100", func(j *Job) bool { return j.RWMixRead == 0 }},
		{"rate", "1m", func(j *Job) bool { return j.Rate == [3]int64{1 << 20, 1 << 20, 1 << 20} }},
		{"rate", ",1m", func(j *Job) bool { return j.Rate == [3]int64{0, 1 << 20, 1 << 20} }},
		{"rate_iops", "700,300", func(j *Job) bool { return j.RateIOPS == [3]int{700, 300, 300} }},
		{"rate_iops", "10,20,30", func(j *Job) bool { return j.RateIOPS == [3]int{10, 20, 30} }},
		{"rate_process", "poisson", func(j *Job) bool { return j.Poisson }},
		{"random_distribution", "zipf", func(j *Job) bool { return j.Distribution == loadgen.Distribution{Kind: "zipf", Theta: 1.1} }},
		{"random_distribution", "pareto", func(j *Job) bool { return j.Distribution == loadgen.Distribution{Kind: "pareto", Theta: 0.2} }},
		{"random_distribution", "pareto:0.3", func(j *Job) bool { return j.Distribution == loadgen.Distribution{Kind: "pareto", Theta: 0.3} }},
		{"random_distribution", "normal:20", func(j *Job) bool { return j.Distribution == loadgen.Distribution{Kind: "normal", Theta: 20} }},
		{"random_distribution", "zoned:60/10:40/90%", func(j *Job) bool {
			return reflect.DeepEqual(j.Zones[2], []loadgen.Zone{{Percent: 60, Share: 10}, {Percent: 40, Share: 90}})
		}},
		{"random_distribution", "zoned:50/5:30:20/", func(j *Job) bool {
			return reflect.DeepEqual(j.Zones[0], []loadgen.Zone{{Percent: 50, Share: 5}, {Percent: 30, Share: 47}, {Percent: 20, Share: 48}})
		}},
		{"blockalign", "4k,8k", func(j *Job) bool { return j.Align == [3]int{4096, 8192, 8192} }},
		{"ba", "64k", func(j *Job) bool { return j.Align[0] == 65536 }},
		{"random_distribution", "zoned_abs:60/1g:40/9g,100/1g", func(j *Job) bool {
			return j.Zones[0][1] == loadgen.Zone{Percent: 40, Bytes: 9 << 30} && j.Zones[1][0] == loadgen.Zone{Percent: 100, Bytes: 1 << 30}
		}},
		{"latency_target", "500", func(j *Job) bool { return j.LatencyTarget == 500*time.Microsecond }},
		{"latency_target", "2ms", func(j *Job) bool { return j.LatencyTarget == 2*time.Millisecond }},
		{"latency_window", "5000000", func(j *Job) bool { return j.LatencyWindow == 5*time.Second }},
		{"latency_percentile", "99.9", func(j *Job) bool { return j.LatencyPercentile == 99.9 }},
		{"write_bw_log", "x", func(j *Job) bool { return j.Logged() == "write_bw_log" && j.LogsOf(2)[0].Path == "x_bw.3.log" }},
		{"write_lat_log", "", func(j *Job) bool { return j.LogsOf(0)[1].Path == "test_lat.1.log" }},
		{"log_avg_msec", "1k", func(j *Job) bool { return j.LogEvery == 1024*time.Millisecond }},
		{"log_offset", "", func(j *Job) bool { return j.Logs.offsets }},
		{"refill_buffers", "", func(j *Job) bool { return j.Refill }},
		{"refill_buffers", "0", func(j *Job) bool { return !j.Refill }},
		{"percentage_random", "80", func(j *Job) bool { return j.Sequential == [3]int{20, 20, 20} }},
		{"percentage_random", "100,0", func(j *Job) bool { return j.Sequential == [3]int{0, 100, 100} }},
		{"verify", "crc32c", func(j *Job) bool { return j.Verify }},
		{"verify", "0", func(j *Job) bool { return !j.Verify }},
		{"percentile_list", "50:99.9", func(j *Job) bool { return slices.Equal(j.Percentiles, []float64{50, 99.9}) }},
		{"percentile_list", "99:50:50:99.9", func(j *Job) bool { return slices.Equal(j.Percentiles, []float64{50, 99, 99.9}) }},
		{"group_reporting", "", func(j *Job) bool { return j.GroupReporting }},
		{"time_based", "0", func(j *Job) bool { return !j.TimeBased }},
	} {
		j := NewJob("test")
		if err := j.Set(c.option, c.value); err != nil || !c.check(j) {
			t.Errorf("%s=%s: %v, %+v", c.option, c.value, err, j.Spec)
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, c := range []struct{ option, value, says string }{
		{"bs", "4kk", "a size"},
		{"bs", "1,2,3,4", "of writes and of trims"},
		{"size", "8e", "less than 8 EiB"},
		{"bs", "0x", "a size"},
		{"bs", "0xk", "a size"},
		{"bs", "0xffffffffffffffff", "a size"},
		{"bs", "(4k*", "an expression"},
		{"bs", "(4k", "not closed"},
		{"bs", "(4k)x", `"x" is no part of an expression`},
		{"bs", "(4k)k", `"k" is no part of an expression`},
		{"bs", "(1-2)", "at least 0"},
		{"bs", "(2^64)", "too large"},
		{"bs", "(9^9^9^9)", "too large"},
		{"size", "(1/0)", "division by zero"},
		{"size", "(1%0)", "division by zero"},
		{"size", strings.Repeat("(", 1000) + "1", "too many parentheses"},
		{"runtime", "(9000000000000s)", "positive"},
		{"io_size", "101%", "1% to 100%"},
		{"bssplit", "4k/50:8k/60", "110 percent"},
		{"bssplit", "4k/50:8k/40", "90 percent"},
		{"bssplit", "4k/x", `"x" is no share`},
		{"bs", "4k-64k", "bsrange takes a range"},
		{"bsrange", "4k", "two sizes, as 4k-64k"},
		{"bsrange", "4k-64x", "two sizes, as 4k-64k"},
		{"bsrange", "64k-4k", "the smaller size first"},
		{"bsrange", "0-4k", "the smaller size first"},
		{"rwmixwrite", "110", "100 percent"},
		{"iodepth", "many", "a number"},
		{"size", "120%", "1% to 100%"},
		{"runtime", "-1", "positive"},
		{"runtime", "-1s", "positive"},
		{"runtime", "NaN", "positive"},
		{"runtime", "1e300", "positive"},
		{"startdelay", "1-5", "positive"},
		{"runtime", "sec", "positive"},
		{"runtime", "5mmsec", "positive"},
		{"thinktime", "-1", "positive"},
		{"thinktime_blocks", "x", "a number"},
		{"rate_process", "even", "linear or poisson"},
		{"random_distribution", "zipf:much", "a number"},
		{"random_distribution", "normal", "as normal:20"},
		{"random_distribution", "zoned", "as zoned:60/10:40/90"},
		{"random_distribution", "zoned:60/10:40/x", `"40/x" is no zone`},
		{"random_distribution", "zoned_abs:60/10:-1/4k", `"-1/4k" is no zone`},
		{"random_distribution", "zoned_abs:60/1g:40", `"40" is no zone`},
		{"blockalign", "x", "a size"},
		{"write_bw_log", "--log_avg_msec", "what the names of the files are to begin with"},
		{"log_avg_msec", "1s", "a number"},
		{"percentage_random", "101", "0 to 100 percent"},
		{"percentage_random", "x", "a number"},
		{"log_avg_msec", "3600001", "at most an hour"},
		{"per_job_logs", "some", "1 or 0"},
		{"verify", "md5", "crc32c"},
		{"percentile_list", "50:101", `"101" is no percentile`},
		{"percentile_list", strings.Repeat("1:", 20) + "1", "at most 20"},
		{"time_based", "maybe", "1 or 0"},
	} {
		err := NewJob("test").Set(c.option, c.value)
		if err == nil || !strings.Contains(err.Error(), c.option+"="+c.value) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v, want it to say %q", c.option, c.value, err, c.says)
		}
	}
}

const jobFile = `
; a comment
[global]
bs=8k
iodepth = 16
group_reporting

[first]
rw=randread
numjobs=2

# another
[second]
stonewall
rw=write
bs=4k,128k
[global]
bs=16k
[third]
rw=read
`

func TestParse(t *testing.T) {
	f, err := Parse("jobs.fio", strings.NewReader(jobFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Jobs) != 3 || f.Global["bs"] != "16k" || f.Global["group_reporting"] != "1" {
		t.Fatalf("%d jobs, global %v", len(f.Jobs), f.Global)
	}
	a, b, c := f.Jobs[0], f.Jobs[1], f.Jobs[2]
	if a.Name != "first" || a.RW != "randread" || a.NumJobs != 2 || a.IODepth != 16 || !a.GroupReporting || a.BS[0][0].Bytes != 8192 {
		t.Errorf("first: %+v", a)
	}
	if b.BS[1][0].Bytes != 128<<10 || b.BS[0][0].Bytes != 4096 || b.NumJobs != 1 {
		t.Errorf("second: %+v", b)
	}
	if c.BS[0][0].Bytes != 16384 {
		t.Errorf("third: %+v", c)
	}
	if !reflect.DeepEqual(a.Given(), map[string]string{"rw": "randread", "numjobs": "2"}) {
		t.Errorf("first was given %v", a.Given())
	}
	if p := Phases(f.Jobs); len(p) != 2 || len(p[0]) != 1 || len(p[1]) != 2 {
		t.Errorf("phases %v", p)
	}
	over := NewJob("bench")
	if err := errors.Join(over.Set("bs", "1m"), over.Set("runtime", "1"), a.Apply(over)); err != nil ||
		a.BS[0][0].Bytes != 1<<20 || a.Runtime != time.Second || a.RW != "randread" || a.Name != "first" {
		t.Errorf("with what the command line says: %v, %+v", err, a)
	}
}

// TestIdleOptions: options that concern files and the kernel's interfaces are accepted in a job file, reported once
// each, and not listed as if they had an effect.
func TestIdleOptions(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[global]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\nbs=8k\n[a]\nthread\n[b]\nioengine=io_uring\ninvalidate=1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "without effect here: ioengine, direct, filename, thread, invalidate"; f.Idle.Notice() != want {
		t.Errorf("%q, want %q", f.Idle.Notice(), want)
	}
	if len(f.Idle) != 6 || f.Idle[4] != (Idle{9, "ioengine", "io_uring"}) {
		t.Errorf("%v", f.Idle)
	}
	if len(f.Global) != 1 || len(f.Jobs[0].Given()) != 0 || f.Jobs[1].BS[0][0].Bytes != 8192 {
		t.Errorf("global %v, a %v", f.Global, f.Jobs[0].Given())
	}
	for _, line := range []string{"hipri", "fixedbufs=1", "new_group", "description=two words", "clat_percentiles=1", "gtod_reduce=0", "do_verify=1",
		"verify_dump=1", "buffered=0", "disable_lat=0", "disable_slat=1", "fadvise_hint=0", "log_entries=32768", "iodepth_batch=1", "random_generator=lfsr"} {
		if f, err := Parse("x.fio", strings.NewReader("[a]\n"+line)); err != nil || f.Idle.Notice() == "" || len(f.Jobs[0].Given()) != 0 {
			t.Errorf("%s: %v, %q", line, err, f.Idle.Notice())
		}
	}
	if f, err = Parse("x.fio", strings.NewReader("[a]\nbs=4k\n")); err != nil || f.Idle.Notice() != "" {
		t.Errorf("%v, %q where every option has an effect", err, f.Idle.Notice())
	}
}

// TestJobFileText: trailing comments and environment variables work as in fio's job files.
func TestJobFileText(t *testing.T) {
	t.Setenv("BENCH_TEST_BS", "16k")
	t.Setenv("BENCH_TEST_NONE", "")
	f, err := Parse("x.fio", strings.NewReader("  ; first\n[a] ; a job\n\tbs = ${BENCH_TEST_BS},1${BENCH_TEST_NONE}m # both\nname=${BENCH_TEST_BS}-${BENCH_TEST_BS}\ntime_based;yes\nruntime=1#s\n"))
	if err != nil {
		t.Fatal(err)
	}
	j := f.Jobs[0]
	if j.Name != "16k-16k" || j.BS[0][0].Bytes != 16<<10 || j.BS[1][0].Bytes != 1<<20 || !j.TimeBased || j.Runtime != time.Second {
		t.Errorf("%+v", j.Spec)
	}
}

// TestKeywords: the keywords that fio replaces by facts about the machine in job files, and calculates with.
func TestKeywords(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[a]\nnumjobs=$ncpus\nbs=$pagesize\nsize=$mb_memory\n[b]\nnumjobs=2*$ncpus\niodepth=($ncpus+1)*2\nname=of$ncpus-$else\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b, cpus := f.Jobs[0], f.Jobs[1], runtime.NumCPU()
	if a.NumJobs != cpus || a.BS[0][0].Bytes != os.Getpagesize() || a.Size < 64 || a.Given()["numjobs"] != strconv.Itoa(cpus) {
		t.Errorf("a: %d jobs of %d bytes, %d MiB, said as %v", a.NumJobs, a.BS[0][0].Bytes, a.Size, a.Given())
	}
	if b.NumJobs != 2*cpus || b.IODepth != 2*(cpus+1) || b.Name != fmt.Sprintf("of%d-$else", cpus) {
		t.Errorf("b: %d jobs, depth %d, %q", b.NumJobs, b.IODepth, b.Name)
	}
}

func TestExpressions(t *testing.T) {
	for text, want := range map[string]int64{
		strings.Repeat("1+", 200) + "1": 201, "1+2*3": 7, "(1+2)*3": 9, "8/2/2": 2, "7-2-1": 4, "7%4": 3, "7/2": 3, "2^3^2": 512, "2*-3": -6,
		" ( 1 + 1 ) * 4k ": 8192, "0x10+1": 17,
	} {
		if n, err := evaluate(text, parseNumber); err != nil || n != want {
			t.Errorf("%s is %d, %v, want %d", text, n, err, want)
		}
	}
}

// TestErrno: fio's error for wrong data differs from that of a failing device.
func TestErrno(t *testing.T) {
	for err, want := range map[error]int{errors.New("any"): 5, error(&loadgen.VerifyError{}): 84} {
		jobs, res := results(t, "group_reporting")
		res.Jobs[1].Errors, res.Jobs[1].Err = 1, err
		r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
		if r.Add(0, jobs, res, false); r.Jobs[0].Error != want {
			t.Errorf("%v is error %d, want %d", err, r.Jobs[0].Error, want)
		}
	}
}

// TestLogs: a line is a time in ms, a value in KiB/s, operations per second or ns, and a direction. An interval in
// which nothing ended has a rate, but no latency.
func TestLogs(t *testing.T) {
	j := NewJob("mine")
	for _, s := range []setting{{"rw", "rw"}, {"write_bw_log", "a"}, {"write_iops_log", ""}, {"write_lat_log", "d/b"}, {"log_avg_msec", "500"}} {
		if err := j.Set(s.name, s.value); err != nil {
			t.Fatal(err)
		}
	}
	j.Number = 3
	r := &loadgen.JobResult{Spec: &j.Spec, Windows: []loadgen.Window{
		{End: 500 * time.Millisecond, Length: 500 * time.Millisecond, IOs: [3]uint64{100, 50}, Bytes: [3]uint64{100 << 12, 50 << 13},
			Latency: [3]time.Duration{100 * 81 * time.Microsecond, 50 * 17 * time.Microsecond}},
		{End: time.Second, Length: 500 * time.Millisecond},
		{End: 1250 * time.Millisecond, Length: 250 * time.Millisecond, IOs: [3]uint64{0, 10}, Bytes: [3]uint64{0, 10 << 10},
			Latency: [3]time.Duration{0, 10 * time.Millisecond}},
	}}
	lat := "500, 81000, 0, 0, 0\n500, 17000, 1, 0, 0\n1250, 1000000, 1, 0, 0\n"
	want := map[string]string{
		"a_bw.5.log":      "500, 800, 0, 0, 0\n500, 800, 1, 0, 0\n1000, 0, 0, 0, 0\n1000, 0, 1, 0, 0\n1250, 0, 0, 0, 0\n1250, 40, 1, 0, 0\n",
		"mine_iops.5.log": "500, 200, 0, 0, 0\n500, 100, 1, 0, 0\n1000, 0, 0, 0, 0\n1000, 0, 1, 0, 0\n1250, 0, 0, 0, 0\n1250, 40, 1, 0, 0\n",
		"d/b_clat.5.log":  lat,
		"d/b_lat.5.log":   lat,
	}
	for _, l := range j.LogsOf(1) {
		var b strings.Builder
		if err := l.Write(&b, r); err != nil || b.String() != want[l.Path] {
			t.Errorf("%s has %v\n%swant\n%s", l.Path, err, b.String(), want[l.Path])
		}
		delete(want, l.Path)
	}
	if len(want) > 0 {
		t.Errorf("there are no %v", want)
	}
	if err := j.Set("per_job_logs", "0"); err != nil || j.LogsOf(1)[0].Path != "a_bw.log" {
		t.Errorf("%v, %+v", err, j.LogsOf(1))
	}
	if Specs([]*Job{j})[0].LogEach {
		t.Error("each operation is kept for logs of intervals")
	}
}

// TestSingleLogs: without log_avg_msec each line is one operation, as in fio: its bandwidth (KB per second), 1, or
// its latency, then its bytes and, with log_offset, its offset.
func TestSingleLogs(t *testing.T) {
	j := NewJob("mine")
	for _, s := range []setting{{"write_bw_log", "a"}, {"write_iops_log", "a"}, {"write_lat_log", "a"}, {"log_avg_msec", "0"}} {
		if err := j.Set(s.name, s.value); err != nil {
			t.Fatal(err)
		}
	}
	if !Specs([]*Job{j})[0].LogEach || Specs([]*Job{NewJob("other")})[0].LogEach {
		t.Error("operations are kept where no log wants them, or are not where one does")
	}
	r := &loadgen.JobResult{Spec: &j.Spec, Entries: [][]loadgen.Entry{
		{{End: 1999 * time.Microsecond, Latency: 61973, Offset: 8192, Length: 4096, Op: loadgen.Read}},
		{{End: 2 * time.Millisecond, Latency: 0, Offset: 0, Length: 512, Op: loadgen.Write}},
	}}
	lat := "1, 61973, 0, 4096, 0\n2, 0, 1, 512, 0\n"
	want := map[string]string{
		"a_bw.1.log": "1, 66093, 0, 4096, 0\n2, 512000000, 1, 512, 0\n", "a_iops.1.log": "1, 1, 0, 4096, 0\n2, 1, 1, 512, 0\n",
		"a_clat.1.log": lat, "a_lat.1.log": lat,
	}
	write := func(l Log) string {
		var b strings.Builder
		if err := l.Write(&b, r); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	for _, l := range j.LogsOf(0) {
		if got := write(l); got != want[l.Path] {
			t.Errorf("%s has\n%swant\n%s", l.Path, got, want[l.Path])
		}
	}
	if err := j.Set("log_offset", ""); err != nil {
		t.Fatal(err)
	}
	if got, want := write(j.LogsOf(0)[1]), "1, 1, 0, 4096, 8192, 0\n2, 1, 1, 512, 0, 0\n"; got != want {
		t.Errorf("with offsets it is\n%swant\n%s", got, want)
	}
}

// TestElapsed: each job reports how long all of them took, as in fio, including jobs that ran before others.
func TestElapsed(t *testing.T) {
	began := time.Unix(1795242250, 0)
	r := NewReport("nvmeinit 1", began, nil)
	for group := range 2 {
		jobs, res := results(t, "group_reporting")
		r.Add(group, jobs, res, false)
	}
	r.End(began.Add(2100 * time.Millisecond))
	if r.Jobs[0].Elapsed != 3 || r.Jobs[1].Elapsed != 3 {
		t.Errorf("%d s and %d s of 2.1 s have elapsed, want them rounded up", r.Jobs[0].Elapsed, r.Jobs[1].Elapsed)
	}
}

func TestParseErrors(t *testing.T) {
	for text, says := range map[string]string{
		"[a]\nbs=${BENCH_TEST_MISSING}4k\n":     "x.fio:2: ${BENCH_TEST_MISSING}: the environment has no BENCH_TEST_MISSING",
		"[a]\nbs=${HOME\n":                      "x.fio:2: bs=${HOME: want a name in braces",
		"[a]\ninclude b.fio\n":                  "x.fio:2: include: job files can't include others",
		"include b.fio\n[a]\n":                  "x.fio:1: include: job files can't include others",
		"[a]\nrw=read\nnonsense=3\n":            `x.fio:3: there is no option "nonsense"`,
		"[a]\ndirectory=/tmp\n":                 "x.fio:2: directory: nvmeinit reaches the namespace by itself",
		"[a]\nwrite_hist_log=x\n":               "x.fio:2: write_hist_log: write_bw_log, write_iops_log and write_lat_log have",
		"[a]\ncpus_allowed=0-3\n":               "x.fio:2: cpus_allowed: taskset or numactl",
		"[a]\nlat_percentiles=1\n":              "x.fio:2: lat_percentiles: percentile_list says",
		"[a]\nverify_state_save=1\n":            "x.fio:2: verify_state_save: verify reads everything back",
		"[a]\ngtod_reduce\n":                    "x.fio:2: gtod_reduce: all latencies are measured",
		"[a]\niodepth_batch=8\n":                "x.fio:2: iodepth_batch: an operation begins",
		"[a]\nlatency_run=1\n":                  "x.fio:2: latency_run: latency_target finds",
		"[a]\nzonemode=zbd\n":                   "x.fio:2: zonemode: the namespace has no zones; jobs with an offset",
		"[a]\nexitall_on_error=0\n":             "x.fio:2: exitall_on_error: the first operation that fails",
		"[a]\nprioclass=1\n":                    "x.fio:2: prioclass: all commands are equal",
		"[a]\nmd_per_io_size=8\n":               "x.fio:2: md_per_io_size: data have no metadata",
		"[a]\nratemin=1m\n":                     "x.fio:2: ratemin: a rate here is kept",
		"[a]\ndedupe_mode=repeat\n":             "x.fio:2: dedupe_mode: what is written is random",
		"[a]\nread_iolog=x\n":                   "x.fio:2: read_iolog: traces aren't replayed",
		"[a]\nfoo=1\nbs=4kk\n":                  "x.fio:3: bs=4kk: want a size",
		"[a]\nclat_percentiles=0\n":             "x.fio:2: clat_percentiles: percentile_list says",
		"[a]\ndirect=0\n":                       "x.fio:2: direct: commands go to the namespace past every cache",
		"[a]\nfilename=a\n[b]\nfilename=b\n":    "x.fio:4: filename=b, and a in line 2: all jobs run on one namespace",
		"[a]\nbs=4kk\n":                         "x.fio:2: bs=4kk: want a size",
		"rw=read\n":                             `x.fio:1: "rw=read": want a section first`,
		"[a\n":                                  "x.fio:1: [a: want a section",
		"[]\n":                                  "want a section",
		"":                                      "x.fio:1: no job",
		"[global]\nrw=read\n":                   "x.fio:2: no job",
		"[a]\niodepth\n":                        "x.fio:2: iodepth: want a value, as iodepth=32",
		"[a]\nrw=" + strings.Repeat("r", 1<<17): "longer than",
	} {
		_, err := Parse("x.fio", strings.NewReader(text))
		var se *SyntaxError
		if !errors.As(err, &se) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want it to say %q", text, err, says)
		}
	}
	var unknown *UnknownOptionError
	if _, err := Parse("x.fio", strings.NewReader("[a]\nfoo=1")); !errors.As(err, &unknown) || unknown.Option != "foo" {
		t.Errorf("%v is no UnknownOptionError", err)
	}
}

// TestStrangers: all unknown options are reported at once, each with the first line that has it.
func TestStrangers(t *testing.T) {
	for text, want := range map[string]string{
		"[a]\nrw=read\nfoo=3\nhipri\n[b]\nbuffer_pattern\nfoo=4\n[c]\nbar": `x.fio:3: there is no option "foo"; nvmeinit bench --help lists them; ` +
			"nor are there buffer_pattern (line 6), bar (line 9)",
		"[a]\na=1\nb=1\nc=1\nd=1\ne=1\nf=1\ng=1": `x.fio:2: there is no option "a"; nvmeinit bench --help lists them; ` +
			"nor are there b (line 3), c (line 4), d (line 5), e (line 6), f (line 7), …",
	} {
		if _, err := Parse("x.fio", strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(jobFile)
	f.Add("[a]\nbs=(2^3*$pagesize)\nsize=0x10%\nruntime=((1s+2)%3)")
	f.Add("[a]\nbssplit=4k/:8k/20,1/100\nsize=5%%\nruntime=1.5h")
	f.Add("[a]\nbsrange=4k-(16k-4k),512-1k\nblockalign=4k,8k\nrandom_distribution=zoned:60/10:40\nwrite_bw_log\nlog_avg_msec=100")
	f.Add("[a]\nrandom_distribution=zoned_abs:60/1m:40/9m,,100/1g\nwrite_lat_log=x\nper_job_logs=0")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, j := range file.Jobs {
			if j.Check() == nil {
				_ = j.Validate(1<<30, 512) // must not panic
			}
		}
	})
}

// results is the result of running a job with two clones.
func results(t *testing.T, options ...string) ([]*Job, *loadgen.Result) {
	t.Helper()
	j := NewJob("test")
	for _, o := range append(options, "numjobs=2", "rw=randrw") {
		name, value, _ := strings.Cut(o, "=")
		if err := j.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	res := &loadgen.Result{Jobs: make([]loadgen.JobResult, 2)}
	for i := range res.Jobs {
		r := &res.Jobs[i]
		r.Spec, r.Clone, r.Duration = &j.Spec, i, 2*time.Second
		r.User, r.System = time.Second, 500*time.Millisecond
		r.Depths = [7]uint64{3000, 0, 1000}
		r.Points = []loadgen.Point{
			{Length: time.Second, IOs: [3]uint64{900, 900}, Bytes: [3]uint64{900 << 12, 900 << 12}},
			{Length: time.Second, IOs: [3]uint64{1100, 1100}, Bytes: [3]uint64{1100 << 12, 1100 << 12}},
		}
		for _, op := range []loadgen.Op{loadgen.Read, loadgen.Write} {
			m := &r.Ops[op]
			for k := range 2000 {
				m.Latency.Record(int64(60_000 + k))
				m.IOs++
				m.Bytes += 4096
			}
		}
	}
	return []*Job{j}, res
}

func TestReport(t *testing.T) {
	jobs, res := results(t, "percentile_list=50:99", "iodepth=3")
	r := NewReport("nvmeinit 1", time.Unix(1795242250, 0), nil)
	r.Add(0, jobs, res, true)
	if len(r.Jobs) != 2 {
		t.Fatalf("%d jobs, want each clone by itself", len(r.Jobs))
	}
	j := r.Jobs[1]
	if j.Read.TotalIOs != 2000 || j.Read.IOPS != 1000 || j.Read.BWBytes != 4096000 || j.Read.BW != 4000 || j.Read.IOKBytes != 8000 {
		t.Errorf("read: %+v", j.Read)
	}
	if j.User != 50 || j.System != 25 || j.Runtime != 2000 || j.Level[0].value != 75 || j.Level[2].value != 25 {
		t.Errorf("%v%% user, %v%% system of %d ms, depths %v", j.User, j.System, j.Runtime, j.Level)
	}
	if j.LatDepth != 3 || j.Submit[1] != (level{"4", 100}) || j.Complete[1] != (level{"4", 100}) {
		t.Errorf("a depth of %d, submitted %v, completed %v", j.LatDepth, j.Submit, j.Complete)
	}
	if j.Read.IOPSMin != 900 || j.Read.IOPSMax != 1100 || j.Read.IOPSMean != 1000 || math.Abs(j.Read.IOPSStdDev-math.Sqrt(20_000)) > 1e-9 || j.Read.IOPSSamples != 2 {
		t.Errorf("in the course of it: %+v", j.Read)
	}
	if j.Read.BWAgg < 49 || j.Read.BWAgg > 51 || r.Jobs[0].Write.BWAgg < 49 || r.Jobs[0].Write.BWAgg > 51 {
		t.Errorf("one of two clones has %v%% of the bandwidth of both", j.Read.BWAgg)
	}
	l := j.Read.CLat
	if len(l.Percentiles) != 2 || l.Percentiles[0].name != "50.000000" || math.Abs(l.Percentiles[0].value-61_000) > 600 || len(l.Bins) == 0 {
		t.Errorf("latency %+v", l)
	}
	if j.Micros[4].value != 0 || math.Abs(j.Micros[5].value-100) > 1e-9 || len(j.Millis) != 12 {
		t.Errorf("all take 50 to 100 µs, not %v", j.Micros)
	}

	jobs, res = results(t, "group_reporting")
	r = NewReport("nvmeinit 1", time.Unix(0, 0), nil)
	r.Add(0, jobs, res, false)
	if j = r.Jobs[0]; len(r.Jobs) != 1 || j.Read.TotalIOs != 4000 || j.Read.IOPS != 2000 || j.Read.IOPSMax != 2200 ||
		j.Runtime != 4000 || j.User != 50 || j.Read.BWAgg != 100 {
		t.Errorf("the group: %d ios, %v a second, %d ms, %v%%", j.Read.TotalIOs, j.Read.IOPS, j.Runtime, j.User)
	}
}

// TestLatencyShares: a latency counts below the first bound that it doesn't reach, in the unit that makes it less than
// 1000, as in fio.
func TestLatencyShares(t *testing.T) {
	bounds := []int64{2, 4, 10, 20, 50, 100, 250, 500, 750, 1000}
	check := func(ns int64, unit int, name string) {
		t.Helper()
		var m loadgen.Measured
		m.Latency.Record(ns)
		var all [3]levels
		all[0], all[1], all[2] = latencyShares(&m)
		for u, shares := range all {
			for _, s := range shares {
				want := 0.0
				if u == unit && s.name == name {
					want = 100
				}
				if s.value != want {
					t.Errorf("%d ns: %q of unit %d has %v percent, want %v", ns, s.name, u, s.value, want)
				}
			}
		}
	}
	for unit, size := range []int64{1, 1000, 1_000_000} {
		least := size
		for _, bound := range bounds {
			most := bound*size - 1
			if most > 128 { // the histogram knows it to within 1/64
				most -= most / 64
			}
			check(least+least/64, unit, strconv.FormatInt(bound, 10))
			check(most, unit, strconv.FormatInt(bound, 10))
			least = bound * size
		}
	}
	check(int64(1500*time.Millisecond), 2, "2000")
	check(int64(3*time.Second), 2, ">=2000")
}

// TestOverride: an option that is given again, as in a job after [global], replaces all that it said before.
func TestOverride(t *testing.T) {
	j := NewJob("test")
	for _, v := range []string{"zoned:60/10:40/90", "zoned:,50/50:50/50"} {
		if err := j.Set("random_distribution", v); err != nil {
			t.Fatal(err)
		}
	}
	if len(j.Zones[loadgen.Read]) != 0 || len(j.Zones[loadgen.Write]) != 2 {
		t.Errorf("zones %v", j.Zones)
	}
	if want := map[string]string{"random_distribution": "zoned:,50/50:50/50"}; !reflect.DeepEqual(j.Given(), want) {
		t.Errorf("given %v, want %v", j.Given(), want)
	}
}

// The members of our JSON are fio's, at every level, with values of the same types.
func TestReportShape(t *testing.T) {
	b, err := os.ReadFile("testdata/fio-3.33.json")
	if err != nil {
		t.Fatal(err)
	}
	var theirs, ours any
	if err := json.Unmarshal(b, &theirs); err != nil {
		t.Fatal(err)
	}
	jobs, res := results(t, "group_reporting")
	r := NewReport("nvmeinit 1", time.Unix(1795242250, 0), map[string]string{"bs": "4k"})
	r.Add(0, jobs, res, true)
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &ours); err != nil {
		t.Fatal(err)
	}
	sameShape(t, "", theirs, ours)
}

// free holds objects whose members differ from run to run.
var free = []string{"/bins", "/job options", "/global options"}

func sameShape(t *testing.T, path string, theirs, ours any) {
	t.Helper()
	if reflect.TypeOf(theirs) != reflect.TypeOf(ours) {
		t.Errorf("%s: fio has a %T, we a %T", path, theirs, ours)
		return
	}
	switch x := theirs.(type) {
	case []any:
		sameShape(t, path+"/0", x[0], ours.([]any)[0])
	case map[string]any:
		if slices.ContainsFunc(free, func(end string) bool { return strings.HasSuffix(path, end) }) {
			return
		}
		for name, v := range x {
			mine, ok := ours.(map[string]any)[name]
			if !ok {
				t.Errorf("%s/%s: fio has it, we don't", path, name)
				continue
			}
			sameShape(t, path+"/"+name, v, mine)
		}
		for name := range ours.(map[string]any) {
			if _, ok := x[name]; !ok && !strings.HasPrefix(name, "nvmeinit_") {
				t.Errorf("%s/%s: we have it, fio doesn't", path, name)
			}
		}
	}
}
