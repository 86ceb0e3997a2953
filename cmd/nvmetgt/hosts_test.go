package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
)

const (
	narrowedNQN = "nqn.2026-11.org.example:narrowed"
	staysNQN    = "nqn.2026-11.org.example:stays"
	goesNQN     = "nqn.2026-11.org.example:goes"
)

// freeEndpoint returns a TCP endpoint of this host that nobody listens on. Only these tests use its address: on an
// address of others, somebody who listens on any free port might get it first.
func freeEndpoint(t *testing.T) cli.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return cli.Endpoint{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort(l.Addr().String())}
}

// come connects a host until the test ends.
func come(t *testing.T, e cli.Endpoint, nqn string, change ...func(*host.Config)) (*hostlib.Host, error) {
	t.Helper()
	cfg := host.Config{Remote: e.Addr, SubNQN: narrowedNQN, HostNQN: nqn, Queues: 1}
	for _, f := range change {
		f(&cfg)
	}
	h, err := hostlib.Dial(t.Context(), "tcp", cfg)
	if err == nil {
		t.Cleanup(func() { _ = h.Close() }) // the target may have ended it
	}
	return h, err
}

// narrowing returns a target that allows two hosts, and its next configuration: with another namespace and
// endpoint, and one host less.
func narrowing(t *testing.T) (s *server, next *config.Config) {
	t.Helper()
	s = started(t, &config.Config{Subsystems: []config.Subsystem{{
		NQN: narrowedNQN, Hosts: []string{staysNQN, goesNQN}, Namespaces: []config.Namespace{{NSID: 1, Volume: "mem:1MiB"}},
	}}}, freeEndpoint(t))
	t.Cleanup(s.close)
	next = s.cfg.Clone()
	next.Listen = append(next.Listen, freeEndpoint(t))
	sub := &next.Subsystems[0]
	sub.Hosts = sub.Hosts[:1]
	sub.Namespaces = append(sub.Namespaces, config.Namespace{NSID: 2, Volume: "mem:1MiB"})
	return s, next
}

// TestForbidBeforeAdding: a host that a change forbids doesn't see a namespace that the change adds, even while it
// is connected; the others do.
func TestForbidBeforeAdding(t *testing.T) {
	s, next := narrowing(t)
	stays, err := come(t, s.cfg.Listen[0], staysNQN)
	if err != nil {
		t.Fatal(err)
	}
	goes, err := come(t, s.cfg.Listen[0], goesNQN)
	if err != nil {
		t.Fatal(err)
	}
	sees := func(h *hostlib.Host, want int) {
		t.Helper()
		if n, err := h.ActiveNamespaces(t.Context()); err != nil || len(n) != want {
			t.Errorf("the host sees namespaces %v, %v; want %d", n, err, want)
		}
	}
	st := newStaged()
	if err := s.stage(next, st); err != nil {
		t.Fatal(err)
	}
	if err := s.add(next, st); err != nil {
		t.Fatal(err)
	}
	sees(goes, 1)
	if err := s.revoke(next, st); err != nil {
		t.Fatal(err)
	}
	<-goes.Done()
	sees(stays, 1)
	if err := s.commit(next, st); err != nil {
		t.Fatal(err)
	}
	sees(stays, 2)
}

