package tests

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// targetFile makes fio, and nvmeinit, find the greatest depth at which 90% of the operations take no longer than 10 s,
// which all depths satisfy.
const targetFile = `
[global]
rw=randread
bs=4k
size=8m
iodepth=5
latency_window=200000
latency_percentile=90
latency_run=0
time_based
runtime=60
ioengine=null

[finder]
latency_target=10s
`

// TestLatencyTarget: a latency_target makes a job end by itself, and report the depth that it found where fio does.
func TestLatencyTarget(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.fio")
	writeText(t, path, targetFile)
	check := func(t *testing.T, out []byte) {
		var r struct {
			Jobs []struct {
				Runtime    float64 `json:"job_runtime"`
				Depth      int     `json:"latency_depth"`
				Target     int64   `json:"latency_target"`
				Percentile float64 `json:"latency_percentile"`
				Window     int64   `json:"latency_window"`
				Read       fioSide `json:"read"`
			} `json:"jobs"`
		}
		if err := json.Unmarshal(out, &r); err != nil || len(r.Jobs) != 1 {
			t.Fatalf("%v in %s", err, out)
		}
		j := &r.Jobs[0]
		if j.Depth != 5 || j.Target != 10e9 || j.Percentile != 90 || j.Window != 200_000 {
			t.Errorf("depth %d, target %d ns, %v%%, window %d µs; want 5, 10 s, 90%%, 200 ms", j.Depth, j.Target, j.Percentile, j.Window)
		}
		// The figures are those of a last window.
		if j.Runtime < 190 || j.Runtime > 30_000 || j.Read.Total == 0 {
			t.Errorf("it read %v times in %v ms, want some in about 200", j.Read.Total, j.Runtime)
		}
	}
	tgt := startTarget(t, "--volume", "mem:8MiB")
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			check(t, []byte(tgt.must(t, cliTimeout, transport, "bench", "-o", "json", path)))
		})
	}
	t.Run("fio", func(t *testing.T) {
		check(t, runFio(t, t.TempDir(), "--output-format=json", path))
	})
}
