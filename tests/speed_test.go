package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// TestRDMABesideSockets compares RDMA with bare UDP sockets that move the same packets with the same CRC
// (tests/ceiling), and with NVMe/TCP, in rounds of short measurements: it should reach 0.75 of the sockets' throughput,
// and with blocks of 4 KiB not be slower than TCP. The median of the rounds' ratios tolerates a disturbance that hits
// fewer than half of them.
//
// It needs both processors for itself, so it runs only when asked for: make speed.
func TestRDMABesideSockets(t *testing.T) {
	alone(t)
	const rounds, least = 7, 0.75
	needSpeed(t, "NVMEOF_SPEED", "speed")
	ceiling := filepath.Join(t.TempDir(), "ceiling")
	if _, err := process.Output(exec.Command("go", "build", "-o", ceiling, "./ceiling")); err != nil {
		t.Fatal(err)
	}
	p := startTarget(t, "--volume", "mem:64MiB") // as large as what the sockets take their data from
	p.must(t, 20*time.Second, "tcp", "bench", "--rw", "write", "--bs", "128k", "--iodepth", "8")
	for _, x := range []struct {
		rw, bs string
		ofTCP  float64 // share of it that it should reach
	}{{"randread", "4k", 1}, {"read", "128k", 0}} {
		t.Run(x.bs, func(t *testing.T) {
			var toSockets, toTCP []float64
			for i := range rounds {
				figures := map[string]float64{}
				order := []string{"rdma", "sockets", "tcp"}
				for _, what := range slices.Concat(order[i%3:], order[:i%3]) {
					if what == "sockets" {
						figures[what] = bareSockets(t, ceiling, x.rw, x.bs)
					} else {
						figures[what] = p.read(t, what, x.rw, x.bs)
					}
				}
				toSockets = append(toSockets, figures["rdma"]/figures["sockets"])
				toTCP = append(toTCP, figures["rdma"]/figures["tcp"])
				t.Logf("RDMA %.0f, bare sockets with CRC %.0f, TCP %.0f a second", figures["rdma"], figures["sockets"], figures["tcp"])
			}
			slices.Sort(toSockets)
			slices.Sort(toTCP)
			t.Logf("RDMA does %.2f of what bare sockets do, and %.2f of what TCP does", toSockets[rounds/2], toTCP[rounds/2])
			if toSockets[rounds/2] < least {
				t.Errorf("less than %.2f of bare sockets: %.2f", least, toSockets)
			}
			if toTCP[rounds/2] < x.ofTCP {
				t.Errorf("less than %.2f of TCP: %.2f", x.ofTCP, toTCP)
			}
		})
	}
}

// needSpeed skips a test that measures speed unless a make target asks for it, by a variable, and the machine allows
// it.
func needSpeed(t *testing.T, variable, target string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skip("a comparison of speed runs only when asked for: make " + target)
	}
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two processors: one for each program")
	}
	if racing() {
		t.Skip("the race detector measures itself")
	}
}

// speedTime is how long each measurement takes.
const speedTime = 600 * time.Millisecond

// bareSockets measures requests at depth 32 that are answered with this much data, of blocks in the order of reads.
func bareSockets(t *testing.T, ceiling, rw, bs string) float64 {
	t.Helper()
	out, err := process.Output(exec.Command(ceiling, "-json", "-time", speedTime.String(), "-depth", "32", "-bs", bs,
		fmt.Sprintf("-random=%t", rw == "randread")))
	if err != nil {
		t.Fatal(err)
	}
	var results []struct {
		PerSecond float64 `json:"requests_per_second"`
	}
	if err := json.Unmarshal(out, &results); err != nil || len(results) != 1 || results[0].PerSecond == 0 {
		t.Fatalf("%v in %q", err, out)
	}
	return results[0].PerSecond
}

// read measures reads at depth 32 on one queue.
func (p *targetProgram) read(t *testing.T, transport, rw, bs string) float64 {
	t.Helper()
	out := p.must(t, 20*time.Second, transport, "bench", "--rw", rw, "--bs", bs, "--iodepth", "32",
		"--ramp_time", "100ms", "--runtime", speedTime.String(), "-o", "json")
	return iops(t, out)
}

// iops returns the rate of reads and writes that a run of one job printed.
func iops(t *testing.T, out string) float64 {
	t.Helper()
	job := readJobs(t, out)[0]
	n := job.Read.IOPS + job.Write.IOPS
	if n == 0 {
		t.Fatalf("nothing was measured: %s", out)
	}
	return n
}
