package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

var errClose = errors.New("no room for the last writes")

// unclosable is a volume whose Close fails.
type unclosable struct{ blockdev.Volume }

func (v unclosable) Close() error { return errors.Join(v.Volume.Close(), errClose) }

// A namespace is gone once it is removed, even if closing its volume fails: an error would make the caller believe
// that nothing changed. It is logged.
func TestRemoveNamespaceThatFailsToClose(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:a"
	cfg := &config.Config{Listen: []cli.Endpoint{freeEndpoint(t)}, Subsystems: []config.Subsystem{{NQN: nqn, Namespaces: []config.Namespace{
		{NSID: 1, Volume: "mem:1MiB"}, {NSID: 2, Volume: "mem:1MiB"},
	}}}}
	var log bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&log, nil))}
	defer s.close()
	if err := start(cfg, s); err != nil {
		t.Fatal(err)
	}
	e := s.exports[exportKey{nqn, 2}]
	s.now.Lock() // the sizes of volumes are queried periodically
	e.volume = unclosable{e.volume}
	s.now.Unlock()
	next := s.cfg.Clone()
	next.Subsystems[0].Namespaces = next.Subsystems[0].Namespaces[:1]
	if gone, err := s.become(next); err != nil {
		t.Errorf("become: %v", err)
	} else {
		<-gone
	}
	if n := len(s.target.Snapshot().Subsystems[0].Namespaces); n != 1 {
		t.Errorf("there are %d namespaces, want 1", n)
	}
	if !strings.Contains(log.String(), errClose.Error()) {
		t.Errorf("the log doesn't say why: %s", log.String())
	}
}

// The tag of a configuration differs from those of other runs: otherwise a client that read it before the target
// was restarted with a changed file would undo that change.
func TestTagOfAnotherRun(t *testing.T) {
	at := freeEndpoint(t)
	cfg := func() *config.Config {
		return &config.Config{Listen: []cli.Endpoint{at}, Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}
	}
	before := started(t, cfg(), at)
	_, tag := before.Config()
	if err := before.Apply(cfg(), tag); err != nil {
		t.Errorf("with the tag of now: %v", err)
	}
	before.close()
	again := started(t, cfg(), at)
	defer again.close()
	if err := again.Apply(cfg(), tag); !errors.Is(err, control.ErrChanged) {
		t.Errorf("with the tag of a run before: %v", err)
	}
}

