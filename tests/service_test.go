package tests

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/crashload"
)

// manager is a service manager as in sd_notify(3), which records the messages sent to it.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// newManager gives the programs that the test starts a manager, with a watchdog.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
	return &manager{t, c}
}

// expect waits for a message with a line.
func (m *manager) expect(line string) string {
	m.t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(cliTimeout))
	b := make([]byte, 4096)
	for {
		n, err := m.conn.Read(b)
		if err != nil {
			m.t.Fatalf("no %s: %v", line, err)
		}
		if said := string(b[:n]); strings.Contains("\n"+said+"\n", "\n"+line+"\n") {
			return said
		}
	}
}

// The program tells systemd when it is ready, that it is alive, and that it stops.
func TestService(t *testing.T) {
	m := newManager(t)
	tgt := startTarget(t, "--volume", "mem:16MiB", "--drain-timeout", "3s")
	if said := m.expect("READY=1"); !strings.Contains(said, "STATUS="+testNQN) {
		t.Errorf("ready: %q", said)
	}
	for range 3 {
		m.expect("WATCHDOG=1")
	}
	tgt.signal(syscall.SIGTERM)
	if said := m.expect("STOPPING=1"); !strings.Contains(said, "EXTEND_TIMEOUT_USEC=13000000") {
		t.Errorf("stopping: %q", said)
	}
	if code := tgt.wait(t, 15*time.Second); code != 0 { // not by stop: a second signal limits how long closing may take
		t.Errorf("exit code %d: %s", code, tgt.stderr.String())
	}
}

// Hosts that write without pause lose nothing acknowledged when the target is told to stop, and their connections are
// closed rather than lost.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "disk.img")
			const half = 8 << 20 // of the volume: for a host that counts what is acknowledged, and one that is a program
			tgt := startTarget(t, "--volume", file, "--size", fmt.Sprint(2*half))
			bench := tgt.startInit(t, transport, "bench", "--rw", "randwrite", "--bs", "4k", "--iodepth", "32", "--runtime", "60s",
				"--offset", fmt.Sprint(half))
			eventually(t, cliTimeout, "the target is written to", func() bool {
				b, err := os.ReadFile(file)
				return err == nil && strings.Trim(string(b[half:][:1<<20]), "\x00") != ""
			})
			load, h := crashload.New(half/4096, 4096), dialHost(t, tgt.remote(), transport, nil)
			rnd := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for _, err := range load.Run(t.Context(), h.namespace(t, 1), rnd, 300, func() { tgt.signal(syscall.SIGTERM) }) {
				if !errors.Is(err, host.ErrLost) && !errors.Is(err, nvme.StatusAbortSQDeleted) {
					t.Errorf("a writer ended with %v", err)
				}
			}
			if code := tgt.wait(t, 15*time.Second); code != 0 { // not by stop, which would be a second signal
				t.Errorf("exit code %d: %s", code, tgt.stderr.String())
			}
			h.Abandon()
			if said := tgt.stderr.String(); !strings.Contains(said, "msg=drained\n") || strings.Contains(said, "lost") {
				t.Errorf("the target says\n%s", said)
			}
			if r := bench.result(t, cliTimeout); r.code == 0 {
				t.Errorf("a host without a target ends with %d: %s", r.code, r.stdout)
			}
			tgt = startTarget(t, "--volume", file)
			h = dialHost(t, tgt.remote(), transport, nil)
			if err := load.Check(t.Context(), h.namespace(t, 1)); err != nil {
				t.Error(err)
			}
			h.close(t)
			tgt.stop(t)
		})
	}
}

