package fio

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Every option's example can be set, and changes a job that doesn't have it, which its default doesn't; a value that
// means nothing is refused.
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
			if o.Default != "" && o.Name != "latency_percentile" && o.Name != "random_distribution" { // which 0 and "" stand for
				if d := NewJob("bench"); d.Set(name, o.Default) != nil || !reflect.DeepEqual(d.Spec, NewJob("bench").Spec) {
					t.Errorf("%s=%s, the default, makes a job %+v", name, o.Default, d.Spec)
				}
			}
			if j.given = nil; value != o.Default && reflect.DeepEqual(j, NewJob("test")) {
				t.Errorf("%s=%s changes nothing", name, value)
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
		if j := NewJob("test"); o.Type != "name" && o.Type != "text" && o.Type != "prefix" && errors.Join(j.Set(o.Name, "nonsense"), j.Check()) == nil {
			t.Errorf("%s=nonsense is accepted", o.Name)
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
		{"rw", "randread:8", func(j *Job) bool { return j.RW == "randread" && j.RunLength == 8 && j.Skip == 0 }},
		{"readwrite", "write:4k", func(j *Job) bool { return j.RW == "write" && j.RunLength == 0 && j.Skip == 4096 }},
		{"rw", "rw:(2*4k)", func(j *Job) bool { return j.RW == "rw" && j.Skip == 8192 }},
		{"rw", "read:-8k", func(j *Job) bool { return j.RW == "read" && j.Skip == -8192 && j.Given()["rw"] == "read:-8k" }},
		{"sync", "1", func(j *Job) bool { return j.Sync }},
		{"sync", "dsync", func(j *Job) bool { return j.Sync }},
		{"sync", "none", func(j *Job) bool { return !j.Sync }},
		{"end_fsync", "1", func(j *Job) bool { return Specs([]*Job{j})[0].EndFsync }},
		{"fdatasync", "32", func(j *Job) bool { return j.Fdatasync == 32 && j.Given()["fdatasync"] == "32" }},
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
		{"randseed", "0x7", func(j *Job) bool { return j.Seed == 7 }},
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
		{"bsrange", "4k:64k", func(j *Job) bool { return reflect.DeepEqual(j.BS[1], loadgen.Range(4096, 65536)) }},
		{"bsrange", "(8k-4k)-64k", func(j *Job) bool { return reflect.DeepEqual(j.BS[0], loadgen.Range(4096, 65536)) }},
		{"blocksize_range", "4k-8k,(2*4k)-(128k-4k)", func(j *Job) bool {
			return reflect.DeepEqual(j.BS[0], loadgen.Range(4096, 8192)) && reflect.DeepEqual(j.BS[2], loadgen.Range(8192, 124<<10))
		}},
		{"size", "20%", func(j *Job) bool { return j.SizePercent == 20 && j.Size == 0 }},
		{"offset", "50%", func(j *Job) bool { return j.OffsetPercent == 50 && j.Offset == 0 }},
		{"offset", "0%", func(j *Job) bool { return j.OffsetPercent == 0 && j.Offset == 0 }},
		{"offset", "99%", func(j *Job) bool { return j.OffsetPercent == 99 }},
		{"size", "100%", func(j *Job) bool { return j.SizePercent == 100 }},
		{"offset", "1m", func(j *Job) bool { return j.Offset == 1<<20 && j.OffsetPercent == 0 }},
		{"size", "1g", func(j *Job) bool { return j.Size == 1<<30 }},
		{"runtime", "10", func(j *Job) bool { return j.Runtime == 10*time.Second }},
		{"runtime", "500ms", func(j *Job) bool { return j.Runtime == 500*time.Millisecond }},
		{"runtime", "2m", func(j *Job) bool { return j.Runtime == 2*time.Minute }},
		{"runtime", "500msec", func(j *Job) bool { return j.Runtime == 500*time.Millisecond }},
		{"runtime", "2sec", func(j *Job) bool { return j.Runtime == 2*time.Second }},
		{"thinktime", "10usec", func(j *Job) bool { return j.ThinkTime == 10*time.Microsecond }},
		{"runtime", "1d", func(j *Job) bool { return j.Runtime == 24*time.Hour }},
		{"runtime", "1S", func(j *Job) bool { return j.Runtime == time.Second }},
		{"runtime", "1H", func(j *Job) bool { return j.Runtime == time.Hour }},
		{"runtime", "2M", func(j *Job) bool { return j.Runtime == 2*time.Minute }},
		{"thinktime", "10MSec", func(j *Job) bool { return j.ThinkTime == 10*time.Millisecond }},
		{"runtime", "10d", func(j *Job) bool { return j.Runtime == 240*time.Hour }},
		{"startdelay", "2", func(j *Job) bool { return j.Delay == 2*time.Second }},
		{"thinktime", "2500", func(j *Job) bool { return j.ThinkTime == 2500*time.Microsecond }},
		{"thinktime", "10ms", func(j *Job) bool { return j.ThinkTime == 10*time.Millisecond }},
		{"do_verify", "0", func(j *Job) bool { return j.Unread }},
		{"do_verify", "1", func(j *Job) bool { return !j.Unread }},
		{"do_verify", "", func(j *Job) bool { return !j.Unread }},
		{"verify_backlog", "1k", func(j *Job) bool { return Specs([]*Job{j})[0].Backlog == 1024 }},
		{"verify_backlog_batch", "16", func(j *Job) bool { return j.BacklogBatch == 16 }},
		{"thinktime_blocks_type", "complete", func(j *Job) bool { return !j.ThinkIssued }},
		{"thinktime_blocks_type", "issue", func(j *Job) bool { return j.ThinkIssued }},
		{"thinktime_spin", "500", func(j *Job) bool { return j.ThinkSpin == 500*time.Microsecond }},
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
		{"blockalign", "8k", func(j *Job) bool { return reflect.DeepEqual(j.Given(), map[string]string{"ba": "8k"}) }}, // as fio 3.33's JSON
		{"random_distribution", "zoned_abs:60/1g:40/9g,100/1g", func(j *Job) bool {
			return j.Zones[0][1] == loadgen.Zone{Percent: 40, Bytes: 9 << 30} && j.Zones[1][0] == loadgen.Zone{Percent: 100, Bytes: 1 << 30}
		}},
		{"latency_target", "500", func(j *Job) bool { return j.LatencyTarget == 500*time.Microsecond }},
		{"max_latency", "500,2ms", func(j *Job) bool {
			return j.MaxLatency == [loadgen.Directions]time.Duration{500 * time.Microsecond, 2 * time.Millisecond, 2 * time.Millisecond}
		}},
		{"latency_target", "2ms", func(j *Job) bool { return j.LatencyTarget == 2*time.Millisecond }},
		{"latency_window", "5000000", func(j *Job) bool { return j.LatencyWindow == 5*time.Second }},
		{"latency_percentile", "100", func(j *Job) bool { return j.LatencyPercentile == 100 }},
		{"latency_percentile", "99.9", func(j *Job) bool { return j.LatencyPercentile == 99.9 }},
		{"write_bw_log", "x", func(j *Job) bool { return j.Logged() == "write_bw_log" && j.LogsOf(2)[0].Path == "x_bw.3.log" }},
		{"write_lat_log", "", func(j *Job) bool { return j.LogsOf(0)[1].Path == "test_lat.1.log" }},
		{"log_avg_msec", "1k", func(j *Job) bool { return j.LogEvery == 1024*time.Millisecond }},
		{"log_avg_msec", "3600000", func(j *Job) bool { return j.LogEvery == time.Hour }},
		{"log_offset", "", func(j *Job) bool { return j.Logs.offsets }},
		{"refill_buffers", "", func(j *Job) bool { return j.Refill }},
		{"exitall", "", func(j *Job) bool { return Specs([]*Job{j})[0].Exit == loadgen.ExitGroup }},
		{"exit_what", "stonewall", func(j *Job) bool { return Specs([]*Job{j})[0].Exit == loadgen.ExitNone }},
		{"zero_buffers", "", func(j *Job) bool { return j.Zeroes }},
		{"zero_buffers", "0", func(j *Job) bool { return !j.Zeroes }},
		{"refill_buffers", "0", func(j *Job) bool { return !j.Refill }},
		{"percentage_random", "80", func(j *Job) bool { return j.Sequential == [3]int{20, 20, 20} }},
		{"percentage_random", "100,0", func(j *Job) bool { return j.Sequential == [3]int{0, 100, 100} }},
		{"verify", "crc32c", func(j *Job) bool { return j.Verify }},
		{"verify", "0", func(j *Job) bool { return !j.Verify }},
		{"percentile_list", "50:99.9", func(j *Job) bool { return slices.Equal(j.Percentiles, []float64{50, 99.9}) }},
		{"percentile_list", "100:0", func(j *Job) bool { return slices.Equal(j.Percentiles, []float64{0, 100}) }},
		{"percentile_list", "1" + strings.Repeat(":1", 19), func(j *Job) bool { return slices.Equal(j.Percentiles, []float64{1}) }},
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
		{"rw", "randread:0", "at least 1 operation, as randread:8"},
		{"rw", "randread:-1", "a number"},
		{"rw", "read:", "a size"},
		{"rw", "read:--4k", "a size"},
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
		{"bs", "(1-2)", "(1-2) is -1: want at least 0"},
		{"bs", "(-x)", "a size"},
		{"bs", "(x^2)", "a size"},
		{"bs", "(2^-1)", "too large"},
		{"bs", "(2^(2^64+1))", "too large"},
		{"bs", "(2^64)", "too large"},
		{"bs", "(9^9^9^9)", "too large"},
		{"size", "(1/0)", "division by zero"},
		{"size", "(1%0)", "division by zero"},
		{"size", strings.Repeat("(", 1000) + "1", "too many parentheses"},
		{"runtime", "(9000000000000s)", "positive"},
		{"runtime", "(10^16)", "positive"},
		{"io_size", "101%", "1% to 100%"},
		{"bssplit", "4k/50:8k/60", "110 percent"},
		{"bssplit", "4k/50:8k/40", "90 percent"},
		{"bssplit", "4k/50:8k/49", "99 percent"},
		{"bssplit", "4k/-10:8k/110", `"-10" is no share`},
		{"bssplit", "4k/101:8k", `"101" is no share`},
		{"bssplit", "4kk/50:8k/50", "a size"},
		{"bssplit", "4k/x", `"x" is no share`},
		{"bs", "4k-64k", "bsrange takes a range"},
		{"bsrange", "4k", "two sizes, as 4k-64k"},
		{"bsrange", "4k-64x", "two sizes, as 4k-64k"},
		{"bsrange", "4x-64k", "two sizes, as 4k-64k"},
		{"bsrange", "64k-4k", "the smaller size first"},
		{"bsrange", "0-4k", "the smaller size first"},
		{"rwmixwrite", "101", "100 percent"},
		{"iodepth", "many", "a number"},
		{"size", "120%", "1% to 100%"},
		{"size", "0%", "1% to 100%"},
		{"size", "x%", "1% to 100%"},
		{"offset", "100%", "0% to 99%"},
		{"offset", "x%", "0% to 99%"},
		{"latency_percentile", "0", "more than 0 and at most 100"},
		{"latency_percentile", "101", "more than 0 and at most 100"},
		{"latency_percentile", "NaN", "more than 0 and at most 100"},
		{"sync", "2", "0 or 1"},
		{"runtime", "-1", "positive"},
		{"runtime", "2562047h47m16s", "positive"},
		{"runtime", "(9223372036854775)", "positive"},
		{"runtime", "-1s", "positive"},
		{"runtime", "NaN", "positive"},
		{"runtime", "1e300", "positive"},
		{"startdelay", "1-5", "positive"},
		{"runtime", "sec", "positive"},
		{"runtime", "5mmsec", "positive"},
		{"thinktime", "-1", "positive"},
		{"thinktime_blocks", "x", "a number"},
		{"thinktime_blocks_type", "end", "want complete or issue"},
		{"thinktime_spin", "-1", "positive"},
		{"rate_process", "even", "linear or poisson"},
		{"random_distribution", "zipf:much", "a number"},
		{"random_distribution", "normal", "as normal:20"},
		{"random_distribution", "zoned", "as zoned:60/10:40/90"},
		{"random_distribution", "zoned:60/10:40/x", `"40/x" is no zone`},
		{"random_distribution", "zoned:60/-1:40/90", `"60/-1" is no zone`},
		{"random_distribution", "zoned_abs:60/10:-1/4k", `"-1/4k" is no zone`},
		{"random_distribution", "zoned_abs:60/1g:40", `"40" is no zone`},
		{"blockalign", "x", "a size"},
		{"buffer_compress_chunk", "x", "a size"},
		{"write_bw_log", "--log_avg_msec", "what the names of the files are to begin with"},
		{"log_avg_msec", "1s", "a number"},
		{"percentage_random", "101", "0 to 100 percent"},
		{"percentage_random", "x", "a number"},
		{"log_avg_msec", "3600001", "at most an hour"},
		{"per_job_logs", "some", "1 or 0"},
		{"verify", "md5", "crc32c"},
		{"percentile_list", "-1:50", `"-1" is no percentile`},
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

// TestOffsetIncrement: each clone has an offset of its own, and draws for itself; it is an error if the last has none.
func TestOffsetIncrement(t *testing.T) {
	for options, want := range map[string]string{
		"offset_increment=1m":                     "[{1 0 0 5} {1 1048576 0 6} {1 2097152 0 7}]",
		"offset_increment=1m\noffset=4k\nsize=1m": "[{1 4096 0 5} {1 1052672 0 6} {1 2101248 0 7}]",
		"offset_increment=25%\noffset=25%":        "[{1 0 25 5} {1 0 50 6} {1 0 75 7}]",
		"offset_increment=0":                      "[{3 0 0 5}]",
		"offset_increment=25%\noffset=50%":        "offset=100%: want less than 100%",
		"offset_increment=1m\noffset=50%":         "offset_increment and offset: want both in bytes",
		"offset_increment=1m\nsize=3m":            "size=3.0 MiB: the namespace has 2.0 MiB from offset 2.0 MiB on",
		"offset_increment=2m":                     "offset=4.0 MiB: want a multiple of 512 inside the namespace",
		"offset_increment=4e":                     "no namespace has room for 3 of those",
	} {
		f, err := Parse("x.fio", strings.NewReader("[a]\nnumjobs=3\n"+options+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		j := f.Jobs[0]
		j.Number = 5
		var got string
		if err := errors.Join(j.Check(), j.Fit(4<<20, 512)); err != nil {
			got = err.Error()
		} else {
			type clone struct {
				jobs    int
				offset  int64
				percent int
				number  int
			}
			var all []clone
			for _, s := range Specs(f.Jobs) {
				all = append(all, clone{s.NumJobs, s.Offset, s.OffsetPercent, s.Number})
			}
			got = fmt.Sprint(all)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", options, got, want)
		}
	}
}

// TestExitAll: exit_what says which jobs exitall ends; those behind a stonewall don't begin with all.
func TestExitAll(t *testing.T) {
	for what, want := range map[string]string{
		"group": "[{1 0} {0 0} {0 1}] 2", "stonewall": "[{2 0} {0 0} {0 1}] 2", "all": "[{2 0} {0 0} {0 1}] 1",
	} {
		f, err := Parse("x.fio", strings.NewReader("[a]\nexitall\nexit_what="+what+"\n[b]\n[c]\nnew_group\n[d]\nstonewall\n"))
		if err != nil {
			t.Fatal(err)
		}
		type exit struct {
			kind  loadgen.Exit
			group int
		}
		var got []exit
		phases := Phases(f.Jobs)
		for _, s := range Specs(phases[0]) {
			got = append(got, exit{s.Exit, s.Group})
		}
		if text := fmt.Sprint(got, len(phases)); text != want {
			t.Errorf("%s: %s, want %s", what, text, want)
		}
	}
}

// TestFsyncAndFdatasync: fio counts writes for each of the two, so neither replaces the other, not even one of
// [global].
func TestFsyncAndFdatasync(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[global]\nfdatasync=1\n[both]\nfsync=32\n[other]\nfdatasync=0\nfsync=32\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]int{{32, 1}, {32, 0}} {
		j := f.Jobs[i]
		if err := j.Check(); err != nil || j.Fsync != want[0] || j.Fdatasync != want[1] {
			t.Errorf("%s: %v, flush after %d and %d writes, want %v", j.Name, err, j.Fsync, j.Fdatasync, want)
		}
	}
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
	if err := errors.Join(j.Set("rw", "randread:8"), j.Set("rw", "read:4k"), j.Set("rw", "rw")); err != nil || j.RunLength != 0 || j.Skip != 0 {
		t.Errorf("%v, %+v after rw=rw", err, j.Spec)
	}
	if want := map[string]string{"random_distribution": "zoned:,50/50:50/50", "rw": "rw"}; !reflect.DeepEqual(j.Given(), want) {
		t.Errorf("given %v, want %v", j.Given(), want)
	}
}

// TestTurnedOff: a job after [global] can take back what that requests. fio's JSON lists a flag as it was given.
func TestTurnedOff(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[global]\nsync=1\nverify=crc32c\ntime_based=true\nrandom_distribution=zipf:1.2\n"+
		"[a]\nsync=0\nverify=none\ntime_based=0\nrandom_distribution=random\n[b]\nrandom_distribution=zoned:60/10:40/90\n[c]\nrandom_distribution=zoned_abs:1/1m\n"))
	if err != nil {
		t.Fatal(err)
	}
	if j := f.Jobs[0]; j.Sync || j.Verify || j.TimeBased || j.Distribution.Kind != "random" || j.Given()["time_based"] != "0" || f.Global["time_based"] != "1" {
		t.Errorf("a: %+v, of which %v was given after %v", j.Spec, j.Given(), f.Global)
	}
	for _, j := range f.Jobs[1:] {
		if !j.Sync || !j.Verify || !j.TimeBased || j.Distribution != (loadgen.Distribution{Kind: loadgen.Zoned}) {
			t.Errorf("%s: %+v", j.Name, j.Spec)
		}
	}
}

// TestSeed: a randseed counts wherever it is given, as in fio, and a job after [global] can ask for a randseed that
// repeats again.
func TestSeed(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[global]\nrandrepeat=0\n[any]\n[repeated]\nrandrepeat=1\n[given]\nrandseed=7\n"+
		"[given before]\nrandseed=8\nrandrepeat=0\n[given before 1]\nrandseed=9\nrandrepeat=1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{0, NewJob("").Seed, 7, 8, 9} {
		if j := f.Jobs[i]; i > 0 && j.Seed != want || i == 0 && j.Seed < 10 {
			t.Errorf("%s: seed %d, want %d", j.Name, j.Seed, want)
		}
	}
}

