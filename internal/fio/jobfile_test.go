package fio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

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

// TestGlobalSections: as in fio, any section is global whose name begins so, in small letters.
func TestGlobalSections(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[globals]\nbs=8k\n[Global]\n[a]\n[global-of-others]\nbs=16k\n[b]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, j := range f.Jobs {
		jobs = append(jobs, fmt.Sprint(j.Name, " ", j.BS[0][0].Bytes))
	}
	if want := []string{"Global 8192", "a 8192", "b 16384"}; !slices.Equal(jobs, want) || f.Global["bs"] != "16k" {
		t.Errorf("jobs %v, want %v; global %v", jobs, want, f.Global)
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
	for _, line := range []string{"hipri", "fixedbufs=1", "max-jobs=4", "alloc-size=1024", "warnings-fatal", "unit_base=8", "gtod_reduce=1", "rate_ignore_thinktime=0",
		"verify_dump=1", "buffered=0", "disable_lat=1", "disable_slat=1", "fadvise_hint=0", "log_entries=32768",
		"iodepth_batch=1", "iodepth_batch_submit=64", "iodepth_batch_complete_max=64", "directory=/mnt", "mem=mmaphuge", "userspace_reap", "random_generator=lfsr"} {
		if f, err := Parse("x.fio", strings.NewReader("[a]\n"+line)); err != nil || f.Idle.Notice() == "" || len(f.Jobs[0].Given()) != 0 {
			t.Errorf("%s: %v, %q", line, err, f.Idle.Notice())
		}
	}
	for name, only := range idle {
		if only != "" && foreign[name] == "" {
			t.Errorf("%s=%s is accepted, and of other values the error would be that there is no such option", name, only)
		}
	}
	if f, err = Parse("x.fio", strings.NewReader("[a]\nfilename=x\n[b]\nfilename=x\n")); err != nil || f.Idle.Notice() != "without effect here: filename" {
		t.Errorf("%v, %q where two jobs name the same file", err, f.Idle.Notice())
	}
	if f, err = Parse("x.fio", strings.NewReader("[a]\nbs=4k\n")); err != nil || f.Idle.Notice() != "" {
		t.Errorf("%v, %q where every option has an effect", err, f.Idle.Notice())
	}
}

// TestJobFileText: trailing comments and environment variables work as in fio's job files.
func TestJobFileText(t *testing.T) {
	t.Setenv("BENCH_TEST_BS", "16k")
	t.Setenv("BENCH_TEST_NONE", "")
	f, err := Parse("x.fio", strings.NewReader("  ; first\n[a] ; a job\n\tbs = ${BENCH_TEST_BS},1${BENCH_TEST_NONE}m # both\nname\t= ${BENCH_TEST_BS}-${BENCH_TEST_BS}\ntime_based;yes\nruntime=1#s\n"))
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
	f, err := Parse("x.fio", strings.NewReader("[a]\nnumjobs=$ncpus\nbs=$pagesize\nsize=$mb_memory\nruntime=$ncpusm\n[b]\nnumjobs=2*$ncpus\niodepth=($ncpus+1)*2\nname=of$ncpus-$else\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b, cpus := f.Jobs[0], f.Jobs[1], runtime.NumCPU()
	if a.NumJobs != cpus || a.BS[0][0].Bytes != os.Getpagesize() || a.Given()["numjobs"] != strconv.Itoa(cpus) ||
		a.Runtime != time.Duration(cpus)*time.Minute {
		t.Errorf("a: %d jobs of %d bytes, said as %v", a.NumJobs, a.BS[0][0].Bytes, a.Given())
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	if _, err := fmt.Sscanf(string(memory), "MemTotal: %d kB", &kib); err != nil || a.Size != kib>>10 {
		t.Errorf("%v, %d MiB of memory, want %d", err, a.Size, kib>>10)
	}
	if b.NumJobs != 2*cpus || b.IODepth != 2*(cpus+1) || b.Name != fmt.Sprintf("of%d-$else", cpus) {
		t.Errorf("b: %d jobs, depth %d, %q", b.NumJobs, b.IODepth, b.Name)
	}
}

func TestParseErrors(t *testing.T) {
	for text, says := range map[string]string{
		"[a]\nbs=${BENCH_TEST_MISSING}4k\n":     "x.fio:2: ${BENCH_TEST_MISSING}: the environment has no BENCH_TEST_MISSING",
		"[a]\nbs=${HOME\n":                      "x.fio:2: bs=${HOME: want a name in braces",
		"[a]\ninclude b.fio\n":                  "x.fio:2: include: job files can't include others",
		"include b.fio\n[a]\n":                  "x.fio:1: include: job files can't include others",
		"[a]\nrw=read\nnonsense=3\n":            `x.fio:3: there is no option "nonsense"`,
		"[a]\npre_read=1\n":                     "x.fio:2: pre_read: nvmeinit reaches the namespace by itself",
		"[a]\nwrite_hist_log=x\n":               "x.fio:2: write_hist_log: write_bw_log, write_iops_log and write_lat_log have",
		"[a]\ncpus_allowed=0-3\n":               "x.fio:2: cpus_allowed: taskset or numactl",
		"[a]\nslat_percentiles=1\n":             "x.fio:2: slat_percentiles: an operation is submitted at once",
		"[a]\nverify_state_save=1\n":            "x.fio:2: verify_state_save: verify reads everything back",
		"[a]\nunit_base=1\n":                    "x.fio:2: unit_base: bandwidths are in bytes a second",
		"[a]\nrate_ignore_thinktime\n":          "x.fio:2: rate_ignore_thinktime: what becomes due in a rest",
		"[a]\nclocksource=cpu\n":                "x.fio:2: clocksource: all times are those of one monotonic clock",
		"[a]\niodepth_batch_complete_min=8\n":   "x.fio:2: iodepth_batch_complete_min: an operation begins",
		"[a]\nlatency_run=1\n":                  "x.fio:2: latency_run: latency_target finds",
		"[a]\nzonemode=zbd\n":                   "x.fio:2: zonemode: the namespace has no zones; jobs with an offset",
		"[a]\nexitall_on_error=0\n":             "x.fio:2: exitall_on_error: the first operation that fails",
		"[a]\nprioclass=1\n":                    "x.fio:2: prioclass: all commands are equal",
		"[a]\nmd_per_io_size=8\n":               "x.fio:2: md_per_io_size: data have no metadata",
		"[a]\nratemin=1m\n":                     "x.fio:2: ratemin: a rate here is kept",
		"[a]\ndedupe_mode=working_set\n":        "x.fio:2: dedupe_mode: what is written is random",
		"[a]\nread_iolog=x\n":                   "x.fio:2: read_iolog: traces aren't replayed",
		"[a]\nfoo=1\nbs=4kk\n":                  "x.fio:3: bs=4kk: want a size",
		"[a]\ndirect=0\n":                       "x.fio:2: direct: commands go to the namespace past every cache",
		"[a]\nfilename=a\n[b]\nfilename=b\n":    "x.fio:4: filename=b, and a in line 2: all jobs run on one namespace",
		"[a]\nbs=4kk\n":                         "x.fio:2: bs=4kk: want a size",
		"rw=read\n":                             `x.fio:1: "rw=read": want a section first`,
		"[a\n":                                  "x.fio:1: [a: want a section",
		"[a\x1b[2J]\n":                          `x.fio:1: "[a\x1b[2J]": want no control characters`,
		"[\u009b2J\n":                           `x.fio:1: "[\u009b2J": want no control characters`,
		"[a]\nname=\u202eb\n":                   `x.fio:2: "name=\u202eb": want no control characters`,
		"[]\n":                                  "want a section",
		"":                                      "x.fio:1: no job",
		"[global]\nrw=read\n":                   "x.fio:2: no job",
		"[a]\niodepth\n":                        "x.fio:2: iodepth: want a value, as iodepth=32",
		"[a]\nrw=" + strings.Repeat("r", 1<<17): "x.fio:2: the line is longer than 65536 bytes",
	} {
		_, err := Parse("x.fio", strings.NewReader(text))
		var se *SyntaxError
		if !errors.As(err, &se) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want it to say %q", text, err, says)
		}
	}
	if _, err := Parse("x.fio", io.MultiReader(strings.NewReader("[a]\n"), iotest.ErrReader(os.ErrDeadlineExceeded))); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v of a file that can't be read", err)
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
				_ = j.Fit(1<<30, 512) // must not panic
			}
		}
	})
}
