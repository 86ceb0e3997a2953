package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// serveNamed serves a target with one subsystem, and announces it on both transports.
func serveNamed(t *testing.T, nqn string) (*target.Target, netip.AddrPort) {
	t.Helper()
	v := newMemory(t, 1<<20)
	tgt, addr := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: nqn, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}},
	}})
	announce(t, tgt, addr)
	return tgt, addr
}

// announce adds both ports at an address to the discovery log.
func announce(t *testing.T, tgt *target.Target, addr netip.AddrPort) {
	t.Helper()
	for _, p := range []target.Port{rdma.DiscoveryPort(addr, nvme.RDMAProviderRoCE2), tcp.DiscoveryPort(addr)} {
		if err := tgt.AddPort(p); err != nil {
			t.Fatal(err)
		}
	}
}

// serveReferring serves two targets that refer to each other, the second one with a subsystem of another name.
func serveReferring(t *testing.T, other string) (one *target.Target, at netip.AddrPort, two *target.Target, second netip.AddrPort) {
	t.Helper()
	one, at = serveNamed(t, testNQN)
	two, second = serveNamed(t, other)
	for _, r := range []struct {
		from *target.Target
		to   netip.AddrPort
	}{{one, second}, {two, at}} {
		if err := r.from.AddReferral(target.Referral{Transport: nvme.TransportTCP, Addr: r.to}); err != nil {
			t.Fatal(err)
		}
	}
	return one, at, two, second
}