// A default may be given explicitly or not: neither is a change. Any other value is one.
func TestDefaultSaid(t *testing.T) {
	const bare = "subsystems: [{nqn: nqn.2026-11.org.example:a, namespaces: [{volume: mem:1MiB%s}]}]%s"
	parse := func(namespace, rest string) *config.Config {
		cfg, err := config.Parse("test", fmt.Appendf(nil, bare, namespace, rest))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	s := started(t, parse("", ""), freeEndpoint(t))
	defer s.close()
	for _, said := range []struct {
		namespace, rest string
		ok              bool
	}{
		{", io: auto", "", true},
		{", ana_group: 1", "", true},
		{", nsid: 1", "", true},
		{"", "\nlog: {level: info}", true},
		{"", "\ndrain_timeout: 5s", true},
		{"", "\nnetwork: {queue_depth: 128}", true},
		{"", "\nnetwork: {busy_poll: 250us}", true},
		{"", "\nnetwork: {engines: 1}", true},
		{"", "\nlimits: {connections: 1024, host_connections: 256, half_open: 512, host_half_open: 256, controllers: 1024}", true},
		{"", "\nlimits: {queues: 64, memory: 256MiB, connect_timeout: 10s}", true},
		{"", "", true},
		{", io: buffered", "", false},
		{", ana_group: 2", "", false},
		{"", "\nlog: {level: debug}", false},
		{"", "\ndrain_timeout: 0s", false},
		{"", "\nnetwork: {busy_poll: 0}", false},
		{"", "\nlimits: {queues: 63}", false},
	} {
		next := parse(said.namespace, said.rest)
		next.Listen = s.cfg.Listen
		if err := s.Apply(next, ""); (err == nil) != said.ok {
			t.Errorf("with %q and %q: %v", said.namespace, said.rest, err)
		}
	}
}

// TestDerivedSaid: what hosts know something by may be given explicitly, as it was derived, and left out again: neither
// is a change. The UUID of a volume in memory is one: without it, the next run has another.
func TestDerivedSaid(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:a"
	path := filepath.Join(t.TempDir(), "disk.img")
	at := freeEndpoint(t)
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: nqn, Namespaces: []config.Namespace{
		{NSID: 1, Volume: path, Size: 1 << 20}, {NSID: 2, Volume: "mem:1MiB"},
	}}}}, at)
	defer s.close()
	h, err := come(t, at, staysNQN, func(c *host.Config) { c.SubNQN = nqn })
	if err != nil {
		t.Fatal(err)
	}
	uuid := func(nsid uint32) config.UUID {
		info, err := h.NamespaceInfo(t.Context(), nsid)
		if err != nil {
			t.Fatal(err)
		}
		return config.UUID(info.Descriptors.UUID)
	}
	file, mem := uuid(1), uuid(2)
	id := h.Identify()
	for _, x := range []struct {
		what   string
		change func(s *config.Subsystem)
		want   string
	}{
		{"all that is derived", func(s *config.Subsystem) {
			s.Serial, s.Model, s.Namespaces[0].UUID = nvme.Text(id.SN[:]), nvme.Text(id.MN[:]), &file
		}, ""},
		{"nothing any more", func(s *config.Subsystem) { s.Serial, s.Model, s.Namespaces[0].UUID = "", "", nil }, ""},
		{"zeroes, which stand for what is derived", func(s *config.Subsystem) { s.Namespaces[0].UUID = new(config.UUID) }, ""},
		{"another serial number", func(s *config.Subsystem) { s.Serial = "1" },
			"subsystems[0].serial: from " + nvme.Text(id.SN[:]) + " to 1: "},
		{"another UUID", func(s *config.Subsystem) { s.Namespaces[0].UUID = &mem },
			fmt.Sprintf("subsystems[0].namespaces[0].uuid: from %s to %s: ", nvme.HostID(file), nvme.HostID(mem))},
		{"that of a volume in memory", func(s *config.Subsystem) { s.Namespaces[1].UUID = &mem },
			fmt.Sprintf("subsystems[0].namespaces[1].uuid: from the default to %s: ", nvme.HostID(mem))},
	} {
		next, tag := s.Config()
		x.change(&next.Subsystems[0])
		switch err := s.Apply(next, tag); {
		case x.want == "" && err != nil:
			t.Errorf("%s: %v", x.what, err)
		case x.want != "" && (err == nil || !strings.HasPrefix(err.Error(), x.want)):
			t.Errorf("%s: %v, want %s", x.what, err, x.want)
		}
	}
}

