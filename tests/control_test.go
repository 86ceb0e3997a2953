package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/control"
)

// configured is a target that a configuration file describes.
type configured struct {
	*targetProgram
	file, socket string
}

// Names in the configuration of startConfigured.
const (
	diskNQN  = "nqn.2026-11.io.nvme-anywhere:disk"
	otherNQN = "nqn.2026-11.io.nvme-anywhere:other"
	oneHost  = "nqn.2026-11.io.nvme-anywhere:host1"
	twoHost  = "nqn.2026-11.io.nvme-anywhere:host2"
)

// startConfigured starts a target with two subsystems: disk for everybody, other for two hosts.
func startConfigured(t *testing.T) *configured {
	t.Helper()
	return serveSubsystems(t, fmt.Sprintf(`
- nqn: %s
  namespaces:
  - {volume: "mem:16MiB"}
- nqn: %s
  hosts: [%s, %s]
  namespaces:
  - {nsid: 5, volume: "%s", size: 8MiB}
`, diskNQN, otherNQN, oneHost, twoHost, filepath.Join(t.TempDir(), "other.img")))
}

// serveSubsystems starts a target on both transports, with these subsystems and what may follow them in the file. ADDR
// there is its address.
func serveSubsystems(t *testing.T, subsystems string) *configured {
	t.Helper()
	dir, addr := t.TempDir(), freeAddr(t)
	c := &configured{file: filepath.Join(dir, "target.yaml"), socket: filepath.Join(dir, "control")}
	text := "listen: [rdma://ADDR:4420, tcp://ADDR:4420]\ncontrol: " + c.socket + "\nsubsystems:" + subsystems
	writeText(t, c.file, strings.ReplaceAll(text, "ADDR", addr.String()))
	c.targetProgram = startServe(t, addr, "--config", c.file)
	return c
}

// ctl runs a command of nvmetgt ctl.
func (c *configured) ctl(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, "nvmetgt", append([]string{"ctl", "--socket", c.socket}, args...)...).result(t, cliTimeout)
}