// TestConnectAll: discovery and its referrals, which are circular, find two subsystems with two paths each.
func TestConnectAll(t *testing.T) {
	noLeaks(t)
	const other = testNQN + "-other"
	_, at, _, second := serveReferring(t, other)
	r := nvmeinit(t, time.Minute, "connect-all", "-t", "tcp", "-a", at.Addr().String(), "-o", "json")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var found struct {
		Subsystems []struct {
			SubNQN     string       `json:"subnqn"`
			Paths      []pathReport `json:"paths"`
			Namespaces []struct {
				NSID int `json:"nsid"`
			} `json:"namespaces"`
		} `json:"subsystems"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &found); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found.Subsystems {
		for _, p := range s.Paths {
			got = append(got, strings.Join([]string{s.SubNQN, p.Path, p.State, p.Access}, " "))
		}
		if len(s.Namespaces) != 1 {
			t.Errorf("%s: namespaces %+v", s.SubNQN, s.Namespaces)
		}
	}
	var want []string
	for _, s := range []struct {
		nqn string
		at  netip.AddrPort
	}{{testNQN, at}, {other, second}} {
		for _, transport := range transports {
			want = append(want, s.nqn+" "+atPort(transport, s.at.String())+" live optimized")
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	// A subsystem that is asked for must exist.
	r = nvmeinit(t, time.Minute, "connect-all", "-t", "tcp", "-a", at.Addr().String(), "-n", other)
	if r.code != 0 || strings.Count(r.stdout, "connected to ") != 1 {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	r = nvmeinit(t, time.Minute, "connect-all", "-t", "tcp", "-a", at.Addr().String(), "-n", other+"-none")
	if r.code != exitFailure || !strings.Contains(r.stderr, "no such subsystem") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestConnectAllFollows: with --hold, ports and subsystems that are added later are connected to.
func TestConnectAllFollows(t *testing.T) {
	noLeaks(t)
	const other = testNQN + "-other"
	one, at, two, _ := serveReferring(t, other)
	hold := start(t, "nvmeinit", "connect-all", "-t", "rdma", "-a", at.Addr().String(), "--hold")
	waitText(t, &hold.stderr, "holding the connections")
	third := listenPair(t, two)
	announce(t, two, third)
	waitText(t, &hold.stderr, other+": path "+atPort("tcp", third.String())+": live")
	const late = testNQN + "-late"
	if _, err := one.AddSubsystem(target.SubsystemConfig{NQN: late, AllowAnyHost: true}); err != nil {
		t.Fatal(err)
	}
	waitText(t, &hold.stderr, late+": path "+atPort("rdma", at.String())+": live")
	hold.release(t)
}

// TestConnectAllTriesAgain: the destination of a referral that isn't there in the beginning is connected to once it is,
// though nothing notifies of that, and its absence is reported once.
func TestConnectAllTriesAgain(t *testing.T) {
	noLeaks(t)
	const late = testNQN + "-late"
	one, at := serveNamed(t, testNQN)
	absent := netip.AddrPortFrom(freeAddr(t), 4420)
	if err := one.AddReferral(target.Referral{Transport: nvme.TransportTCP, Addr: absent}); err != nil {
		t.Fatal(err)
	}
	hold := start(t, "nvmeinit", "connect-all", "-t", "tcp", "-a", at.Addr().String(), "--hold", "--reconnect-delay", "1")
	waitText(t, &hold.stderr, "holding the connections")
	waitText(t, &hold.stderr, absent.String())
	v := newMemory(t, 1<<20)
	two, second := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: late, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}},
	}})
	announce(t, two, second)
	time.Sleep(3 * time.Second) // in which it is retried, and not reported
	if n := strings.Count(hold.stderr.String(), absent.String()); n != 1 {
		t.Errorf("told %d times:\n%s", n, hold.stderr.String())
	}
	listenAt(t, two, absent)
	waitText(t, &hold.stderr, late+": path "+atPort("tcp", second.String())+": live")
	hold.release(t)
}

// TestConnectAllDiscoveryDown: that the discovery controller is gone is reported once, however often it is asked again,
// and so is its return.
func TestConnectAllDiscoveryDown(t *testing.T) {
	noLeaks(t)
	addr := freeAddr(t)
	absent := netip.AddrPortFrom(freeAddr(t), 4420)
	serve := func() *targetProgram {
		return startTargetAt(t, addr, "--volume", "mem:1MiB", "--referral", atPort("tcp", absent.String()))
	}
	p := serve()
	hold := start(t, "nvmeinit", "connect-all", "-t", "tcp", "-a", addr.String(), "--hold", "--reconnect-delay", "1")
	waitText(t, &hold.stderr, "holding the connections")
	// It asks repeatedly, since a referral leads nowhere; the target dies between two requests, not during one.
	eventually(t, 20*time.Second, "the second question", func() bool { return strings.Count(p.stderr.String(), "host disconnected") > 1 })
	p.kill()
	waitText(t, &hold.stderr, "discovery: connect to "+atPort("tcp", p.remote().String())+": connection refused")
	hangUp(t, p.remote(), 4) // it is asked again, and that isn't reported
	serve()
	waitText(t, &hold.stderr, "discovery: "+atPort("tcp", p.remote().String())+" answers again")
	for text, want := range map[string]int{"discovery: ": 2, absent.String(): 1} {
		if n := strings.Count(hold.stderr.String(), text); n != want {
			t.Errorf("%q is said %d times, want %d:\n%s", text, n, want, hold.stderr.String())
		}
	}
	hold.release(t)
}

// TestConnectAllGivenUp: a subsystem whose only path was given up is connected to anew once its target is back.
func TestConnectAllGivenUp(t *testing.T) {
	noLeaks(t)
	const other = testNQN + "-other"
	one, at := serveNamed(t, testNQN)
	addr := freeAddr(t)
	second, absent := netip.AddrPortFrom(addr, 4420), netip.AddrPortFrom(freeAddr(t), 4420)
	for _, to := range []netip.AddrPort{second, absent} { // because of the latter discovery is repeated
		if err := one.AddReferral(target.Referral{Transport: nvme.TransportTCP, Addr: to}); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "target.yaml")
	writeText(t, file, fmt.Sprintf(`listen: ["%s"]
subsystems:
- nqn: %s
  namespaces:
  - {volume: "mem:1MiB"}
`, atPort("tcp", second.String()), other))
	p := startServe(t, addr, "--config", file)
	hold := start(t, "nvmeinit", "connect-all", "-t", "tcp", "-a", at.Addr().String(), "-n", other, "--hold",
		"--reconnect-delay", "1", "--ctrl-loss-tmo", "1")
	waitText(t, &hold.stderr, "holding the connections")
	p.kill()
	path := other + ": path " + atPort("tcp", second.String())
	waitText(t, &hold.stderr, path+": given up")
	startServe(t, addr, "--config", file)
	waitText(t, &hold.stderr, path+": live\n")
	hold.release(t)
}

// hangUp closes n TCP connections to addr as soon as they are made.
func hangUp(t *testing.T, addr netip.AddrPort, n int) {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range n {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// TestHostNQN: the name is stable and valid, and a new one differs.
func TestHostNQN(t *testing.T) {
	t.Parallel()
	show := func(verb string) string {
		r := nvmeinit(t, 10*time.Second, verb)
		name := strings.TrimSpace(r.stdout)
		if err := nvme.CheckNQN(name); r.code != 0 || err != nil {
			t.Errorf("%s: exit code %d, %v: %s", verb, r.code, err, r.stderr)
		}
		return name
	}
	if a, b := show("show-hostnqn"), show("show-hostnqn"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := show("gen-hostnqn"), show("gen-hostnqn"); a == b {
		t.Error("two new names are the same")
	}
}