// A volume that doesn't answer delays the program's end for the time of --drain-timeout, or until the second signal.
func TestStopLimit(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		tgt := startTarget(t, "--volume", "freeze:manual:mem:16MiB", "--metrics", "127.0.0.1:0", "--drain-timeout", map[bool]string{false: "1s", true: "1m"}[again])
		tgt.signal(syscall.SIGUSR1)
		waitText(t, &tgt.stderr, "frozen=true")
		host := tgt.startInit(t, "tcp", "read", "--nsid", "1", "--length", "4k", "--output", "/dev/null")
		tgt.hasRead(t)
		tgt.signal(syscall.SIGTERM)
		if again {
			waitText(t, &tgt.stderr, "msg=draining")
			tgt.signal(syscall.SIGTERM)
		}
		waitText(t, &tgt.stderr, "reason=\"target is draining\"") // then the command is cut off
		eventually(t, cliTimeout, "everything but the volume is closed", func() bool {
			c, err := net.Dial("tcp", tgt.remote().String())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		tgt.signal(syscall.SIGUSR1) // it is waited for, and thawed
		if code := tgt.wait(t, 30*time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if said := tgt.stderr.String(); !strings.Contains(said, "commands that were cut off: ") {
			t.Errorf("it says\n%s", said)
		}
		host.kill()
	}
}

// No signal gets lost while connections are given the time to end: a third ends the program then, too.
func TestStopHeedsThird(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "freeze:1ms+10m:mem:16MiB", "--metrics", "127.0.0.1:0", "--drain-timeout", "1m")
	host := tgt.startInit(t, "tcp", "read", "--nsid", "1", "--length", "4k", "--output", "/dev/null")
	tgt.hasRead(t)
	for _, step := range []string{"msg=draining", "reason=\"target is draining\"", ""} {
		tgt.signal(syscall.SIGTERM)
		waitText(t, &tgt.stderr, step)
	}
	if r := tgt.result(t, cliTimeout); r.code != exitFailure || !strings.Contains(r.stderr, "interrupted while a volume had commands under way") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	host.kill()
}

// A volume that never answers is waited for until a further signal, after which the program fails.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "freeze:1ms+10m:mem:16MiB", "--metrics", "127.0.0.1:0")
	host := tgt.startInit(t, "tcp", "read", "--nsid", "1", "--length", "4k", "--output", "/dev/null")
	tgt.hasRead(t)
	for _, step := range []string{"msg=draining", "msg=drained"} {
		tgt.signal(syscall.SIGTERM)
		waitText(t, &tgt.stderr, step)
	}
	// The signal may come a moment before it is listened for, and is then repeated, as a user would.
	eventually(t, cliTimeout, "the end", func() bool {
		tgt.signal(syscall.SIGTERM)
		select {
		case <-tgt.ended:
			return true
		default:
			return false
		}
	})
	if r := tgt.result(t, cliTimeout); r.code != exitFailure || !strings.Contains(r.stderr, "interrupted while a volume had commands under way") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	host.kill()
}

// hasRead waits until the volume of a target with --metrics has a request.
func (p *targetProgram) hasRead(t *testing.T) {
	t.Helper()
	url := p.metricsURL(t) + "/metrics"
	eventually(t, cliTimeout, "the volume has a read", func() bool {
		_, said := get(t, url)
		return strings.Contains(said, "nvmeof_namespace_requests_in_flight{nsid=\"1\",subsystem=\""+testNQN+"\"} 1\n")
	})
}

// get asks the metrics port.
func get(t testing.TB, url string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: cliTimeout}
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// metricsURL returns where a program serves its metrics, as it said.
func (p *program) metricsURL(t testing.TB) string {
	t.Helper()
	_, rest, ok := strings.Cut(p.stdout.String()+p.stderr.String(), "metrics http://")
	if !ok {
		t.Fatalf("%s serves no metrics: %s", p, p.stdout.String())
	}
	addr, _, _ := strings.Cut(rest, "/")
	return "http://" + addr
}

// ctl drain lets hosts go and refuses others until ctl resume.
func TestCtlDrain(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "control")
	tgt := startTarget(t, "--volume", "mem:16MiB", "--control", socket, "--metrics", "127.0.0.1:0")
	c := configured{targetProgram: tgt, socket: socket}
	url := tgt.metricsURL(t)
	if code, _ := get(t, url+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz before: %d", code)
	}
	host := tgt.startInit(t, "rdma", "connect", "--hold")
	eventually(t, cliTimeout, "the host is connected", func() bool { return len(c.hosts(t, testNQN)) == 1 })
	c.change(t, "drain", "--timeout", "2s")
	if code := host.wait(t, cliTimeout); code == 0 {
		t.Error("the host noticed nothing")
	}
	if st := c.status(t); !st.Draining || st.Connections != 0 {
		t.Errorf("drained: %+v", st)
	}
	if said := c.change(t, "show"); !strings.Contains(said, "draining") {
		t.Errorf("show says\n%s", said)
	}
	if code, _ := get(t, url+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", code)
	}
	for _, transport := range transports {
		r := tgt.run(t, cliTimeout, transport, "connect")
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"connect to " + transport, "is drained or has too many connections", "try again"}})
	}
	c.change(t, "resume")
	for _, transport := range transports {
		tgt.must(t, cliTimeout, transport, "connect")
	}
	if r := c.ctl(t, "drain", "--timeout", "-1s"); r.code != exitUsage {
		t.Errorf("a time below 0: %d %s", r.code, r.stderr)
	}
}
