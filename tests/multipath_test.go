package tests

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// pathReport is what `nvmeinit bench -o json` reports about a path.
type pathReport struct {
	Path     string `json:"path"`
	State    string `json:"state"`
	Access   string `json:"access"`
	Requests uint64 `json:"requests"`
	Retried  uint64 `json:"retried"`
	Losses   uint64 `json:"losses"`
	Connects uint64 `json:"connects"`
}

// endVerified ends a load of endlessLoad, and returns its report. Another run finds everything that was written.
func (p *targetProgram) endVerified(t *testing.T, load *program) map[string]pathReport {
	t.Helper()
	load.signal(syscall.SIGINT)
	paths := load.pathReports(t, exitInterrupted)
	if out := p.must(t, time.Minute, "tcp", "bench", verifyFlags("read")...); !strings.Contains(out, "verified: 8.0 MiB") {
		t.Errorf("%s", out)
	}
	return paths
}

// pathReports returns the report of a run that ends with the given code, and that verified what it read.
func (p *program) pathReports(t *testing.T, code int) map[string]pathReport {
	t.Helper()
	r := p.result(t, 2*time.Minute)
	if r.code != code {
		t.Fatalf("%s: exit code %d\n%s", p, r.code, r.stderr)
	}
	var report struct {
		Jobs []struct {
			Error    int   `json:"error"`
			Verified int64 `json:"nvmeinit_verified_bytes"`
		} `json:"jobs"`
		Paths []pathReport `json:"nvmeinit_paths"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || len(report.Jobs) == 0 {
		t.Fatalf("%v in %s", err, r.stdout)
	}
	for _, j := range report.Jobs {
		if j.Error != 0 || j.Verified == 0 {
			t.Errorf("job %+v", j)
		}
	}
	byName := map[string]pathReport{}
	for _, p := range report.Paths {
		t.Logf("%+v", p)
		byName[p.Path] = p
	}
	return byName
}

// verifyFlags are the flags of a run whose data a later one can check.
func verifyFlags(rw string) []string {
	return []string{"-n", testNQN, "--rw", rw, "--bs", "4k", "--iodepth", "16", "--size", "8m", "--verify", "crc32c"}
}

// verifyLoad is a load that writes, reads, and checks what it wrote. Either program may stand still longer than the
// other, so losses are not noticed by the keep alive timer unless args says so, but by the end of a connection over
// TCP, and by missing acknowledgements over RDMA, which takes 5 s.
func verifyLoad(runtime string, args ...string) []string {
	return slices.Concat([]string{"bench"}, verifyFlags("randrw"), []string{"--numjobs", "2",
		"--time_based", "--runtime", runtime, "-o", "json", "-k", "60", "--reconnect-delay", "1"}, args)
}

// endlessLoad starts a load that continues, at an easy pace, until endVerified, on blocks all of which have been
// written. It takes its paths in turns: at that pace one would have the fewest requests in flight almost always.
func (p *targetProgram) endlessLoad(t *testing.T, args ...string) *program {
	t.Helper()
	p.must(t, time.Minute, "tcp", "bench", verifyFlags("write")...)
	return start(t, "nvmeinit", verifyLoad("1h", append(args, "--rate_iops", "1000", "--iopolicy", "round-robin")...)...)
}

// said reports whether that is a load's latest message about a path.
func (load *program) said(path, state string) bool {
	all := load.stderr.String()
	if at := strings.LastIndex(all, "path "+path+": "); at >= 0 {
		return strings.HasPrefix(all[at:], "path "+path+": "+state)
	}
	return false
}

// atPort is an endpoint of a path.
func atPort(transport, addr string) string { return transport + "://" + addr }

// TestPathsKill: kill -9 of the target, and its restart, under a load over both transports fails nothing and loses
// nothing.
func TestPathsKill(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	args := []string{"--volume", filepath.Join(t.TempDir(), "disk.img"), "--size", "32MiB", "--metrics", addr.String() + ":" + metricsPort}
	p := startTargetAt(t, addr, args...)
	load := p.endlessLoad(t, "-t", "rdma", "-a", addr.String(), "--all-paths", "--ctrl-loss-tmo", "600")
	p.underLoad(t, 2)
	p.kill()
	both := []string{atPort("rdma", p.remote().String()), atPort("tcp", p.remote().String())}
	for _, path := range both {
		eventually(t, time.Minute, "the loss of "+path, func() bool { return load.said(path, "reconnecting") })
	}
	p = startTargetAt(t, addr, args...)
	for _, path := range both {
		eventually(t, time.Minute, path+" again", func() bool { return load.said(path, "live") })
	}
	p.underLoad(t, 2)
	paths := p.endVerified(t, load)
	for _, path := range both {
		if r := paths[path]; r.State != "live" || r.Losses != 1 || r.Connects != 2 || r.Requests == 0 {
			t.Errorf("%+v", r)
		}
	}
	p.stop(t)
}

// TestPathsCut: if the network below one path is cut for good, the load continues on the other.
func TestPathsCut(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	p := startTargetAt(t, addr, "--volume", "mem:32MiB", "--metrics", addr.String()+":"+metricsPort)
	cut, other := atPort("rdma", p.remote().String()), atPort("tcp", p.remote().String())
	load := p.endlessLoad(t, "--path", cut, "--path", other, "--fault", "cut=5s") // when the load has long been running
	eventually(t, time.Minute, "the loss of "+cut, func() bool { return load.said(cut, "reconnecting") })
	p.underLoad(t, 1)
	paths := p.endVerified(t, load)
	if r := paths[cut]; r.Losses == 0 || r.Retried == 0 || r.Requests == 0 {
		t.Errorf("the path that was cut: %+v", r)
	}
	if r := paths[other]; r.Losses != 0 || r.State != "live" {
		t.Errorf("the other: %+v", r)
	}
	p.stop(t)
}

// TestPathsANA: a load uses the paths that the ANA states allow, over two ports and transports of a target, and isn't
// disturbed by their changes.
func TestPathsANA(t *testing.T) {
	noLeaks(t)
	v := newMemory(t, 32<<20)
	tgt, one := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v, ANAGroup: 3}}},
	}})
	two := listenPair(t, tgt)
	ports := []target.Port{{ID: 1, Transport: nvme.TransportRDMA, Addr: one}, {ID: 2, Transport: nvme.TransportTCP, Addr: two}}
	for _, p := range ports {
		if err := tgt.AddPort(p); err != nil {
			t.Fatal(err)
		}
	}
	load := start(t, "nvmeinit", verifyLoad("5s", "--path", atPort("rdma", one.String()), "--path", atPort("tcp", two.String()), "--iopolicy", "queue-depth")...)
	states := []nvme.ANAState{nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAChange, nvme.ANAPersistentLoss, nvme.ANAOptimized}
	for i := 0; ; i++ {
		select {
		case <-load.ended:
			paths := load.pathReports(t, 0)
			for _, r := range paths {
				if r.Losses != 0 || r.Requests == 0 {
					t.Errorf("%+v", r)
				}
			}
			return
		case <-time.After(100 * time.Millisecond): // an operator's pace
		}
		if err := tgt.SetANAState(uint16(1+i/len(states)%2), 3, states[i%len(states)]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPathsTwoTargets: two targets with the same subsystem and volume are two paths to it; if one of them goes away,
// the load stays with the other.
func TestPathsTwoTargets(t *testing.T) {
	noLeaks(t)
	v := newMemory(t, 32<<20)
	cfg := target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}},
	}}
	first, one := serveConfig(t, cfg)
	second, two := serveConfig(t, cfg)
	at, stays, goes := &targetProgram{addr: one.Addr()}, atPort("tcp", one.String()), atPort("rdma", two.String())
	load := at.endlessLoad(t, "--path", stays, "--path", goes)
	// At an easy pace reads and writes alternate, and so do paths: all writes may take the same one.
	requestsTo := func(tgt *target.Target) uint64 {
		io := tgt.Snapshot().Subsystems[0].Namespaces[0].IO
		return io.Read.Ops + io.Write.Ops
	}
	eventually(t, 20*time.Second, "requests to the second target", func() bool { return requestsTo(second) > 100 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := second.Close(ctx); err != nil {
		t.Error(err)
	}
	eventually(t, time.Minute, "the loss of "+goes, func() bool { return load.said(goes, "reconnecting") })
	before := requestsTo(first)
	eventually(t, 20*time.Second, "requests to the first target", func() bool { return requestsTo(first) > before+100 })
	paths := at.endVerified(t, load)
	if r := paths[goes]; r.Losses != 1 || r.State == "live" {
		t.Errorf("the path to the target that is gone: %+v", r)
	}
	if r := paths[stays]; r.Losses != 0 || r.State != "live" {
		t.Errorf("the other: %+v", r)
	}
}

// TestPathsGone: I/O that no path takes fails after fast_io_fail_tmo, and the error names every path and why.
func TestPathsGone(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	p := startTargetAt(t, addr, "--volume", "mem:32MiB", "--metrics", addr.String()+":"+metricsPort)
	load := start(t, "nvmeinit", append(verifyLoad("60s", "-t", "tcp", "-a", addr.String()), "--fast_io_fail_tmo", "2")...)
	p.underLoad(t, 1)
	p.kill()
	r := load.result(t, cliTimeout)
	says := regexp.MustCompile(`no path for (\S+): ` + atPort("tcp", p.remote().String()) + " is reconnecting: connection: .*refused")
	m := says.FindStringSubmatch(r.stderr)
	if r.code != 1 || m == nil {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	// A machine that stands still makes it more, which result doesn't count.
	if after, err := time.ParseDuration(m[1]); err != nil || after < 2*time.Second {
		t.Errorf("I/O failed after %s, %v", m[1], err)
	}
}

// TestPathsUnlike: digests, which are TCP's, don't prevent a path over RDMA; of a path that isn't there the user is told,
// and the others are used.
func TestPathsUnlike(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB")
	for _, c := range []struct{ flags, says string }{
		{"-g -G --path rdma://" + tgt.addr.String(), ""},
		{"--path tcp://" + tgt.addr.String() + ":1", "path tcp://" + tgt.addr.String() + ":1: connecting: "},
	} {
		r := tgt.run(t, cliTimeout, "tcp", "read", append(args(c.flags), "--quiet")...)
		if r.code != 0 || len(r.stdout) != 1<<20 || !strings.Contains(r.stderr, c.says) || c.says == "" && r.stderr != "" {
			t.Errorf("%s: exit code %d, %d bytes, %q", c.flags, r.code, len(r.stdout), r.stderr)
		}
	}
	tgt.stop(t)
}

// TestPathFlags: mistakes are found before anything is connected, and the errors say what is expected.
func TestPathFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--path", "fc://127.0.0.1"}, "want rdma or tcp"},
		{[]string{"--path", "127.0.0.1"}, "want rdma://ADDRESS:PORT or tcp://ADDRESS:PORT"},
		{[]string{"-t", "tcp", "-a", "127.0.0.1", "--iopolicy", "numa"}, "want queue-depth or round-robin"},
		{[]string{"-t", "tcp", "-a", "127.0.0.1", "--ctrl-loss-tmo", "-2"}, "want 0 to 604800 seconds, or -1 for never"},
		{[]string{"-t", "tcp", "-a", "127.0.0.1", "-c", "0"}, "--reconnect-delay 0: want"},
		{[]string{"-t", "tcp", "-a", "127.0.0.1", "-F", "-2"}, "--fast_io_fail_tmo -2: want"},
		{[]string{"--path", "tcp://127.0.0.1", "--controllers", "2"}, "each path has a controller"},
		{[]string{"--path", "tcp://127.0.0.1", "--compare", "rdma,tcp"}, "go with a single run"},
		{[]string{"--all-paths"}, "no transport given"},
	} {
		r := nvmeinit(t, 10*time.Second, append([]string{"bench", "--rw", "read"}, c.args...)...)
		if r.code != 2 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%v: exit code %d: %s", c.args, r.code, r.stderr)
		}
	}
}
