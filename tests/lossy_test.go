package tests

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/tests/page"
)

// Variables of TestLossBesideTCP; make lossy sets both.
const (
	lossyEnv     = "NVMEOF_LOSSY"      // how long each measurement lasts
	lossyPageEnv = "NVMEOF_LOSSY_PAGE" // the page whose table is to be rewritten; may be empty
)

// The table is between these lines of the page.
const (
	lossyBegin = "<!-- made by make lossy -->\n"
	lossyEnd   = "<!-- end of what make lossy made -->\n"
)

// lossyPath is a way to the target.
type lossyPath struct {
	name, transport string
	tcp             string // congestion control of the kernel's TCP
}

var lossyPaths = []lossyPath{{"RDMA", "rdma", ""}, {"TCP, CUBIC", "tcp", "cubic"}, {"TCP, BBR", "tcp", "bbr"}}

// lossyShares are the shares of lost packets, and what RDMA must keep of its goodput.
var lossyShares = []struct{ lost, keeps float64 }{{0, 1}, {0.001, 0.9}, {0.01, 0.6}, {0.05, 0.25}}

// busyRoundTrip is a round-trip time on a link of 100 µs that shows that the processors have too much else to do.
const busyRoundTrip = time.Millisecond

// TestLossBesideTCP measures requests of 128 KiB, eight at once, over the RNIC and over the kernel's TCP, alternately
// on one lossy link, and makes a table of the goodput compared with that without loss.
func TestLossBesideTCP(t *testing.T) {
	alone(t)
	text := os.Getenv(lossyEnv)
	if text == "" {
		t.Skip("make lossy compares with the kernel's TCP on a lossy link")
	}
	each, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	table := "| | MTU | path | without loss |"
	for _, s := range lossyShares[1:] {
		table += fmt.Sprintf(" %.1f%% lost |", 100*s.lost)
	}
	table += "\n| --- | --- | --- | --- |" + strings.Repeat(" --- |", len(lossyShares)-1) + "\n"
	var trips []string
	for _, mtu := range []int{1500, 4200} {
		t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) {
			l := newLossyLink(t, lossyConfig{mtu: mtu, latency: 50 * time.Microsecond, rate: 125e6, queue: 1 << 20})
			trip := l.roundTrip(t)
			if trips = append(trips, trip.Round(time.Microsecond).String()); trip > busyRoundTrip {
				t.Skipf("the round trip is %v: this machine is too busy to measure", trip)
			}
			l.serve(t)
			for _, rw := range []string{"write", "read"} {
				rows := l.compare(t, mtu, rw, each)
				t.Log("\n" + rows)
				table += rows
			}
			t.Logf("lost on the one way %d, on the other %d; %d found the queue full", l.drops[0].Load(), l.drops[1].Load(), l.full.Load())
		})
	}
	if path := os.Getenv(lossyPageEnv); path != "" && strings.Count(table, "\n") == 2+2*2*len(lossyPaths) {
		var u unix.Utsname
		_ = unix.Uname(&u)
		table += fmt.Sprintf("\nLinux %s, %s; a datagram's round trip on the idle link took %s (the kernel's way included).\n",
			unix.ByteSliceToString(u.Release[:]), time.Now().UTC().Format(time.DateOnly), strings.Join(trips, " and "))
		if err := page.Rewrite(path, lossyBegin, lossyEnd, table); err != nil {
			t.Error(err)
		}
	}
}

// compare returns a row of the table for each path.
func (l *lossyLink) compare(t *testing.T, mtu int, rw string, each time.Duration) (rows string) {
	t.Helper()
	goodput := map[string][]float64{} // by path, for each share
	for _, s := range lossyShares {
		const turns = 3
		rates := map[string][]float64{}
		l.setLoss(s.lost)
		for range turns {
			for _, p := range lossyPaths {
				rates[p.name] = append(rates[p.name], l.bench(t, p, rw, each))
			}
		}
		for name, r := range rates {
			slices.Sort(r)
			goodput[name] = append(goodput[name], r[turns/2])
		}
	}
	l.setLoss(0)
	for _, p := range lossyPaths {
		g := goodput[p.name]
		rows += fmt.Sprintf("| %s | %d | %s | %.0f MB/s |", rw, mtu, p.name, g[0]/1e6)
		for i := range lossyShares[1:] {
			rows += fmt.Sprintf(" %.0f%% |", 100*g[i+1]/g[0])
		}
		rows += "\n"
	}
	for i, s := range lossyShares {
		if g := goodput["RDMA"]; g[i] < s.keeps*g[0] {
			t.Errorf("%s over RDMA with %.1f%% lost: %.0f%% of the goodput, want %.0f%%", rw, 100*s.lost, 100*g[i]/g[0], 100*s.keeps)
		}
	}
	return rows
}

// serve starts a target at the second end.
func (l *lossyLink) serve(t *testing.T) {
	t.Helper()
	e := l.ends[1]
	startOn(t, e.do, "nvmetgt", append([]string{"serve", "--volume", "mem:64MiB"}, serveFlags(e.addr)...)...).awaitReady(t)
}

// bench returns the goodput of a host at the first end, in bytes a second. If messages that make the connection get
// lost too often in a row, it reconnects.
func (l *lossyLink) bench(t *testing.T, p lossyPath, rw string, each time.Duration) float64 {
	t.Helper()
	if p.tcp != "" {
		if err := l.useTCP(p.tcp); err != nil {
			t.Fatal(err)
		}
	}
	var r result
	for range 5 {
		r = startOn(t, l.ends[0].do, "nvmeinit", "bench", "-t", p.transport, "-a", l.ends[1].addr.String(), "-s", nvmePort, "-n", testNQN, "-k", "60",
			"--rw", rw, "--bs", "128k", "--iodepth", "8", "--ramp_time", (each/4).String(), "--runtime", each.String(), "--time_based", "-o", "json").result(t, each+3*time.Minute)
		if r.code == 0 {
			break
		}
	}
	if r.code != 0 {
		t.Fatalf("%s over %s: exit code %d: %s\n%s", rw, p.name, r.code, r.stderr, r.stdout)
	}
	job := readJobs(t, r.stdout)[0]
	return job.Read.BWBytes + job.Write.BWBytes
}