// What can't be changed is named, with what it is, what it would be, and what to do instead, and everything stays as it
// was.
func TestFixed(t *testing.T) {
	dir := t.TempDir()
	parse := func(from, to string) *config.Config {
		text := strings.NewReplacer(from, to).Replace(`
state: STATE
subsystems:
- nqn: nqn.2026-11.org.example:a
  serial: "1"
  model: a
  max_controllers: 4
  create: {directory: VOLUMES, capacity: 1GiB}
  namespaces: [{nsid: 1, volume: "mem:1MiB"}, {nsid: 2, volume: "mem:1MiB"}]
`)
		text = strings.NewReplacer("STATE", filepath.Join(dir, "state"), "VOLUMES", filepath.Join(dir, "volumes")).Replace(text)
		cfg, err := config.Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, name := range []string{"state", "volumes"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := started(t, parse("", ""), freeEndpoint(t))
	defer s.close()
	_, tag := s.Config()
	for _, x := range []struct{ from, to, want string }{
		{`serial: "1"`, `serial: "2"`, "subsystems[0].serial: from 1 to 2: hosts know it by this: remove the subsystem and add it anew"},
		{"model: a", "model: b", "subsystems[0].model: from a to b: hosts know it by this"},
		{"max_controllers: 4", "max_controllers: 5", "subsystems[0].max_controllers: from 4 to 5: hosts know it by this"},
		{"capacity: 1GiB", "capacity: 2GiB", "subsystems[0].create.capacity: from 1.0 GiB to 2.0 GiB: where hosts create namespaces can't be changed"},
		{`2, volume: "mem:1MiB"`, `2, volume: "mem:2MiB"`, "subsystems[0].namespaces[1].volume: from mem:1MiB to mem:2MiB: hosts use it as it is: remove the namespace, then add it anew"},
		{`1, volume: "mem:1MiB"`, `1, volume: "mem:1MiB", read_only: true`, "subsystems[0].namespaces[0].read_only: from false to true: hosts use it as it is"},
		{"state: STATE", "state: STATE/elsewhere", fmt.Sprintf("state: from %[1]s to %[1]s/elsewhere: %[2]v", filepath.Join(dir, "state"), errRestart)},
		{"state: STATE", "state: STATE\nmetrics: 127.0.0.1:9090", "metrics: from the default to 127.0.0.1:9090: " + errRestart.Error()},
		{"state: STATE", "state: STATE\ncontrol: STATE/socket", "control: from the default to " + filepath.Join(dir, "state", "socket: ") + errRestart.Error()},
		{"state: STATE", "state: STATE\npcap: STATE/packets", "pcap: from the default to " + filepath.Join(dir, "state", "packets: ") + errRestart.Error()},
		{"state: STATE", "state: STATE\ndiscovery: {nqn: nqn.2026-11.org.example:d}", "discovery.nqn: from the default to nqn.2026-11.org.example:d: " + errRestart.Error()},
		{"state: STATE", "state: STATE\nlimits: {queues: 63}", "limits.queues: from 64 to 63: " + errRestart.Error()},
		{"state: STATE", "state: STATE\ndrain_timeout: 1m", "drain_timeout: from 5s to 1m0s: " + errRestart.Error()},
	} {
		next := parse(x.from, x.to)
		next.Listen = s.cfg.Listen
		if err := s.Apply(next, ""); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%s: %v, want %s", x.to, err, x.want)
		}
		if _, now := s.Config(); now != tag {
			t.Fatalf("%s: it has changed", x.to)
		}
	}
}

// TestDefaultsOfHelp: the limits in the file that help shows are the defaults.
func TestDefaultsOfHelp(t *testing.T) {
	_, file, _ := strings.Cut(everything, "\n\n")
	cfg, err := config.Parse("help", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if usual := (config.Limits{}).Explicit(); cfg.Limits != usual {
		t.Errorf("help has %+v, and the default is %+v", cfg.Limits, usual)
	}
}

// TestChangeWhileStopping: a change in progress when the program stops is completed before anything is closed, and
// no other begins after it: otherwise the change would open what nobody closes, and both would write the same maps.
func TestChangeWhileStopping(t *testing.T) {
	cfg := func() *config.Config {
		return &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a", Namespaces: []config.Namespace{{Volume: "mem:1MiB"}}}}}
	}
	s := started(t, cfg(), freeEndpoint(t))
	s.patience = 0
	secrets := filepath.Join(t.TempDir(), "secrets") // the change waits for it
	if err := unix.Mkfifo(secrets, 0o600); err != nil {
		t.Skip(err)
	}
	next := cfg()
	next.Listen = s.cfg.Listen
	next.Authentication = &config.Authentication{Secrets: secrets, Optional: true}
	next.Subsystems[0].Namespaces = []config.Namespace{{NSID: 2, Volume: "mem:1MiB"}}
	changed, closed := make(chan error, 1), make(chan struct{})
	go func() { changed <- s.Apply(next, "") }()
	if !soon.Until(func() bool {
		if s.change.TryLock() {
			s.change.Unlock()
			return false
		}
		return true
	}) {
		t.Fatal("the change doesn't begin")
	}
	go func() { s.close(); close(closed) }()
	select {
	case <-closed:
		t.Error("it closed under the change")
	case <-time.After(100 * time.Millisecond):
	}
	w, err := os.OpenFile(secrets, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-changed; err != nil {
		t.Error(err)
	}
	<-closed
	if n := len(s.volumes()); n != 0 {
		t.Errorf("%d volumes are open", n)
	}
	if err := s.Apply(cfg(), ""); !errors.Is(err, errStopped) {
		t.Errorf("a change after that: %v", err)
	}
}

// TestChangeWithPipe: if nobody writes to a pipe with secrets the change fails, and doesn't block other changes.
func TestChangeWithPipe(t *testing.T) {
	cfg := &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}
	s := started(t, cfg, freeEndpoint(t))
	defer s.close()
	if s.patience != changePatience {
		t.Errorf("patience %v", s.patience)
	}
	s.patience = 50 * time.Millisecond
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := unix.Mkfifo(secrets, 0o600); err != nil {
		t.Skip(err)
	}
	next, _ := s.Config()
	next.Authentication = &config.Authentication{Secrets: secrets}
	if err := s.Apply(next, ""); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), secrets) {
		t.Error(err)
	}
	next.Authentication = nil
	if err := s.Apply(next, ""); err != nil {
		t.Error(err)
	}
}

