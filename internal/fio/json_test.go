package fio

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

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
	r.Add(jobs, res, true)
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
	r.Add(jobs, res, false)
	if j = r.Jobs[0]; len(r.Jobs) != 1 || j.Read.TotalIOs != 4000 || j.Read.IOPS != 2000 || j.Read.IOPSMax != 2200 ||
		j.Runtime != 4000 || j.User != 50 || j.Read.BWAgg != 100 {
		t.Errorf("the group: %d ios, %v a second, %d ms, %v%%", j.Read.TotalIOs, j.Read.IOPS, j.Runtime, j.User)
	}
}

// TestReportOfPercentiles: the JSON has the percentiles, and in json+ the bins, of the latencies that a job asks for,
// as fio's.
func TestReportOfPercentiles(t *testing.T) {
	for _, c := range []struct {
		options   []string
		clat, lat bool
	}{
		{nil, true, false},
		{[]string{"lat_percentiles=1"}, true, true},
		{[]string{"lat_percentiles=1", "clat_percentiles=0"}, false, true},
		{[]string{"clat_percentiles=0"}, false, false},
		{[]string{"clat_percentiles=1", "lat_percentiles=0"}, true, false},
	} {
		jobs, res := results(t, append(c.options, "group_reporting")...)
		res.Jobs[0].Syncs = res.Jobs[0].Ops[loadgen.Write]
		r := NewReport("nvmeinit 1", time.Unix(1795242250, 0), nil)
		r.Add(jobs, res, true)
		j := &r.Jobs[0]
		for _, l := range []struct {
			of   string
			lat  Latency
			want bool
		}{
			{"read.clat_ns", j.Read.CLat, c.clat},
			{"read.lat_ns", j.Read.Lat, c.lat},
			{"write.lat_ns", j.Write.Lat, c.lat},
			{"sync.lat_ns", j.Sync.Lat, c.clat || c.lat},
		} {
			if has := len(l.lat.Percentiles) == 17 && len(l.lat.Bins) > 0; has != l.want || !l.want && l.lat.Percentiles != nil {
				t.Errorf("%v: %s has %d percentiles and %d bins", c.options, l.of, len(l.lat.Percentiles), len(l.lat.Bins))
			}
		}
	}
}

