package tests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// Environment of the tests of whole programs.
const (
	// raceEnv set to 1 builds the programs with the race detector.
	raceEnv = "NVMEOF_RACE"
	// nvmePort is the port of NVMe over Fabrics.
	nvmePort = "4420"
	testNQN  = "nqn.2026-11.io.nvme-anywhere:test"
)

// racing reports whether the race detector watches the test or the programs.
func racing() bool { return race.Enabled || os.Getenv(raceEnv) == "1" }

// transports are the names that -t takes.
var transports = []string{"rdma", "tcp"}

// binDir holds the programs once they are built.
var binDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nvmeof-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	go starter()
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// buildPrograms builds both programs into binDir, once, when the first test needs them.
var buildPrograms = sync.OnceValue(func() error {
	args := []string{"build", "-o", binDir + "/"}
	env := append(os.Environ(), "CGO_ENABLED=0")
	if os.Getenv(raceEnv) == "1" {
		args = append(args, "-race")
		env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd := exec.Command("go", append(args, module+"/cmd/nvmetgt", module+"/cmd/nvmeinit")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// program is nvmetgt or nvmeinit, running or ended.
type program struct {
	name   string
	args   []string
	cmd    *exec.Cmd
	stdout output
	stderr output
	ready  chan struct{} // closed when it has said that it is ready
	ended  chan struct{} // closed when it has ended and all its output has been read
	err    error         // valid after ended
}

// output gathers what a program writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// starting passes starter its work.
var starting = make(chan func())

// starter starts programs from a thread that lasts as long as the test binary (see begin).
func starter() {
	runtime.LockOSThread()
	for f := range starting {
		f()
	}
}

// begin starts a command on the thread that serves on. The kernel ends it with that (Pdeathsig applies to the thread, not
// the process): a test that dies leaves nothing behind.
func begin(on chan<- func(), cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	on <- func() { started <- cmd.Start() }
	return <-started
}

// start runs a program. It is killed when the test ends, and if the test failed, its output is shown unless the program
// succeeded.
func start(t testing.TB, name string, args ...string) *program {
	t.Helper()
	return startOn(t, starting, name, args...)
}

// startOn is start on the thread that serves on.
func startOn(t testing.TB, on chan<- func(), name string, args ...string) *program {
	t.Helper()
	p := newProgram(t, name, args...)
	p.launch(t, on)
	return p
}

// newProgram returns a program that is still to be launched.
func newProgram(t testing.TB, name string, args ...string) *program {
	t.Helper()
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	p := &program{name: name, args: args, ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(binDir, name), args...)
	p.cmd.Stderr = &p.stderr
	return p
}

// launch starts the program on the thread that serves on.
func (p *program) launch(t testing.TB, on chan<- func()) {
	t.Helper()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := begin(on, p.cmd); err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	t.Cleanup(func() {
		p.kill()
		said := p.stdout.String() + p.stderr.String()
		if t.Failed() && said != "" && !p.cmd.ProcessState.Success() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", p, tail(p.stdout.String()), tail(p.stderr.String()))
		}
	})
}

// tail returns the last lines of a program's output.
func tail(s string) string {
	const most = 20
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if n := len(lines) - most; n > 0 {
		lines = append([]string{fmt.Sprintf("(%d lines before)", n)}, lines[n:]...)
	}
	return strings.Join(lines, "\n")
}

// follow gathers the output and waits for the end.
func (p *program) follow(out io.Reader) {
	isReady := sync.OnceFunc(func() { close(p.ready) })
	r := bufio.NewReader(io.TeeReader(out, &p.stdout))
	for {
		line, err := r.ReadString('\n')
		if strings.HasPrefix(line, "ready") {
			isReady()
		}
		if err != nil {
			break
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

func (p *program) String() string { return p.name + " " + strings.Join(p.args, " ") }

// pid is the process identifier.
func (p *program) pid() int { return p.cmd.Process.Pid }

// signal sends a signal; to a program that has ended it does nothing.
func (p *program) signal(s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Signal(s)
	}
}

// kill is kill -9 and the wait for its effect.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// wait waits for the end, fails the test if it doesn't come in time, and returns the exit code: -1 for a signal.
func (p *program) wait(t testing.TB, timeout time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-soon.After(timeout):
		p.signal(syscall.SIGQUIT) // the stacks of its goroutines show what it waits for
		select {
		case <-p.ended:
		case <-soon.After(5 * time.Second):
			p.kill()
		}
		t.Fatalf("%s: still running after %v", p, timeout)
	}
	return p.cmd.ProcessState.ExitCode()
}

// release interrupts a program that holds connections (--hold), which ends well.
func (p *program) release(t testing.TB) {
	t.Helper()
	p.signal(syscall.SIGINT)
	if code := p.wait(t, cliTimeout); code != 0 {
		t.Errorf("%s: exit code %d after SIGINT: %s", p, code, p.stderr.String())
	}
}

// targetProgram is an nvmetgt that serves.
type targetProgram struct {
	*program
	addr netip.Addr
}

// startTarget starts nvmetgt on a loopback address of its own, with both transports, and
// waits until it serves. args are those of serve, --volume at least.
func startTarget(t testing.TB, args ...string) *targetProgram {
	t.Helper()
	return startTargetAt(t, freeAddr(t), args...)
}

// startTargetAt is startTarget on an address that the test chose.
func startTargetAt(t testing.TB, addr netip.Addr, args ...string) *targetProgram {
	t.Helper()
	return startServe(t, addr, append(serveFlags(addr), args...)...)
}

// serveFlags are those with which nvmetgt serves at an address, over both transports.
func serveFlags(addr netip.Addr) []string {
	at := addr.String() + ":" + nvmePort
	return []string{"--nqn", testNQN, "--listen", "rdma://" + at, "--listen", "tcp://" + at}
}

// startServe starts `nvmetgt serve` with any flags, and waits until it serves on addr.
func startServe(t testing.TB, addr netip.Addr, args ...string) *targetProgram {
	t.Helper()
	p := start(t, "nvmetgt", append([]string{"serve"}, args...)...)
	p.awaitReady(t)
	return &targetProgram{p, addr}
}

// awaitReady waits until the program, which serves, has said that it is ready.
func (p *program) awaitReady(t testing.TB) {
	t.Helper()
	select {
	case <-p.ready:
	case <-p.ended:
		t.Fatalf("%s: ended before it was ready: %v\n%s", p, p.err, p.stderr.String())
	case <-soon.After(20 * time.Second):
		t.Fatalf("%s: not ready after 20 s", p)
	}
}

// remote returns the address of the target's NVMe service.
func (p *targetProgram) remote() netip.AddrPort {
	port, _ := strconv.ParseUint(nvmePort, 10, 16)
	return netip.AddrPortFrom(p.addr, uint16(port))
}

// stop ends the target as an operator does; it must end cleanly.
func (p *targetProgram) stop(t testing.TB) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(t, 15*time.Second); code != 0 {
		t.Errorf("%s: exit code %d after SIGTERM\n%s", p, code, p.stderr.String())
	}
}

// alone is called by a test that measures, or that looks at something all tests of this process share: it fails if the
// test runs in parallel with others. Tests that only run programs mostly wait, and are parallel.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("NVMEOF_TEST", t.Name()) // the testing package refuses this in parallel tests, and refuses Parallel after it
}

// freeAddr returns a loopback address on which the ports of RoCE and NVMe are free.
func freeAddr(t testing.TB) netip.Addr {
	t.Helper()
	for range 100 {
		a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))})
		u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, softrnic.Port)))
		if err != nil {
			continue
		}
		u.Close()
		l, err := net.Listen("tcp4", a.String()+":"+nvmePort)
		if err != nil {
			continue
		}
		l.Close()
		return a
	}
	t.Fatal("no free address in 127.0.0.0/8")
	return netip.Addr{}
}