// damageState damages what dir has of the only subsystem's last sanitize operation, and returns the file.
func damageState(t *testing.T, dir string) string {
	t.Helper()
	saved, err := filepath.Glob(filepath.Join(dir, "events-*.state"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("%v, %v", saved, err)
	}
	name := filepath.Join(dir, strings.Replace(filepath.Base(saved[0]), "events-", "sanitize-", 1))
	if err := os.WriteFile(name, []byte("half a"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestDamagedState: a user who can't start a target because of its saved state is told where it is, and what to do.
func TestDamagedState(t *testing.T) {
	dir, at := t.TempDir(), freeEndpoint(t)
	cfg := func() *config.Config {
		return &config.Config{State: dir, Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}
	}
	started(t, cfg(), at).close()
	damaged := damageState(t, dir)
	s := &server{log: slog.New(slog.DiscardHandler), mark: "--"}
	defer s.close()
	next := cfg()
	next.Listen = []cli.Endpoint{at}
	name := strings.TrimSuffix(filepath.Base(damaged), ".state")
	if err := start(next, s); err == nil || !strings.HasPrefix(err.Error(), "--state "+dir+": ") ||
		!strings.Contains(err.Error(), name) || !strings.HasSuffix(err.Error(), "or move it away, and with it what it keeps") {
		t.Error(err)
	}
}

// A change that fails at its last step leaves nothing of the steps before, and what was allowed is allowed again.
func TestFailedChange(t *testing.T) {
	const nqn, broken = "nqn.2026-11.org.example:a", "nqn.2026-11.org.example:c"
	dir, at, other := t.TempDir(), freeEndpoint(t), freeEndpoint(t)
	cfg := func(nqns ...string) *config.Config {
		c := &config.Config{State: dir, Listen: []cli.Endpoint{at}}
		for _, nqn := range nqns {
			c.Subsystems = append(c.Subsystems, config.Subsystem{NQN: nqn, Namespaces: []config.Namespace{{NSID: 1, Volume: "mem:1MiB"}}})
		}
		return c
	}
	started(t, cfg(broken), at).close()
	damageState(t, dir)
	s := started(t, cfg(nqn), at)
	defer s.close()
	_, tag := s.Config()
	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	offered := func(at cli.Endpoint) (all []string) {
		log, err := host.Discover(t.Context(), host.Config{Transport: transport, Remote: at.Addr})
		if err != nil {
			return nil
		}
		for i := range log.Entries {
			if e := &log.Entries[i]; e.SUBTYPE == nvme.SubsystemNVM {
				all = append(all, nvme.Text(e.SUBNQN[:]))
			}
		}
		return all
	}
	next := cfg(nqn, "nqn.2026-11.org.example:b", broken)
	next.Listen = append(next.Listen, other)
	next.Subsystems[0].Hosts = []string{"nqn.2026-11.org.example:h"}
	next.Subsystems[0].Namespaces = append(next.Subsystems[0].Namespaces, config.Namespace{NSID: 2, Volume: "mem:1MiB"})
	next.Authentication = &config.Authentication{}
	if err := s.Apply(next, ""); !errors.Is(err, target.ErrState) {
		t.Errorf("the change: %v", err)
	}
	if got := offered(at); !slices.Equal(got, []string{nqn}) {
		t.Errorf("%q are offered, want what was before", got)
	}
	if got := offered(other); got != nil {
		t.Errorf("%q are offered at the new endpoint", got)
	}
	if c, err := host.Connect(t.Context(), host.Config{Transport: transport, Remote: at.Addr, SubNQN: nqn, Queues: 1}); err != nil {
		t.Errorf("a host without authentication: %v", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	if snap := s.target.Snapshot(); len(snap.Subsystems) != 2 || len(snap.Subsystems[0].Namespaces) != 1 { // with discovery
		t.Errorf("there are %+v", snap.Subsystems)
	}
	if _, now := s.Config(); now != tag || len(s.volumes()) != 1 {
		t.Errorf("the tag is %s and was %s; %d volumes are open", now, tag, len(s.volumes()))
	}
	next.Subsystems = next.Subsystems[:2]
	next.Subsystems[0].Hosts, next.Authentication = nil, nil
	if err := s.Apply(next, tag); err != nil {
		t.Fatal(err)
	}
	if _, now := s.Config(); now == tag {
		t.Error("the tag is that from before the change")
	}
	for _, e := range next.Listen {
		if got := offered(e); len(got) != 2*len(next.Listen) { // each at each endpoint
			t.Errorf("%q are offered at %s", got, e)
		}
	}
}

// TestRefusedChangeCreatesNothing: files and directories that a change created are removed if it is refused, and those
// that were there stay, with what is in them. Otherwise the change, corrected, would be refused because a file has
// another size.
func TestRefusedChangeCreatesNothing(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := func(size cli.Size, at ...cli.Endpoint) *config.Config {
		sub := config.Subsystem{NQN: "nqn.2026-11.org.example:a"}
		for i, spec := range []string{"new", "check:%s/wrapped", "pmem:%s/pmem", "pmem:%s/inplace,mode=inplace"} {
			if i == 0 {
				spec = "%s/" + spec
			}
			sub.Namespaces = append(sub.Namespaces, config.Namespace{NSID: uint32(2 + i), Volume: fmt.Sprintf(spec, dir), Size: size})
		}
		all := []config.Subsystem{sub}
		for _, name := range []string{"there", "parent/child", "parent/other"} {
			all = append(all, config.Subsystem{NQN: "nqn.2026-11.org.example:" + name, Create: &config.Create{Directory: filepath.Join(dir, name), Capacity: size}})
		}
		return &config.Config{State: state, Listen: at, Subsystems: all}
	}
	at := freeEndpoint(t)
	s := started(t, &config.Config{State: state, Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}, at)
	defer s.close()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, bytes.Repeat([]byte{7}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", freeEndpoint(t).Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := cli.Endpoint{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort(taken.Addr().String())}
	first := cfg(1<<20, at, busy)
	first.Subsystems[0].Namespaces = append(first.Subsystems[0].Namespaces, config.Namespace{NSID: 1, Volume: old})
	if err := s.Apply(first, ""); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("the change: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	if b, err := os.ReadFile(old); err != nil || len(b) != 1<<20 || b[0] != 7 {
		t.Errorf("the file that was there has %d bytes, %v", len(b), err)
	}
	if err := s.Apply(cfg(2<<20, at), ""); err != nil {
		t.Errorf("with another size: %v", err)
	}
}

// TestDerivedUUIDTaken: a namespace with the UUID that the target has derived for another one is refused, as it is when
// the target starts: what such a change saved couldn't be started.
func TestDerivedUUIDTaken(t *testing.T) {
	s, next := narrowing(t)
	h, err := come(t, s.cfg.Listen[0], staysNQN)
	if err != nil {
		t.Fatal(err)
	}
	first, err := h.NamespaceInfo(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	uuid := config.UUID(first.Descriptors.UUID)
	next.Subsystems[0].Namespaces[1].UUID = &uuid
	_, tag := s.Config()
	if err := s.Apply(next, tag); !errors.Is(err, target.ErrExists) {
		t.Errorf("the change: %v", err)
	}
	if _, now := s.Config(); now != tag || len(s.volumes()) != 1 || len(s.listeners) != 1 {
		t.Errorf("the tag is %s and was %s; %d volumes are open, and %d listeners", now, tag, len(s.volumes()), len(s.listeners))
	}
	next.Subsystems[0].Namespaces = next.Subsystems[0].Namespaces[1:]
	if err := s.Apply(next, ""); err != nil {
		t.Errorf("in place of the other: %v", err)
	}
	if all, err := h.ActiveNamespaces(t.Context()); err != nil || !slices.Equal(all, []uint32{2}) {
		t.Errorf("the host has %d, %v", all, err)
	}
}

// Referrals can be changed while hosts are connected: discovery reports those of the new configuration.
func TestReferralsChange(t *testing.T) {
	at := freeEndpoint(t)
	refer := func(to ...string) *config.Config {
		cfg := &config.Config{Listen: []cli.Endpoint{at}, Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}
		for _, s := range to {
			e, err := cli.ParseEndpoint(s)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Discovery.Referrals = append(cfg.Discovery.Referrals, e)
		}
		return cfg
	}
	s := started(t, refer("tcp://192.0.2.1:8009", "rdma://192.0.2.2:4420"), at)
	defer s.close()
	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	reported := func() (all []string) {
		log, err := host.Discover(t.Context(), host.Config{Transport: transport, Remote: at.Addr})
		if err != nil {
			t.Fatal(err)
		}
		for i := range log.Entries {
			if e := &log.Entries[i]; e.SUBTYPE == nvme.SubsystemReferral {
				addr, err := host.EntryAddr(e)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%s://%s", e.TRTYPE, addr))
			}
		}
		slices.Sort(all)
		return all
	}
	for _, want := range [][]string{
		{"rdma://192.0.2.2:4420", "tcp://192.0.2.1:8009"},
		{"rdma://192.0.2.3:4420", "tcp://192.0.2.1:8009"},
		{},
		{"tcp://192.0.2.1:8009"},
	} {
		if err := s.Apply(refer(want...), ""); err != nil {
			t.Fatal(err)
		}
		if got := reported(); !slices.Equal(got, want) {
			t.Errorf("discovery refers to %q, want %q", got, want)
		}
	}
}

// started returns a running target.
func started(t *testing.T, cfg *config.Config, at cli.Endpoint) *server {
	t.Helper()
	cfg.Listen = []cli.Endpoint{at}
	s := &server{log: slog.New(slog.DiscardHandler)}
	if err := start(cfg, s); err != nil {
		s.close()
		t.Fatal(err)
	}
	return s
}
