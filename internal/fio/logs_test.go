package fio

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

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
			Latency: [3]time.Duration{100 * 81 * time.Microsecond, 50 * 17 * time.Microsecond},
			Longest: [3]time.Duration{3 * time.Millisecond, 2 * time.Millisecond}},
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
	r.Began = time.UnixMilli(1795242250123)
	for _, s := range []setting{{"log_unix_epoch", "1"}, {"log_max_value", "1"}} {
		if err := j.Set(s.name, s.value); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range map[int]string{0: "1795242250623, 800, 0, 0, 0\n", 2: "1795242250623, 3000000, 0, 0, 0\n1795242250623, 2000000, 1, 0, 0\n"} {
		var b strings.Builder
		if err := j.LogsOf(1)[i].Write(&b, r); err != nil || !strings.HasPrefix(b.String(), want) {
			t.Errorf("since 1970, and with the longest, %s has %v\n%s", j.LogsOf(1)[i].Path, err, b.String())
		}
	}
	if err := j.LogsOf(1)[0].Write(full{}, r); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v of a log for which there is no room", err)
	}
	if err := j.Set("per_job_logs", "0"); err != nil || j.LogsOf(1)[0].Path != "a_bw.log" {
		t.Errorf("%v, %+v", err, j.LogsOf(1))
	}
	if Specs([]*Job{j})[0].LogEach {
		t.Error("each operation is kept for logs of intervals")
	}
}

// full is a file on a file system without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

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
		{{End: 2 * time.Millisecond, Latency: 0, Offset: 0, Length: 512, Op: loadgen.Write},
			{End: 3 * time.Millisecond, Latency: time.Millisecond, Offset: 0, Length: 10 << 40, Op: loadgen.Trim}},
	}}
	lat := "1, 61973, 0, 4096, 0\n2, 0, 1, 512, 0\n3, 1000000, 2, 10995116277760, 0\n"
	want := map[string]string{
		"a_bw.1.log":   "1, 66093, 0, 4096, 0\n2, 512000000, 1, 512, 0\n3, 10995116277760, 2, 10995116277760, 0\n",
		"a_iops.1.log": "1, 1, 0, 4096, 0\n2, 1, 1, 512, 0\n3, 1, 2, 10995116277760, 0\n",
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
	if got, want := write(j.LogsOf(0)[1]), "1, 1, 0, 4096, 8192, 0\n2, 1, 1, 512, 0, 0\n3, 1, 2, 10995116277760, 0, 0\n"; got != want {
		t.Errorf("with offsets it is\n%swant\n%s", got, want)
	}
}
