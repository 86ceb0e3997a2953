package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// lossyEnv set to how long each measurement lasts has TestLossBesideTCP run; make lossy.
const lossyEnv = "NVMEOF_LOSSY"

// lossyPath is a way to the target.
type lossyPath struct {
	name, transport string
	tcp             string // congestion control of both kernels' TCP
}

var lossyPaths = []lossyPath{{"RDMA", "rdma", ""}, {"TCP cubic", "tcp", "cubic"}, {"TCP bbr", "tcp", "bbr"}}

// TestLossBesideTCP measures requests of 128 KiB, eight at once, over the RNIC and over the
// kernel's TCP, turn by turn on one lossy link, and prints goodput beside that without loss as a
// table. RDMA must keep what issue and documentation promise.
func TestLossBesideTCP(t *testing.T) {
	text := os.Getenv(lossyEnv)
	if text == "" {
		t.Skip("make lossy compares with the kernel's TCP on a lossy link")
	}
	each, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	losses := []struct{ share, want float64 }{{0, 1}, {0.001, 0.9}, {0.01, 0.6}, {0.05, 0.25}}
	for _, mtu := range []int{1500, 4200} {
		t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) {
			c := lossyConfig{mtu: mtu, latency: 50 * time.Microsecond, rate: 125e6, queue: 256 << 10}
			l := newLossyLink(t, c)
			t.Logf("link of %.0f Mb/s; round trip of a small datagram %v", float64(c.rate)*8/1e6, l.roundTrip(t))
			l.serve(t)
			for _, rw := range []string{"write", "read"} {
				goodput := map[string][]float64{} // by path, for each loss
				for _, loss := range losses {
					l.setLoss(loss.share)
					const turns = 3
					rates := map[string][]float64{}
					for range turns {
						for _, p := range lossyPaths {
							rates[p.name] = append(rates[p.name], l.bench(t, p, rw, each))
						}
					}
					l.setLoss(0)
					for name, r := range rates {
						slices.Sort(r)
						goodput[name] = append(goodput[name], r[turns/2])
					}
				}
				for _, p := range lossyPaths {
					g := goodput[p.name]
					row := fmt.Sprintf("| %s | %d | %s | %.0f MB/s |", rw, mtu, p.name, g[0]/1e6)
					for i := range losses[1:] {
						row += fmt.Sprintf(" %.0f%% |", 100*g[i+1]/g[0])
					}
					t.Log(row)
				}
				for i, loss := range losses {
					if g := goodput["RDMA"]; g[i] < loss.want*g[0] {
						t.Errorf("%s over RDMA with %.1f%% lost: %.0f%% of the goodput, want %.0f%%", rw, 100*loss.share, 100*g[i]/g[0], 100*loss.want)
					}
				}
			}
			t.Logf("the link lost %d and %d packets of each way, and dropped %d for its queue", l.drops[0].Load(), l.drops[1].Load(), l.full.Load())
		})
	}
}

// serve starts a target at the second end.
func (l *lossyLink) serve(t *testing.T) {
	t.Helper()
	e := l.ends[1]
	at := e.addr.String() + ":" + nvmePort
	ready := make(chan struct{})
	var once sync.Once
	startOn(t, e.do, func(line string) {
		if strings.HasPrefix(line, "ready") {
			once.Do(func() { close(ready) })
		}
	}, "nvmetgt", "serve", "--nqn", testNQN, "--volume", "mem:64MiB", "--listen", "rdma://"+at, "--listen", "tcp://"+at).awaitReady(t, ready)
}

// bench is the goodput of a host at the first end, in bytes a second. Where messages that make the
// connection get lost too often in a row, it connects again.
func (l *lossyLink) bench(t *testing.T, p lossyPath, rw string, each time.Duration) float64 {
	t.Helper()
	if p.tcp != "" {
		if err := l.useTCP(p.tcp); err != nil {
			t.Fatal(err)
		}
	}
	var r result
	for range 5 {
		r = startOn(t, l.ends[0].do, nil, "nvmeinit", "bench", "-t", p.transport, "-a", l.ends[1].addr.String(), "-s", nvmePort, "-n", testNQN, "-k", "60",
			"--rw", rw, "--bs", "128k", "--iodepth", "8", "--ramp_time", (each/4).String(), "--runtime", each.String(), "--time_based", "-o", "json").result(t, each+3*time.Minute)
		if r.code == 0 {
			break
		}
	}
	var out struct {
		Jobs []struct{ Read, Write fioSide }
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != 0 || len(out.Jobs) != 1 {
		t.Fatalf("%s over %s: exit code %d, %v: %s\n%s", rw, p.name, r.code, err, r.stderr, r.stdout)
	}
	return out.Jobs[0].Read.BWBytes + out.Jobs[0].Write.BWBytes
}