// TestClone: of what a copy is given nothing shows in another copy.
func TestClone(t *testing.T) {
	j := NewJob("test")
	for _, option := range []string{"iodepth", "numjobs", "loops"} { // more room than settings, so that copies could share it
		if err := j.Set(option, "2"); err != nil {
			t.Fatal(err)
		}
	}
	a, b := j.Clone(), j.Clone()
	if err := errors.Join(a.Set("bs", "8k"), b.Set("rw", "write")); err != nil {
		t.Fatal(err)
	}
	if a.Given()["bs"] != "8k" || a.Given()["rw"] != "" {
		t.Errorf("one was given %v, the other %v", a.Given(), b.Given())
	}
}

// TestApplyRepeated: of an option that a command line has several times, with values for different directions, each
// applies, with a job file as without one.
func TestApplyRepeated(t *testing.T) {
	line, j := NewJob("bench"), NewJob("test")
	if err := errors.Join(line.Set("bs", "8k"), line.Set("rate", "1m,"), line.Set("bs", ",16k,"), line.Set("rate", ",2m,"), j.Apply(line)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(j.BS, line.BS) || j.Rate != line.Rate {
		t.Errorf("sizes %v, rates %v; without a job file %v, %v", j.BS, j.Rate, line.BS, line.Rate)
	}
}

func TestExpressions(t *testing.T) {
	for text, want := range map[string]int64{
		strings.Repeat("1+", 200) + "1": 201, "1+2*3": 7, "(1+2)*3": 9, "8/2/2": 2, "7-2-1": 4, "7%4": 3, "7/2": 3, "2^3^2": 512, "2*-3": -6,
		" ( 1 + 1 ) * 4k ": 8192, "0x10+1": 17, "2^0": 1, "1^2000": 1,
	} {
		if n, err := evaluate(text, parseNumber); err != nil || n != want {
			t.Errorf("%s is %d, %v, want %d", text, n, err, want)
		}
	}
}
