package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// serveSubsystems serves subsystems over TCP, each with a namespace.
func serveSubsystems(t *testing.T, names ...string) (*target.Target, *tcp.Listener) {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	cfg := target.Config{}
	for _, name := range names {
		cfg.Subsystems = append(cfg.Subsystems, target.SubsystemConfig{NQN: name, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}})
	}
	tgt, err := target.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tgt.Close(context.Background()) })
	return tgt, listenTCP(t, tgt)
}

// listenTCP has a target listen on a free port.
func listenTCP(t *testing.T, tgt *target.Target) *tcp.Listener {
	t.Helper()
	l, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// everythingAt returns what connect-all uses for the subsystems that are announced at l; nothing times out.
func everythingAt(t *testing.T, l *tcp.Listener) *everything {
	t.Helper()
	c := &cobra.Command{}
	f := &connFlags{}
	f.paths.add(c, "--hold")
	f.add(c, true)
	f.timeout, f.hostNQN, f.stderr = time.Hour, nvme.NewHostID().NQN(), func() io.Writer { return io.Discard }
	e := &everything{flags: f, fabrics: &fabrics{flags: f}, news: map[string]*pathNews{}}
	t.Cleanup(func() { _ = e.close() })
	var err error
	if e.start, err = e.fabrics.config(t.Context(), cli.Endpoint{Transport: nvme.TransportTCP, Addr: l.Addr()}, nvme.DiscoveryNQN); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestConnectedUnusable: a subsystem with an unusable namespace, such as one with metadata, doesn't prevent
// connect-all from showing the others, nor from showing that subsystem.
func TestConnectedUnusable(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:"
	_, l := serveSubsystems(t, nqn+"bad", nqn+"good")
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	id := nvme.NewHostID()
	e := &everything{flags: &connFlags{}, fabrics: &fabrics{}}
	e.failed.begin()
	defer e.close()
	for _, name := range []string{"bad", "good"} {
		path := host.Config{Transport: tr, Remote: l.Addr(), SubNQN: nqn + name, HostID: id, HostNQN: id.NQN()}
		if name == "bad" {
			path.Transport = &altering{tr, func(r *host.Request, _ *nvme.Completion) {
				var p nvme.IdentifyNamespace
				if r.Cmd.Opcode() == nvme.OpIdentify && r.Cmd.CNS() == nvme.CNSNamespace && p.Parse(r.Data) == nil {
					p.LBAF[0].MS = 8
					copy(r.Data, p.AppendTo(nil))
				}
			}}
		}
		s, err := multipath.Connect(t.Context(), multipath.Config{Paths: []host.Config{path}})
		if err != nil {
			t.Fatal(err)
		}
		e.subs = append(e.subs, s)
	}
	var out strings.Builder
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetOut(&out)
	if err := e.show(c); err != nil {
		t.Error(err)
	}
	if said := out.String(); strings.Contains(said, "no subsystems") || strings.Count(said, "connected to "+nqn) != 2 || strings.Count(said, "namespace   1: ") != 1 {
		t.Errorf("it says\n%s", said)
	}
	if err := e.failed.err(); err == nil || !strings.Contains(err.Error(), "subsystem "+nqn+"bad: ") || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("and %v", err)
	}
}

// TestPrintConnected: people see the namespaces and the paths, and what is wrong with a path.
func TestPrintConnected(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:s"
	var out strings.Builder
	printConnected(&out, &connectedJSON{SubNQN: nqn,
		Namespaces: []foundNamespace{{NSID: 1, Size: 1 << 20, Block: 4096, UUID: "a603bd2e-b11d-8d24-b7b8-95dbe116670a"}},
		Paths: []pathJSON{
			{Path: "tcp://192.0.2.1:4420", State: "live", Access: "optimized"}, {Path: "tcp://192.0.2.2:4420", State: "live"},
			{Path: "tcp://192.0.2.3:4420", State: "connecting", Error: "connection refused"},
		}})
	want := "connected to " + nqn + `
  namespace   1: 1.0 MiB, blocks of 4096 bytes, UUID a603bd2e-b11d-8d24-b7b8-95dbe116670a
  path        tcp://192.0.2.1:4420: live, optimized
  path        tcp://192.0.2.2:4420: live
  path        tcp://192.0.2.3:4420: connecting: connection refused
`
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
}

// silentListener accepts connections and answers none of them. When n are open at the same time it closes them, and
// those that come later.
func silentListener(t *testing.T, n int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if open = append(open, c); len(open) >= n {
				for _, c := range open {
					_ = c.Close()
				}
			}
		}
	}()
	return l
}