// TestForbidBeforeListening: a host that a change forbids can't connect through what the change adds. If the change
// then fails, nothing has changed for that host: it may connect, and existing connections stay.
func TestForbidBeforeListening(t *testing.T) {
	s, next := narrowing(t)
	stays, err := come(t, s.cfg.Listen[0], goesNQN)
	if err != nil {
		t.Fatal(err)
	}
	st := newStaged()
	if err := s.stage(next, st); err != nil {
		t.Fatal(err)
	}
	if err := s.add(next, st); err != nil {
		t.Fatal(err)
	}
	for _, e := range next.Listen {
		if _, err := come(t, e, goesNQN); err == nil {
			t.Errorf("the host that is forbidden came by %s", e)
		}
	}
	if err := s.drop(st); err != nil {
		t.Fatal(err)
	}
	if _, err := come(t, s.cfg.Listen[0], goesNQN); err != nil {
		t.Errorf("after a change that failed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if n, err := stays.ActiveNamespaces(ctx); err != nil || len(n) != 1 {
		t.Errorf("the host that was connected has namespaces %v, %v", n, err)
	}
}

// TestAdmitLast: a host that a change allows gets nothing that the change takes away, and no subsystem before
// everything else is there.
func TestAdmitLast(t *testing.T) {
	s, next := narrowing(t)
	const more = "nqn.2026-11.org.example:more"
	next.Subsystems[0].Hosts = []string{staysNQN, "nqn.2026-11.org.example:comes"}
	next.Subsystems = append(next.Subsystems, config.Subsystem{NQN: more})
	st := newStaged()
	if err := s.stage(next, st); err != nil {
		t.Fatal(err)
	}
	if err := s.add(next, st); err != nil {
		t.Fatal(err)
	}
	refused := func(what, sub, nqn string) {
		t.Helper()
		if _, err := come(t, s.cfg.Listen[0], nqn, func(c *host.Config) { c.SubNQN = sub }); err == nil {
			t.Errorf("%s: %s may use %s", what, nqn, sub)
		}
	}
	refused("while the change is made", narrowedNQN, next.Subsystems[0].Hosts[1])
	refused("while the change is made", more, staysNQN)
	if err := s.revoke(next, st); err != nil {
		t.Fatal(err)
	}
	refused("when all is taken away", narrowedNQN, next.Subsystems[0].Hosts[1])
	if err := s.commit(next, st); err != nil {
		t.Fatal(err)
	}
	for sub, nqn := range map[string]string{narrowedNQN: next.Subsystems[0].Hosts[1], more: goesNQN} {
		if _, err := come(t, s.cfg.Listen[0], nqn, func(c *host.Config) { c.SubNQN = sub }); err != nil {
			t.Errorf("when the change is made: %v", err)
		}
	}
}

// TestUnreadableState: if the saved state of a new namespace is unreadable, the change fails before a host is
// disconnected.
func TestUnreadableState(t *testing.T) {
	dir := t.TempDir()
	s := started(t, &config.Config{State: dir, Subsystems: []config.Subsystem{{
		NQN: narrowedNQN, Hosts: []string{staysNQN, goesNQN},
	}}}, freeEndpoint(t))
	t.Cleanup(s.close)
	h, err := come(t, s.cfg.Listen[0], goesNQN)
	if err != nil {
		t.Fatal(err)
	}
	next := s.cfg.Clone()
	id := config.UUID{1}
	next.Subsystems[0].Hosts = next.Subsystems[0].Hosts[:1]
	next.Subsystems[0].Namespaces = []config.Namespace{{NSID: 1, Volume: "mem:1MiB", UUID: &id}}
	saved := filepath.Join(dir, "reservation-01000000-0000-0000-0000-000000000000.state")
	if err := os.WriteFile(saved, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.become(next); err == nil {
		t.Fatal("a namespace whose reservation is unreadable was added")
	}
	if n, err := h.ActiveNamespaces(t.Context()); err != nil || len(n) != 0 {
		t.Errorf("the host that the change would have forbidden has namespaces %v, %v", n, err)
	}
}

// TestForbidHostNamedTwice: a host that is forbidden is no longer allowed, however often the file listed it.
func TestForbidHostNamedTwice(t *testing.T) {
	sub := &config.Subsystem{NQN: narrowedNQN, Hosts: []string{goesNQN, staysNQN, goesNQN}}
	if err := forbidHost(sub, goesNQN); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sub.Hosts, []string{staysNQN}) {
		t.Errorf("allowed are %v", sub.Hosts)
	}
	sub.Hosts = []string{goesNQN, goesNQN}
	if err := forbidHost(sub, goesNQN); err == nil || len(sub.Hosts) == 0 {
		t.Errorf("the only host was forbidden: %v, allowed are %v", err, sub.Hosts)
	}
}

// TestHostsChangedOnce: a change of a subsystem's hosts changes what hosts find once, and twice if it forbids some and
// allows others.
func TestHostsChangedOnce(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: narrowedNQN}}}, freeEndpoint(t))
	t.Cleanup(s.close)
	looks, err := come(t, s.cfg.Listen[0], staysNQN, func(c *host.Config) { c.SubNQN = nvme.DiscoveryNQN })
	if err != nil {
		t.Fatal(err)
	}
	generation := func() uint64 {
		t.Helper()
		log, err := looks.Discovery(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return log.Generation
	}
	const comes = "nqn.2026-11.org.example:comes"
	for _, change := range []struct {
		hosts []string
		times uint64
	}{
		{[]string{staysNQN}, 1},
		{[]string{staysNQN, goesNQN}, 1},
		{[]string{staysNQN, goesNQN}, 0},
		{[]string{staysNQN, comes}, 2},
		{[]string{staysNQN}, 1},
		{nil, 1},
	} {
		before := generation()
		next := s.cfg.Clone()
		next.Subsystems[0].Hosts = change.hosts
		if _, err := s.become(next); err != nil {
			t.Fatal(err)
		}
		if n := generation() - before; n != change.times {
			t.Errorf("to the hosts %v: %d changes, want %d", change.hosts, n, change.times)
		}
	}
}