// result is the result of a run of nvmeinit.
type result struct {
	stdout, stderr string
	code           int
}

// to returns the flags that name a target.
func (p *targetProgram) to(transport string) []string {
	return []string{"-t", transport, "-a", p.addr.String(), "-s", nvmePort}
}

// startInit starts a verb of nvmeinit on the target.
func (p *targetProgram) startInit(t testing.TB, transport, verb string, args ...string) *program {
	t.Helper()
	return start(t, "nvmeinit", append(append([]string{verb}, p.to(transport)...), args...)...)
}

// run runs a verb of nvmeinit on the target to its end.
func (p *targetProgram) run(t testing.TB, timeout time.Duration, transport, verb string, args ...string) result {
	t.Helper()
	return p.startInit(t, transport, verb, args...).result(t, timeout)
}

// must is run for commands that must succeed; it returns the standard output.
func (p *targetProgram) must(t testing.TB, timeout time.Duration, transport, verb string, args ...string) string {
	t.Helper()
	r := p.run(t, timeout, transport, verb, args...)
	if r.code != 0 {
		t.Fatalf("nvmeinit %s -t %s %v: exit code %d: %s", verb, transport, args, r.code, r.stderr)
	}
	return r.stdout
}

// nvmeinit runs it with any arguments to its end.
func nvmeinit(t testing.TB, timeout time.Duration, args ...string) result {
	t.Helper()
	return start(t, "nvmeinit", args...).result(t, timeout)
}