// TestConnectedAtOnce: connect-all waits for all subsystems at the same time, so that a path that doesn't answer delays
// it once. Here it would wait for an hour for each.
func TestConnectedAtOnce(t *testing.T) {
	const subsystems = 10
	var names []string
	for i := range subsystems {
		names = append(names, fmt.Sprint("nqn.2026-11.org.example:s", i))
	}
	tgt, l := serveSubsystems(t, names...)
	silent := silentListener(t, subsystems)
	for _, at := range []string{l.Addr().String(), silent.Addr().String()} {
		if err := tgt.AddPort(tcp.DiscoveryPort(netip.MustParseAddrPort(at))); err != nil {
			t.Fatal(err)
		}
	}
	e := everythingAt(t, l)
	connected := make(chan error, 1)
	go func() { connected <- e.connect(t.Context()) }()
	if err, ok := soon.Receive(connected); !ok || err != nil {
		t.Fatalf("it ended: %v, with %v", ok, err)
	}
	if len(e.subs) != subsystems || e.failed.any() {
		t.Errorf("%d subsystems; %v", len(e.subs), e.failed.err())
	}
	for i, s := range e.subs {
		if want := fmt.Sprint("nqn.2026-11.org.example:s", i); s.SubNQN() != want {
			t.Errorf("subsystem %d is %s, want %s", i, s.SubNQN(), want)
		}
	}
}

// TestConnectedOnce: connect-all connects to a subsystem once, by one path or by several, and follows a discovery
// controller once, however often it looks for what there is, and adds the paths that the subsystem has gained.
func TestConnectedOnce(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:s"
	tgt, l := serveSubsystems(t, nqn)
	e := everythingAt(t, l)
	followed := 0
	e.follow = func(host.Config) { followed++ }
	var first *multipath.Subsystem
	announced := 0
	for _, want := range []int{1, 1, 2, 3, 3} {
		for ; announced < want; announced++ {
			if announced > 0 {
				l = listenTCP(t, tgt)
			}
			if err := tgt.AddPort(tcp.DiscoveryPort(l.Addr())); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.failed.err(); err != nil || len(e.subs) != 1 {
			t.Fatalf("%d subsystems; %v", len(e.subs), err)
		}
		if first == nil {
			first = e.subs[0]
		}
		if paths := len(e.subs[0].Paths()); e.subs[0] != first || paths != want {
			t.Errorf("the first connection remained: %v; %d paths, want %d", e.subs[0] == first, paths, want)
		}
	}
	if followed != 1 {
		t.Errorf("the discovery controller is followed %d times", followed)
	}
}

// TestConnectedEndless: discovery controllers that name others, and other subsystems, each time that they are asked don't
// make connect-all follow, or remember, ever more.
func TestConnectedEndless(t *testing.T) {
	_, l := serveSubsystems(t, "nqn.2026-11.org.example:s")
	e := everythingAt(t, l)
	followed := 0
	e.follow = func(host.Config) { followed++ }
	for i := range 2 * maxFollowed {
		e.failed.begin()
		cfg := e.start
		cfg.Remote = netip.AddrPortFrom(cfg.Remote.Addr(), uint16(i+1))
		e.service(&cfg)
		cfg.Remote, cfg.SubNQN = l.Addr(), fmt.Sprint("nqn.2026-11.org.example:none", i)
		e.subsystems(t.Context(), []string{cfg.SubNQN}, map[string][]host.Config{cfg.SubNQN: {cfg}})
		if !e.failed.any() {
			t.Fatalf("%s is there", cfg.SubNQN)
		}
	}
	if followed != maxFollowed || len(e.news) != 1 || len(e.subs) != 0 {
		t.Errorf("%d are followed, want %d; %d and %d subsystems are remembered, want only the last", followed, maxFollowed, len(e.news), len(e.subs))
	}
}

// TestConnectedWithoutTLS: connect-all talks in clear text to no port that demands TLS, and says so.
func TestConnectedWithoutTLS(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:s"
	tgt, l := serveSubsystems(t, nqn)
	port := tcp.DiscoveryPort(l.Addr())
	port.Secure = true
	if err := tgt.AddPort(port); err != nil {
		t.Fatal(err)
	}
	e := everythingAt(t, l)
	if err := e.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("discovery entry tcp://%s: it demands TLS, which isn't supported", l.Addr())
	if err := e.failed.err(); len(e.subs) != 0 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d subsystems; %v, want %s", len(e.subs), err, want)
	}
}
