package tests

import (
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// killSlack is what a busy machine may add to the keep alive timeout: by late timers, and until a program has ended.
const killSlack = 1500 * time.Millisecond

// killLinger is how long a program that ends waits for answers to its CM's DREQs.
var killLinger = map[string]time.Duration{"rdma": time.Second}

// TestKill kills either program in the middle of I/O. The other notices within the keep alive time, says so, frees what
// it held, and a new connection works at once.
func TestKill(t *testing.T) {
	alone(t)
	for _, transport := range transports {
		t.Run("target/"+transport, func(t *testing.T) { killTarget(t, transport) })
		t.Run("host/"+transport, func(t *testing.T) { killHost(t, transport) })
	}
	for _, path := range paths {
		t.Run("data/"+path, func(t *testing.T) { killUnderModel(t, path) })
	}
}

// killTarget: nvmeinit, holding and under load, reports the loss of its target.
func killTarget(t *testing.T, transport string) {
	const kato = 2
	addr := freeAddr(t)
	args := []string{"--volume", "mem:64MiB", "--metrics", addr.String() + ":" + metricsPort}
	p := startTargetAt(t, addr, args...)
	k := []string{"-k", strconv.Itoa(kato)}
	hold := p.startInit(t, transport, "connect", append(k, "--hold")...)
	load := p.startInit(t, transport, "bench", append(k, "--rw", "randrw", "--bs", "16k", "--iodepth", "32", "--runtime", "60s")...)
	p.underLoad(t, 2)
	eventually(t, 10*time.Second, "a held connection", func() bool { return hold.stderr.String() != "" })
	p.kill()
	killed := soon.Start()
	defer killed.Stop()
	for _, host := range []*program{hold, load} {
		code := host.wait(t, kato*time.Second+20*time.Second)
		after := killed.Elapsed()
		t.Logf("%s: exit code %d after %v: %s", host.args[0], code, after.Round(time.Millisecond), lastLine(host.stderr.String()))
		if after > kato*time.Second+killLinger[transport]+killSlack {
			t.Errorf("nvmeinit %s: the loss was reported after %v, the keep alive timeout is %d s", host.args[0], after, kato)
		}
		if code != 1 {
			t.Errorf("nvmeinit %s: exit code %d, want 1", host.args[0], code)
		}
		checkLossLine(t, host, p)
	}
	// The address is free again, for the target and for its hosts.
	p = startTargetAt(t, addr, args...)
	if out := p.must(t, 10*time.Second, transport, "connect"); !strings.Contains(out, testNQN) {
		t.Errorf("connect shows %q", out)
	}
	p.stop(t)
}

// checkLossLine wants one line that says what was lost and where.
func checkLossLine(t *testing.T, host *program, p *targetProgram) {
	t.Helper()
	var errs []string
	for l := range strings.SplitSeq(strings.TrimSpace(host.stderr.String()), "\n") {
		if strings.HasPrefix(l, "nvmeinit: ") {
			errs = append(errs, l)
		}
	}
	if len(errs) != 1 || lastLine(host.stderr.String()) != errs[0] {
		t.Errorf("nvmeinit %s wrote %q, want one line that begins with its name, at the end", host.args[0], host.stderr.String())
		return
	}
	for _, want := range []string{"connection lost", p.addr.String()} {
		if !strings.Contains(errs[0], want) {
			t.Errorf("nvmeinit %s says %q, without %q", host.args[0], errs[0], want)
		}
	}
}

// killHost: nvmetgt frees everything that a host held, every time.
func killHost(t *testing.T, transport string) {
	const (
		kato  = 1
		times = 10
		// mostGrown is what uncollected garbage may add in the second half; the buffers of as many hosts' connections
		// are more.
		mostGrown = 8 << 20
	)
	addr := freeAddr(t)
	// A volume in memory would count as the target's memory.
	p := startTargetAt(t, addr, "--volume", "null:64MiB", "--metrics", addr.String()+":"+metricsPort)
	var before, now holdings
	var rss int64
	for i := range times + 1 {
		load := p.startInit(t, transport, "bench", "-k", strconv.Itoa(kato),
			"--rw", "randrw", "--bs", "16k", "--iodepth", "32", "--numjobs", "2", "--runtime", "60s")
		p.underLoad(t, 1)
		load.kill()
		killed := soon.Start()
		p.must(t, 5*time.Second, transport, "connect")
		now = p.freed(t, killed, kato*time.Second+killSlack)
		killed.Stop()
		switch i {
		case 0: // has set up what is kept: listeners, threads
			before = p.quiet(t)
		case times / 2: // has filled the pools
			rss = p.figures(t).rss
		}
	}
	t.Logf("the last of %d kills was noticed with %v", times, now)
	eventually(t, 10*time.Second, "as little as before the kills", func() bool {
		now = p.quiet(t)
		return now.goroutines <= before.goroutines && now.fds <= before.fds
	})
	grown := p.figures(t).rss - rss
	t.Logf("after the first: %v", before)
	t.Logf("after the last:  %v; %d MiB, %d half way", now, (rss+grown)>>20, rss>>20)
	if grown > mostGrown && !racing() { // whose shadow memory grows with use
		t.Errorf("%d kills made the target grow by %d MiB", times-times/2, grown>>20)
	}
	// The log has a bounded rate, so it need not contain every one.
	if n := strings.Count(p.stderr.String(), `level=WARN msg="host lost"`); n < times/2 {
		t.Errorf("nvmetgt tells of %d lost hosts, %d were killed", n, times+1)
	}
	p.stop(t)
}

// freed waits until the target has freed what hosts had: controllers, queues, commands and connections. It returns what
// the target holds then.
func (p *targetProgram) freed(t *testing.T, since *soon.Stopwatch, limit time.Duration) (h holdings) {
	t.Helper()
	for {
		h = p.scrape(t).holdings(t)
		if h.controllers+h.queues+h.inFlight+h.rdma+h.tcp == 0 {
			return h
		}
		if after := since.Elapsed(); after > limit {
			t.Fatalf("%v after the host was killed there are still %v", after.Round(time.Millisecond), h)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// quiet waits until the connection manager has also given up telling dead hosts of the end, and returns what the target
// holds then.
func (p *targetProgram) quiet(t *testing.T) (h holdings) {
	t.Helper()
	eventually(t, 10*time.Second, "the end of disconnecting", func() bool {
		h = p.scrape(t).holdings(t)
		return h.cm == 0
	})
	return h
}

// underLoad waits until a number of controllers is connected and commands come in.
func (p *targetProgram) underLoad(t *testing.T, controllers float64) {
	t.Helper()
	was := math.Inf(1) // reads when they were connected
	eventually(t, 20*time.Second, "load on the target", func() bool {
		s := p.scrape(t)
		now := s["nvmeof_target_commands_total{op=\"read\",transport=\"rdma\"}"] + s["nvmeof_target_commands_total{op=\"read\",transport=\"tcp\"}"]
		if s.sum(t, "nvmeof_target_controllers") < controllers {
			return false
		}
		was = min(was, now)
		return now > was+100
	})
}

// killUnderModel: every command of the host ends in time when the target is killed, and what had completed is there
// when it serves again.
func killUnderModel(t *testing.T, path string) {
	noLeaks(t)
	const kato = 1500 * time.Millisecond
	args := []string{"--volume", filepath.Join(t.TempDir(), "disk.img"), "--size", "64MiB"}
	addr := freeAddr(t)
	p := startTargetAt(t, addr, args...)
	m := newModel(verifySize, 4096, false)
	var stamp atomic.Uint64
	h := dialHost(t, p.remote(), path, func(c *host.Config) { verifyConfig(c); c.KATO = kato })
	w := newWorkload(t, h, 1, m, &stamp, verifySeed(t))
	w.mayLose = true
	w.start()
	eventually(t, 20*time.Second, "some load", func() bool { return w.commands() > 500 })
	p.kill()
	killed := soon.Start()
	defer killed.Stop()
	<-h.Done()
	if err := w.wait(h); err != nil {
		t.Fatal(err)
	}
	after := killed.Elapsed()
	t.Logf("%v: all commands ended %v after the kill, %d of them cut: %v", w.summary(), after.Round(time.Millisecond), w.lost.Load(), h.Err())
	if after > kato+killSlack {
		t.Errorf("the loss took %v, the keep alive timeout is %v", after, kato)
	}
	if !errors.Is(h.Err(), host.ErrLost) || w.lost.Load() == 0 {
		t.Errorf("%d commands were cut, and the controller ended with %v", w.lost.Load(), h.Err())
	}
	if err := h.Close(); !errors.Is(err, host.ErrLost) {
		t.Errorf("closing a lost controller says %v", err)
	}
	p = startTargetAt(t, addr, args...)
	h = dialHost(t, p.remote(), path, verifyConfig)
	ns := h.namespace(t, 1)
	verifyAll(t, ns, m)
	h.close(t)
	p.stop(t)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