// change is ctl for changes that must succeed.
func (c *configured) change(t *testing.T, args ...string) string {
	t.Helper()
	r := c.ctl(t, args...)
	if r.code != 0 {
		t.Fatalf("nvmetgt ctl %v: exit code %d: %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// status returns the target's status.
func (c *configured) status(t *testing.T) *control.Status {
	t.Helper()
	st := new(control.Status)
	if err := json.Unmarshal([]byte(c.change(t, "show", "-o", "json")), st); err != nil {
		t.Fatal(err)
	}
	return st
}

// hosts returns the NQNs of the hosts that are connected to a subsystem.
func (c *configured) hosts(t *testing.T, nqn string) (hosts []string) {
	t.Helper()
	for _, s := range c.status(t).Subsystems {
		if s.NQN == nqn {
			for _, ctrl := range s.Controllers {
				hosts = append(hosts, ctrl.HostNQN)
			}
		}
	}
	return hosts
}

// Everything that can change changes under load, over both transports: hosts that a change doesn't concern don't
// notice, the others are notified.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	c := startConfigured(t)
	var loads []*program
	for _, transport := range transports {
		loads = append(loads, c.startInit(t, transport, "bench", "-n", diskNQN, "--rw", "randrw", "--bs", "16k",
			"--iodepth", "8", "--runtime", "60s"))
	}
	hold := func(host string) *program {
		return c.startInit(t, "rdma", "connect", "-n", otherNQN, "-q", host, "--hold")
	}
	one, two := hold(oneHost), hold(twoHost)
	eventually(t, cliTimeout, "the hosts are connected", func() bool {
		return len(c.hosts(t, diskNQN)) == len(loads) && len(c.hosts(t, otherNQN)) == 2
	})

	c.changeNamespaces(t)
	c.changeHosts(t, two)
	c.changeEndpoints(t)

	c.change(t, "remove-subsystem", "-n", otherNQN)
	checkLine(t, c.ctl(t, "remove-subsystem"), "nvmetgt", mistake{code: exitFailure, says: []string{diskNQN, "the last one"}})
	if code := one.wait(t, cliTimeout); code == 0 {
		t.Error("the host of a subsystem that was removed ended as if it wanted to")
	}
	for _, load := range loads {
		select {
		case <-load.ended:
			t.Errorf("%s ended: %s", load, load.stderr.String())
		default:
		}
	}
	if n := len(c.hosts(t, diskNQN)); n != len(loads) {
		t.Errorf("%d hosts are connected, want %d", n, len(loads))
	}
	// The volume of the removed subsystem is free again.
	c.change(t, "reload")
	c.must(t, cliTimeout, "rdma", "connect", "-n", otherNQN, "-q", oneHost)
	c.stop(t)
}

// changeNamespaces adds a namespace and removes it.
func (c *configured) changeNamespaces(t *testing.T) {
	t.Helper()
	if out := c.change(t, "add-namespace", "-n", diskNQN, "--volume", "mem:4MiB", "--nsid", "9"); out != "namespace 9\n" {
		t.Errorf("add-namespace says %q", out)
	}
	if out := c.must(t, cliTimeout, "tcp", "list", "-n", diskNQN); !strings.Contains(out, "4.0 MiB") {
		t.Errorf("the namespace that was added isn't listed:\n%s", out)
	}
	c.change(t, "remove-namespace", "-n", diskNQN, "--nsid", "9")
	if r := c.run(t, cliTimeout, "tcp", "id-ns", "-n", diskNQN, "--nsid", "9"); r.code == 0 {
		t.Error("the namespace that was removed is still there")
	}
}

// changeHosts forbids the host of a program to connect, and allows it again.
func (c *configured) changeHosts(t *testing.T, two *program) {
	t.Helper()
	c.change(t, "forbid-host", "-n", otherNQN, twoHost)
	if code := two.wait(t, cliTimeout); code == 0 {
		t.Error("a host that may connect no more ended as if it wanted to")
	}
	if hosts := c.hosts(t, otherNQN); len(hosts) != 1 || hosts[0] != oneHost {
		t.Errorf("connected are %v, want only %s", hosts, oneHost)
	}
	if r := c.run(t, cliTimeout, "tcp", "connect", "-n", otherNQN, "-q", twoHost); r.code == 0 {
		t.Error("a host that may connect no more connects")
	}
	c.change(t, "allow-host", "-n", otherNQN, twoHost)
	c.must(t, cliTimeout, "tcp", "connect", "-n", otherNQN, "-q", twoHost)
}

// changeEndpoints listens at another address, for a while.
func (c *configured) changeEndpoints(t *testing.T) {
	t.Helper()
	more := freeAddr(t)
	c.change(t, "listen", "rdma://"+more.String())
	c.change(t, "listen", "tcp://"+more.String())
	elsewhere := &targetProgram{c.program, more}
	for _, transport := range transports {
		elsewhere.must(t, cliTimeout, transport, "connect", "-n", diskNQN)
	}
	c.change(t, "unlisten", "rdma://"+more.String())
	c.change(t, "unlisten", "tcp://"+more.String())
	if r := elsewhere.run(t, cliTimeout, "tcp", "connect", "-n", diskNQN); r.code == 0 {
		t.Error("an endpoint that was closed still answers")
	}
}

// A change that isn't possible as a whole is not made at all.
func TestLiveChangeRefused(t *testing.T) {
	t.Parallel()
	c := startConfigured(t)
	before := c.change(t, "config")
	taken := start(t, "nvmetgt", "serve", "--volume", "mem:1MiB", "--listen", "tcp://"+freeAddr(t).String(), "--control", c.socket)
	checkLine(t, taken.result(t, cliTimeout), "nvmetgt", mistake{code: exitFailure, says: []string{c.socket, "another program"}})
	next := func(edit func(text string) string) string {
		path := filepath.Join(t.TempDir(), "next.yaml")
		writeText(t, path, edit(before))
		return path
	}
	for _, m := range []mistake{
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "no/such/file"}, exitFailure, []string{"no/such/file"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:1MiB", "--nsid", "1"}, exitFailure, []string{"--nsid 1", "already", "free"}},
		{[]string{"add-namespace", "-n", "nqn.2026-11.io.nvme-anywhere:none", "--volume", "mem:1MiB"}, exitFailure, []string{"no such subsystem"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:x"}, exitUsage, []string{"volume mem:x", "64MiB"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "new.img", "--size", "1000"}, exitUsage, []string{"new.img", "take 4096"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:1MiB", "--block-size", "1000"}, exitUsage, []string{"add-namespace", "power of two"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:1MiB", "--io", "fast"}, exitUsage, []string{`"fast"`, "buffered"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:1MiB", "--nguid", "12"}, exitUsage, []string{`--nguid "12"`, "32 hexadecimal digits"}},
		{[]string{"add-namespace", "-n", diskNQN, "--volume", "mem:1MiB", "--eui64", "0"}, exitUsage, []string{`--eui64 "0"`, "16 hexadecimal digits"}},
		{[]string{"set-ana", "0", "optimized"}, exitUsage, []string{"set-ana", "group 0", "want 1 to"}},
		{[]string{"set-ana", "129", "optimized"}, exitUsage, []string{"set-ana", "group 129", "want 1 to"}},
		{[]string{"set-ana", "x", "optimized"}, exitUsage, []string{`set-ana "x"`, "number of an ANA group"}},
		{[]string{"set-ana", "1", "good"}, exitUsage, []string{`state "good"`, "want optimized"}},
		{[]string{"set-ana", "1"}, exitUsage, []string{"a group and its state"}},
		{[]string{"add-namespace", "--volume", "mem:1MiB"}, exitUsage, []string{"2 subsystems", "-n NQN"}},
		{[]string{"remove-namespace", "-n", diskNQN, "--nsid", "3"}, exitFailure, []string{"--nsid 3", "no such namespace"}},
		{[]string{"add-subsystem", "-n", "disk"}, exitUsage, []string{"--nqn", "disk"}},
		{[]string{"add-subsystem", "-n", diskNQN}, exitFailure, []string{diskNQN, "already"}},
		{[]string{"forbid-host", "-n", diskNQN, oneHost}, exitFailure, []string{"every host"}},
		{[]string{"listen", "tcp://" + c.addr.String()}, exitFailure, []string{"listens there already"}},
		{[]string{"listen", "udp://127.0.0.1"}, exitUsage, []string{"udp", "rdma or tcp"}},
		{[]string{"unlisten", "tcp://127.0.0.1:1"}, exitFailure, []string{"doesn't listen there"}},
		{[]string{"set-ana", "1", "optimized", "--listen", "tcp://127.0.0.1:1"}, exitFailure, []string{"--listen tcp://127.0.0.1:1", "doesn't listen there"}},
		{[]string{"show", "-o", "xml"}, exitUsage, []string{"-o", "json"}},
		{[]string{"apply", "no-such-file"}, exitFailure, []string{"no-such-file"}},
		{
			[]string{"apply", next(func(s string) string { return s + "network:\n  queue_depth: 64\n" })},
			exitFailure,
			[]string{"network", "restart"},
		},
		{ // the first part is possible, the second isn't
			[]string{"apply", next(func(s string) string {
				s = strings.Replace(s, "volume: mem:16MiB", "volume: mem:16MiB\n      - nsid: 2\n        volume: mem:1MiB", 1)
				return strings.Replace(s, "listen:\n", "listen:\n  - tcp://192.0.2.77:4420\n", 1)
			})},
			exitFailure,
			[]string{"192.0.2.77", "not an address of this host"},
		},
		{
			[]string{"apply", next(func(s string) string { return strings.Replace(s, "size: 8.0 MiB", "size: 16 MiB", 1) })},
			exitFailure,
			[]string{"subsystems[1].namespaces[0]", "remove"},
		},
	} {
		t.Run(m.args[0], func(t *testing.T) { checkLine(t, c.ctl(t, m.args...), "nvmetgt", m) })
	}
	if after := c.change(t, "config"); after != before {
		t.Errorf("the configuration changed from\n%s to\n%s", before, after)
	}
	c.must(t, cliTimeout, "tcp", "connect", "-n", diskNQN)
	c.stop(t)
	checkLine(t, c.ctl(t, "show"), "nvmetgt", mistake{code: exitFailure, says: []string{c.socket, "--control"}})
}

// TestApplyPipe: the output of "ctl config" can be piped into "ctl apply", through a stream editor or not: the pipe is
// read once, as it would be found empty the second time.
func TestApplyPipe(t *testing.T) {
	t.Parallel()
	c := startConfigured(t)
	defer c.stop(t)
	next := strings.Replace(c.change(t, "config"), "- "+oneHost+"\n", "", 1)
	apply := newProgram(t, "nvmetgt", "ctl", "--socket", c.socket, "apply", "/dev/stdin")
	apply.cmd.Stdin = strings.NewReader(next)
	apply.launch(t, starting)
	if r := apply.result(t, cliTimeout); r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if now := c.change(t, "config"); strings.Contains(now, oneHost) {
		t.Errorf("%s may connect still:\n%s", oneHost, now)
	}
}

// The saved configuration is used by the next start.
func TestSaveConfiguration(t *testing.T) {
	t.Parallel()
	c := startConfigured(t)
	c.change(t, "add-subsystem", "-n", testNQN, "--serial", "42", "--allow-host", oneHost)
	if out := c.change(t, "add-namespace", "-n", diskNQN, "--volume", "mem:1MiB"); out != "namespace 2\n" { // the lowest free one
		t.Errorf("add-namespace says %q", out)
	}
	c.change(t, "add-namespace", "-n", testNQN, "--volume", "null:1GiB", "--uuid", "6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001",
		"--nguid", "ef90689c-6c46-d44c-89c1-4067801309a8", "--eui64", "0123456789abcdef")
	want := c.change(t, "config")
	c.change(t, "save")
	c.stop(t)
	c.targetProgram = startServe(t, c.addr, "--config", c.file)
	if got := c.change(t, "config"); got != want {
		t.Errorf("after the restart it is\n%s, want\n%s", got, want)
	}
	if out := c.must(t, cliTimeout, "tcp", "list", "-n", testNQN, "-q", oneHost); !strings.Contains(out, "6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001") {
		t.Errorf("list shows\n%s", out)
	}
	out := c.must(t, cliTimeout, "rdma", "id-ns", "-n", testNQN, "-q", oneHost)
	for _, id := range []string{"ef90689c6c46d44c89c14067801309a8", "0123456789abcdef"} {
		if !strings.Contains(out, id) {
			t.Errorf("id-ns doesn't show %s:\n%s", id, out)
		}
	}
	// A socket left behind by a killed program doesn't matter.
	c.kill()
	c.targetProgram = startServe(t, c.addr, "--config", c.file)
	c.stop(t)
}

func TestConfigurationFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	writeText(t, bad, "subsystems:\n- nqn: "+testNQN+"\n  namespacs: []\n")
	foreign := filepath.Join("..", "internal", "config", "testdata", "nvmetcli.json")
	check(t, "nvmetgt", []mistake{
		{[]string{"check", bad}, exitUsage, []string{bad + ":3: ", `"namespacs"`, `"namespaces"`}},
		{[]string{"serve", "--config", bad}, exitUsage, []string{bad + ":3: "}},
		{[]string{"serve", "--config", bad, "--volume", "mem:1MiB"}, exitUsage, []string{"--config", "leave the other flags out"}},
		{[]string{"serve", "--config", filepath.Join(dir, "none.yaml")}, exitFailure, []string{"none.yaml", "no such file"}},
		{[]string{"check"}, exitUsage, []string{"one file"}},
		{[]string{"check", foreign}, exitUsage, []string{foreign + ":", "there is no key"}},
		{[]string{"import", bad}, exitUsage, []string{bad + ":1: "}},
	})
	r := start(t, "nvmetgt", "import", foreign).result(t, cliTimeout)
	if r.code != 0 || !strings.Contains(r.stderr, "note: ") {
		t.Fatalf("import: exit code %d: %s", r.code, r.stderr)
	}
	good := filepath.Join(dir, "good.yaml")
	writeText(t, good, r.stdout)
	if r := start(t, "nvmetgt", "check", good).result(t, cliTimeout); r.code != 0 || !strings.Contains(r.stdout, "2 subsystems with 2 namespaces") {
		t.Errorf("check of what was imported: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}
