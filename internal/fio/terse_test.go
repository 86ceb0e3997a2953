package fio

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// form returns a field of a terse line without what differs from run to run: it keeps the name of a percentile, and the
// number of decimals.
func form(field string) string {
	name, value, named := strings.Cut(field, "=")
	if !named {
		name, value = "", field
	}
	value = regexp.MustCompile(`^\d+`).ReplaceAllString(value, "N")
	return name + "=" + regexp.MustCompile(`\d`).ReplaceAllString(value, "0")
}

// TestTerse: each field has the form of fio's, and the figures are those of the JSON.
func TestTerse(t *testing.T) {
	b, err := os.ReadFile("testdata/fio-3.33.terse")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, c := range []struct {
		options []string
		without []loadgen.Op
	}{
		{nil, nil},
		{[]string{"clat_percentiles=0"}, []loadgen.Op{loadgen.Write}},
		{[]string{"percentile_list=50:99.99"}, []loadgen.Op{loadgen.Read}},
	} {
		jobs, res := results(t, append(c.options, "group_reporting")...)
		for _, op := range c.without {
			for i := range res.Jobs {
				res.Jobs[i].Ops[op] = loadgen.Measured{}
			}
		}
		r := NewReport("fio-3.33", time.Unix(1795242250, 0), nil)
		r.Add(jobs, res, false)
		var line strings.Builder
		if err := r.Terse(&line); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, line.String())
	}
	theirs := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	for i := range theirs {
		theirs, ours := strings.Split(strings.TrimSpace(theirs[i]), ";"), strings.Split(strings.TrimSuffix(ours[i], "\n"), ";")
		if len(ours) != len(theirs) {
			t.Fatalf("line %d: %d fields, fio has %d", i, len(ours), len(theirs))
		}
		for k := range theirs {
			if k > 2 && form(ours[k]) != form(theirs[k]) || k < 3 && ours[k] != theirs[k] {
				t.Errorf("line %d, field %d: %q, fio has %q", i, k, ours[k], theirs[k])
			}
		}
	}
	for field, want := range map[int]string{
		5: "16000", 6: "8000", 7: "2000", 8: "2000", // KiB, KiB/s, IOPS, ms
		13: "60", 14: "61", 15: "60.999500", // µs of clat
		17: "1.000000%=60", 33: "99.990000%=61", 34: "0%=0",
		37: "60", 38: "61", 39: "60.999500", 41: "7200", 42: "8800", 44: "8000.000000",
		46: "16000", 54: "60",
		87: "50.000000%", 88: "25.000000%", 92: "75.0%", 94: "25.0%", 104: "100.00%", 120: "0.00%",
	} {
		if got := strings.Split(strings.TrimSpace(ours[0]), ";")[field]; got != want {
			t.Errorf("field %d: %s, want %s", field, got, want)
		}
	}
}

// TestTerseShares: as in fio, a share that is above 0 isn't shown as 0, and nanoseconds count as less than 2 µs.
func TestTerseShares(t *testing.T) {
	jobs, res := results(t, "numjobs=1")
	m := &res.Jobs[0].Ops[loadgen.Read]
	m.Latency.Record(500)
	m.Latency.Record(int64(3 * time.Second))
	res.Jobs[0].Depths = [7]uint64{100_000, 1}
	r := NewReport("fio-3.33", time.Unix(1795242250, 0), nil)
	r.Add(jobs, res, false)
	var line strings.Builder
	if err := r.Terse(&line); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(line.String(), "\n")
	fields := strings.Split(first, ";")
	if fields[92] != "100.0%" || fields[93] != "0.1%" || fields[94] != "0.0%" {
		t.Errorf("depths %v", fields[92:99])
	}
	if fields[99] != "0.02%" || fields[100] != "0.00%" || fields[120] != "0.02%" {
		t.Errorf("latencies %v", fields[99:])
	}
}