// TestDescription: the report says what the description does, as fio's; where there is none it has no such member.
func TestDescription(t *testing.T) {
	for _, text := range []string{"", "two words"} {
		jobs, res := results(t, "group_reporting")
		if text != "" {
			if err := jobs[0].Set("description", text); err != nil {
				t.Fatal(err)
			}
		}
		r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
		r.Add(jobs, res, false)
		b, err := json.Marshal(&r.Jobs[0])
		var line strings.Builder
		if err := errors.Join(err, r.Terse(&line)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"desc":"two words"`) != (text != "") || strings.Contains(string(b), `"desc"`) != (text != "") ||
			strings.HasSuffix(line.String(), ";two words\n") != (text != "") {
			t.Errorf("%q: %s, %s", text, b, line.String())
		}
	}
}

// TestUnified: as in fio, the directions of a job are reported together, in place of each or in addition.
func TestUnified(t *testing.T) {
	for value, want := range map[string]struct {
		members string
		fields  int // of the terse line
	}{
		"none": {"read write trim sync", 121}, "0": {"read write trim sync", 121},
		"mixed": {"mixed", 80}, "1": {"mixed", 80},
		"both": {"read write trim sync mixed", 162}, "2": {"read write trim sync mixed", 162},
	} {
		jobs, res := results(t, "unified_rw_reporting="+value, "group_reporting", "percentile_list=50")
		for i := range res.Jobs {
			res.Jobs[i].Ops[loadgen.Write].Latency.Record(1_000_000)
			res.Jobs[i].Ops[loadgen.Write].IOs++
		}
		r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
		r.Add(jobs, res, true)
		var b bytes.Buffer
		var all struct{ Jobs []map[string]any }
		if err := errors.Join(json.NewEncoder(&b).Encode(r), json.Unmarshal(b.Bytes(), &all)); err != nil {
			t.Fatal(err)
		}
		var members []string
		for _, name := range []string{"read", "write", "trim", "sync", "mixed"} {
			if all.Jobs[0][name] != nil {
				members = append(members, name)
			}
		}
		b.Reset()
		if err := r.Terse(&b); err != nil {
			t.Fatal(err)
		}
		if got, fields := strings.Join(members, " "), strings.Count(b.String(), ";")+1; got != want.members || fields != want.fields {
			t.Errorf("%s: %s, and %d fields, want %s, and %d", value, got, fields, want.members, want.fields)
		}
		if !strings.Contains(want.members, "mixed") {
			continue
		}
		m, read, write := &r.Jobs[0].Mixed, &r.Jobs[0].Read, &r.Jobs[0].Write
		if m.TotalIOs != read.TotalIOs+write.TotalIOs || m.IOBytes != read.IOBytes+write.IOBytes || m.CLat.N != m.TotalIOs || m.CLat.Max < 990_000 ||
			m.IOPSMax != read.IOPSMax+write.IOPSMax || m.BWMin != read.BWMin+write.BWMin || m.BWAgg != 100 || len(m.CLat.Percentiles) != 1 || len(m.CLat.Bins) == 0 {
			t.Errorf("%s: %+v of reads %+v and writes %+v", value, m, read, write)
		}
	}
}

// TestReportOfJobs: each job reports what its own clones did, in each direction, with the percentiles that it wants.
func TestReportOfJobs(t *testing.T) {
	first, res := results(t)
	second, more := results(t, "latency_percentile=99.5", "percentile_list=50")
	last := &more.Jobs[1]
	last.Ops[loadgen.Trim].IOs, last.Ops[loadgen.Trim].Bytes = 500, 500<<12
	last.Ops[loadgen.Trim].Latency.Record(100)
	last.Syncs.Latency.Record(20)
	last.Points = nil
	for _, ios := range []uint64{400, 300, 200} {
		half := loadgen.Point{Length: 500 * time.Millisecond, IOs: [3]uint64{ios, 0, ios}, Bytes: [3]uint64{ios << 12, 0, ios << 12}}
		last.Points = append(last.Points, half)
	}
	res.Jobs = append(res.Jobs, more.Jobs...)
	r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
	r.Add(append(first, second...), res, true)

	j := &r.Jobs[3]
	if j.Trim.TotalIOs != 500 || j.Trim.BWAgg != 100 || r.Jobs[0].Trim.TotalIOs != 0 || r.Jobs[0].Trim.BWAgg != 0 {
		t.Errorf("trims: %+v; those of another job: %+v", j.Trim, r.Jobs[0].Trim)
	}
	if s := j.Read; s.IOPSMin != 400 || s.IOPSMax != 800 || s.IOPSMean != 600 || math.Abs(s.IOPSStdDev-200) > 1e-9 || s.IOPSSamples != 3 ||
		s.BWMin != 1600 || s.BWMax != 3200 || s.BWMean != 2400 || math.Abs(s.BWDev-800) > 1e-9 || s.BWSamples != 3 {
		t.Errorf("in the course of it: %+v", s)
	}
	if l := j.Sync.Lat; j.Sync.TotalIOs != 1 || !slices.Equal(l.Percentiles, levels{{"50.000000", 20}}) || !slices.Equal(l.Bins, levels{{"20", 1}}) {
		t.Errorf("flushes: %+v", j.Sync)
	}
	if j.Error != 0 || j.LatShare != 99.5 || r.Jobs[0].LatShare != 100 {
		t.Errorf("error %d, shares of latencies %v and %v", j.Error, j.LatShare, r.Jobs[0].LatShare)
	}
	if want := (levels{{"1", 75}, {"2", 0}, {"4", 25}, {"8", 0}, {"16", 0}, {"32", 0}, {">=64", 0}}); !slices.Equal(j.Level, want) {
		t.Errorf("depths %v, want %v", j.Level, want)
	}
}

// TestEmptyReport: a job that did nothing before it was ended, or ended before it was first looked at, has figures of 0,
// which JSON can say.
func TestEmptyReport(t *testing.T) {
	jobs, res := results(t)
	res.Jobs[0] = loadgen.JobResult{Spec: &jobs[0].Spec}
	res.Jobs[1].Points, res.Jobs[1].Duration = nil, 10*time.Microsecond
	r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
	r.Add(jobs, res, true)
	if r.Jobs[1].Read.Runtime != 1 {
		t.Errorf("a runtime of %d ms, which rates would be divided by", r.Jobs[1].Read.Runtime)
	}
	if _, err := json.Marshal(r); err != nil || r.Jobs[0].Submit[1].value != 0 || r.Jobs[0].Complete[1].value != 0 {
		t.Errorf("%v, submitted %v, completed %v", err, r.Jobs[0].Submit, r.Jobs[0].Complete)
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

// TestElapsed: each job reports how long all of them took, including jobs that ran before others, and the time of the
// report is when they had ended; both as in fio.
func TestElapsed(t *testing.T) {
	began := time.Unix(1795242250, 0)
	r := NewReport("nvmeinit 1", began, nil)
	for range 2 {
		jobs, res := results(t, "group_reporting")
		r.Add(jobs, res, false)
	}
	ended := began.Add(2100 * time.Millisecond)
	r.End(ended)
	if r.Timestamp != ended.Unix() || r.Millis != ended.UnixMilli() || r.Time != ended.Format(time.ANSIC) {
		t.Errorf("the report is of %d, %d, %s; want the time of the end, %s", r.Timestamp, r.Millis, r.Time, ended.Format(time.ANSIC))
	}
	if r.Jobs[0].Elapsed != 3 || r.Jobs[1].Elapsed != 3 {
		t.Errorf("%d s and %d s of 2.1 s have elapsed, want them rounded up", r.Jobs[0].Elapsed, r.Jobs[1].Elapsed)
	}
}

// TestGroups: a run is a group, as is what follows a job with new_group, clones included; shares of bandwidth are those
// of the group. groupid is what fio 3.33 reports for the same job file.
func TestGroups(t *testing.T) {
	r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
	for _, run := range [][]string{{"new_group=1", "new_group=0", "new_group=1"}, {"group_reporting", "group_reporting"}} {
		all, sum := []*Job(nil), &loadgen.Result{}
		for _, option := range run {
			jobs, res := results(t, option)
			all, sum.Jobs = append(all, jobs...), append(sum.Jobs, res.Jobs...)
		}
		r.Add(all, sum, false)
	}
	var groups []int
	for _, j := range r.Jobs {
		groups = append(groups, j.GroupID)
	}
	if want := []int{0, 0, 0, 0, 1, 1, 2, 2}; !slices.Equal(groups, want) {
		t.Errorf("groups %v, want %v", groups, want)
	}
	if a, b := r.Jobs[0].Read.BWAgg, r.Jobs[4].Read.BWAgg; a != 25 || b != 50 {
		t.Errorf("a clone has %v%% and %v%% of the bandwidth of its group, want 25%% and 50%%", a, b)
	}
}

// TestShortJob: the bandwidth of a group is what its jobs moved in the time of the one that took longest, so that of
// jobs with the same rate one that ends early has the same share of it, as with fio 3.33.
func TestShortJob(t *testing.T) {
	jobs, res := results(t)
	for i, mib := range []uint64{10, 30} {
		r := &res.Jobs[i]
		r.Ops[loadgen.Read].Bytes = mib << 20
		r.Duration = time.Duration(mib/10) * time.Second
		r.Points = slices.Repeat([]loadgen.Point{{Length: time.Second, IOs: [3]uint64{2560}, Bytes: [3]uint64{10 << 20}}}, int(mib/10))
	}
	r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
	r.Add(jobs, res, false)
	for i := range r.Jobs {
		if got := r.Jobs[i].Read.BWAgg; math.Abs(got-75) > 0.1 {
			t.Errorf("job %d has %v%% of the bandwidth of its group, want 75%%", i, got)
		}
	}
}

// TestErrno: fio's error for wrong data differs from that of a failing device.
func TestErrno(t *testing.T) {
	for err, want := range map[error]int{errors.New("any"): 5, error(&loadgen.VerifyError{}): 84, error(&loadgen.LatencyError{}): 110} {
		jobs, res := results(t, "group_reporting")
		res.Jobs[1].Errors, res.Jobs[1].Err = 1, err
		r := NewReport("nvmeinit 1", time.Unix(0, 0), nil)
		if r.Add(jobs, res, false); r.Jobs[0].Error != want {
			t.Errorf("%v is error %d, want %d", err, r.Jobs[0].Error, want)
		}
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
	r.Add(jobs, res, true)
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