// result waits for the end.
func (p *program) result(t testing.TB, timeout time.Duration) result {
	t.Helper()
	code := p.wait(t, timeout)
	return result{p.stdout.String(), p.stderr.String(), code}
}

// procFigures are what /proc tells of a process.
type procFigures struct {
	cpu     time.Duration // of all its threads, to the nanosecond
	turns   int64         // that they had on a processor
	rss     int64         // bytes
	fds     int
	threads int
}

// figures reads those of a running program.
func (p *program) figures(t testing.TB) procFigures {
	t.Helper()
	f, err := readProc(p.pid())
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return f
}

func readProc(pid int) (f procFigures, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return f, err
	}
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		return f, err
	}
	// proc_pid_stat(5), counted from 1; the second field is the name in parentheses.
	_, rest, _ := strings.Cut(string(stat), ") ")
	s := strings.Fields(rest)
	if len(s) < 22 {
		return f, errors.New(dir + "stat is short")
	}
	cpu, turns, err := readCPU(dir)
	if err != nil {
		return f, err
	}
	field := func(i int) int64 { n, _ := strconv.ParseInt(s[i-3], 10, 64); return n }
	return procFigures{
		cpu:     cpu,
		turns:   turns,
		threads: int(field(20)),
		rss:     field(24) * int64(os.Getpagesize()),
		fds:     len(fds),
	}, nil
}

// readCPU adds up the first and third numbers of the threads' schedstat: nanoseconds on a processor, and turns there.
func readCPU(dir string) (used time.Duration, turns int64, err error) {
	threads, err := filepath.Glob(dir + "task/*/schedstat")
	if err != nil {
		return 0, 0, err
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, 0, err
		}
		var ns, waited, n int64
		if _, err := fmt.Sscan(string(text), &ns, &waited, &n); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		used += time.Duration(ns)
		turns += n
	}
	return used, turns, nil
}

// eventually waits until cond holds and fails the test if it doesn't in time.
func eventually(t testing.TB, timeout time.Duration, what string, cond func() bool) {
	t.Helper()
	const pause = 20 * time.Millisecond
	for range timeout / pause { // counted in steps, so that a machine that stands still uses up only one
		if cond() {
			return
		}
		time.Sleep(pause)
	}
	if !cond() {
		t.Fatalf("%s: not within %v", what, timeout)
	}
}

// waitText waits until a program has written something.
func waitText(t testing.TB, o *output, text string) {
	t.Helper()
	eventually(t, cliTimeout, fmt.Sprintf("%q", text), func() bool { return strings.Contains(o.String(), text) })
}

// installed finds a program that tests/setup.sh installs, or skips the test.
func installed(t *testing.T, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not here: tests/setup.sh installs it")
	}
	return path
}

func writeText(t testing.TB, path, text string) {
	t.Helper()
	writeFile(t, path, []byte(text))
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
