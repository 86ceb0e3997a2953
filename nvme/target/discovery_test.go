package target

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// discover reads the discovery log as libnvme does: the first bytes of the header, the
// entries in pieces, and the header again.
func discover(t *testing.T, q *fakeConn) (header nvme.DiscoveryHeader, entries []nvme.DiscoveryEntry) {
	t.Helper()
	get := func(off uint64, n int, retain bool) []byte {
		t.Helper()
		b := bytes.Repeat([]byte{0xaa}, n)
		q.must(command(func(c *nvme.Command) {
			c.SetGetLogPage(nvme.GetLogPage{LID: nvme.LogDiscovery, Length: uint32(n), Offset: off, RAE: retain})
		}), b)
		return b
	}
	short := append(get(0, 20, true), make([]byte, nvme.DiscoveryHeaderSize)...)
	if err := header.Parse(short); err != nil {
		t.Fatal(err)
	}
	size := int(header.NUMREC) * nvme.DiscoveryEntrySize
	var all []byte
	for len(all) < size {
		all = append(all, get(uint64(nvme.DiscoveryHeaderSize+len(all)), min(4096, size-len(all)), true)...)
	}
	for ; len(all) > 0; all = all[nvme.DiscoveryEntrySize:] {
		var e nvme.DiscoveryEntry
		if err := e.Parse(all); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	var again nvme.DiscoveryHeader
	if err := again.Parse(get(0, nvme.DiscoveryHeaderSize, false)); err != nil || again != header {
		t.Fatalf("header %+v, then %+v, %v", header, again, err)
	}
	return header, entries
}

func describe(entries []nvme.DiscoveryEntry) (out []string) {
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%d %v %v %s %s:%s", e.SUBTYPE, e.TRTYPE, e.ADRFAM, e.NQN(), e.Address(), e.Service()))
	}
	return out
}

// discoveryOf connects to the discovery subsystem of a target with two ports, and a subsystem that
// this host may not use.
func discoveryOf(t *testing.T) (*Target, *fakeConn) {
	t.Helper()
	const privateNQN = "nqn.2024-01.com.example:private"
	tg := newTargetWith(t, func(c *Config) {
		c.Store = newMemStore()
		c.Subsystems = append(c.Subsystems, SubsystemConfig{NQN: privateNQN, Hosts: []string{"nqn.2024-01.com.example:friend"}})
		c.Ports = []Port{
			{Transport: nvme.TransportRDMA, Addr: netip.MustParseAddrPort("127.0.0.1:4420"),
				TSAS: nvme.TSASRDMA{QPType: nvme.RDMAQPConnected, Provider: nvme.RDMAProviderRoCE2, CMS: nvme.RDMACMS}.Bytes()},
			{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("0.0.0.0:4420"), Secure: true},
		}
	}, newTestVolume(1<<20, 512))
	q := dial(t, tg)
	connectAdmin(q, nvme.DiscoveryNQN, 0)
	return tg, q
}

// TestDiscoveryController: a discovery controller says that it is one, and refuses everything about namespaces.
func TestDiscoveryController(t *testing.T) {
	_, q := discoveryOf(t)
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	var id nvme.IdentifyController
	if err := id.Parse(page); err != nil || id.CNTRLTYPE != nvme.ControllerDiscovery || id.NQN() != nvme.DiscoveryNQN ||
		id.OAES != nvme.AENDiscovery || id.NN != 0 || id.MAXCMD == 0 {
		t.Errorf("discovery controller: %v, CNTRLTYPE %v SUBNQN %q OAES %#x NN %d MAXCMD %d", err, id.CNTRLTYPE, id.NQN(), id.OAES, id.NN, id.MAXCMD)
	}
	if id.CMIC != 0 || id.CTRATT != nvme.CTRATTTBKAS || id.LPA != nvme.LPAEffects|nvme.LPAExtendedData|nvme.LPASupported {
		t.Errorf("CMIC %#x: it is reserved; CTRATT %#x: all but TBKAS is; LPA %#x", id.CMIC, id.CTRATT, id.LPA)
	}
	effects := effectsOf(q)
	for op, e := range effects.Admin {
		cmd := command(func(c *nvme.Command) { c.SetOpcode(nvme.Opcode(op)); c.SetFlags(nvme.FlagsSGL) })
		if cmd.Opcode() == nvme.OpFabrics || cmd.Opcode() == nvme.OpAsyncEvent {
			continue
		}
		if unknown := q.do(cmd, nil).Status().Code() == nvme.StatusInvalidOpcode; unknown == (e&nvme.EffectSupported != 0) {
			t.Errorf("opcode %#x: the effects log says %#x", op, uint32(e))
		}
	}
	if effects.IO != [256]nvme.Effects{} {
		t.Error("a discovery controller has I/O commands")
	}

	for _, cmd := range []nvme.Command{
		command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSActiveNSIDs, 0, 0, 0) }),
		command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }),
		command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatNumberOfQueues, 0, 0, 0) }),
		command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatNumberOfQueues, false, 0, 0) }),
	} {
		q.fails(cmd, page, nvme.StatusInvalidField|dnr)
	}
	for _, lid := range []nvme.LID{nvme.LogSMART, nvme.LogPersistent} {
		q.fails(getLog(nvme.GetLogPage{LID: lid, NSID: nvme.NSIDAll, Length: 512}), page[:512], nvme.StatusInvalidLogPage|dnr)
	}
	for f, v := range map[nvme.FID]uint32{nvme.FeatAsyncEvent: uint32(nvme.AENDiscovery), nvme.FeatKATO: 5000} {
		q.must(setFeature(f, 0, v), nil)
		if got := q.must(getFeature(f, 0, 0), nil).DW0(); got != v {
			t.Errorf("feature %#x is %#x, want %#x", f, got, v)
		}
	}
	for _, op := range []nvme.Opcode{nvme.OpFormat, nvme.OpSanitize, nvme.OpNSManagement, nvme.OpNSAttachment} {
		q.fails(command(func(c *nvme.Command) { c.SetFlush(0); c.SetOpcode(op) }), nil, nvme.StatusInvalidOpcode|dnr)
	}
}

// TestDiscovery: the log lists what this host may use, at each port, with the addresses that it can reach.
func TestDiscovery(t *testing.T) {
	_, q := discoveryOf(t)
	_, entries := discover(t, q)
	want := []string{
		"3 rdma ipv4 " + nvme.DiscoveryNQN + " 127.0.0.1:4420",
		"3 tcp ipv4 " + nvme.DiscoveryNQN + " 127.0.0.1:4420",
		"2 rdma ipv4 " + testNQN + " 127.0.0.1:4420",
		"2 tcp ipv4 " + testNQN + " 127.0.0.1:4420",
	}
	if got := describe(entries); !slices.Equal(got, want) {
		t.Errorf("log:\n%q\nwant\n%q", got, want)
	}
	e := entries[2]
	if entries[0].EFLAGS != nvme.EFLAGSPersistent || e.EFLAGS != 0 {
		t.Errorf("flags %#x of the discovery subsystem, %#x of another", entries[0].EFLAGS, e.EFLAGS)
	}
	if e.CNTLID != nvme.CNTLIDDynamic || e.ASQSZ != 32 || e.TREQ != nvme.TREQNoSQFlowControl || e.RDMA().Provider != nvme.RDMAProviderRoCE2 ||
		e.PORTID != 1 || entries[3].PORTID != 2 || entries[3].TREQ&nvme.TREQSecureMask != nvme.TREQSecureRequired {
		t.Errorf("entries %+v, %+v", e, entries[3])
	}
}

// TestDiscoveryStrings: TRSVCID and TRADDR, as ASCII strings, are padded with spaces; SUBNQN, which ends with NUL, is
// not (NVMe base, "Numerical Descriptions").
func TestDiscoveryStrings(t *testing.T) {
	_, q := discoveryOf(t)
	_, entries := discover(t, q)
	e := entries[2]
	if want := "4420" + strings.Repeat(" ", 28); string(e.TRSVCID[:]) != want {
		t.Errorf("TRSVCID %q, want %q", e.TRSVCID, want)
	}
	if want := "127.0.0.1" + strings.Repeat(" ", 247); string(e.TRADDR[:]) != want {
		t.Errorf("TRADDR %q, want %q", e.TRADDR, want)
	}
	if want := testNQN + strings.Repeat("\x00", 256-len(testNQN)); string(e.SUBNQN[:]) != want {
		t.Errorf("SUBNQN %q, want %q", e.SUBNQN, want)
	}
}

// TestDiscoveryFromElsewhere: a host isn't told of ports that it can't reach.
func TestDiscoveryFromElsewhere(t *testing.T) {
	tg, _ := discoveryOf(t)
	q := dial(t, tg, func(c *fakeConn) { c.attr.Local = netip.MustParseAddrPort("192.0.2.1:4420") })
	connectAdmin(q, nvme.DiscoveryNQN, 0)
	_, entries := discover(t, q)
	want := []string{
		"3 tcp ipv4 " + nvme.DiscoveryNQN + " 192.0.2.1:4420",
		"2 tcp ipv4 " + testNQN + " 192.0.2.1:4420",
	}
	if got := describe(entries); !slices.Equal(got, want) {
		t.Errorf("log:\n%q\nwant\n%q", got, want)
	}
}

// TestDiscoveryBothFamilies: a host is told once about ports that listen on all IPv4 and on all IPv6 addresses, with
// the port that it connects to, and sees the ANA states of that port.
func TestDiscoveryBothFamilies(t *testing.T) {
	four, six := netip.MustParseAddrPort("0.0.0.0:4420"), netip.MustParseAddrPort("[::]:4420")
	for _, ports := range [][]Port{{{ID: 4, Addr: four}, {ID: 6, Addr: six}}, {{ID: 6, Addr: six}, {ID: 4, Addr: four}}} {
		tg := newTargetWith(t, func(c *Config) {
			for _, p := range ports {
				p.Transport = nvme.TransportTCP
				c.Ports = append(c.Ports, p)
			}
		}, newTestVolume(1<<20, 512))
		if err := tg.SetANAState(6, 1, nvme.ANAInaccessible); err != nil {
			t.Fatal(err)
		}
		for local, want := range map[string]Port{
			"192.0.2.1:4420": {ID: 4}, "[::ffff:192.0.2.1]:4420": {ID: 4}, "[2001:db8::1]:4420": {ID: 6},
		} {
			come := func(c *fakeConn) { c.attr.Local = netip.MustParseAddrPort(local) }
			q := dial(t, tg, come)
			connectAdmin(q, nvme.DiscoveryNQN, 0)
			_, entries := discover(t, q)
			if len(entries) != 2 || entries[0].PORTID != want.ID || entries[1].PORTID != want.ID {
				t.Errorf("a host that comes to %s, which is of port %d, is told of %q", local, want.ID, describe(entries))
			}
			q.hangUp(nil)
			io := dial(t, tg, come)
			connectAdmin(io, testNQN, 0)
			if got := io.q.ctrl.anaState(1) == nvme.ANAInaccessible; got != (want.ID == 6) {
				t.Errorf("a host that comes to %s, which is of port %d, finds its group inaccessible: %v", local, want.ID, got)
			}
			io.hangUp(nil)
		}
	}
}

// TestDiscoveryChanges: a change is reported, counted, and visible.
func TestDiscoveryChanges(t *testing.T) {
	tg, q := discoveryOf(t)
	h, _ := discover(t, q)
	enableEvents(q, nvme.AENDiscovery)
	aer := q.start(asyncEvent(1), nil)
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + "2", AllowAnyHost: true}); err != nil {
		t.Fatal(err)
	}
	if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventDiscoveryChanged {
		t.Errorf("event %v", ev)
	}
	h2, entries := discover(t, q)
	if h2.GENCTR <= h.GENCTR || len(entries) != 6 {
		t.Errorf("GENCTR %d then %d, %d entries", h.GENCTR, h2.GENCTR, len(entries))
	}
	if h3, _ := discover(t, q); h3.GENCTR != h2.GENCTR {
		t.Errorf("GENCTR %d then %d without a change", h2.GENCTR, h3.GENCTR)
	}
	aer = q.start(asyncEvent(1), nil)
	if err := tg.RemovePort(nvme.TransportTCP, netip.MustParseAddrPort("0.0.0.0:4420")); err != nil {
		t.Fatal(err)
	}
	aer.wait()
	if _, entries := discover(t, q); len(entries) != 3 {
		t.Errorf("%d entries, want 3", len(entries))
	}
	if err := tg.RemovePort(nvme.TransportTCP, netip.MustParseAddrPort("0.0.0.0:4420")); err == nil {
		t.Error("a port was removed twice")
	}
	if err := tg.AddPort(Port{Transport: nvme.TransportRDMA, Addr: netip.MustParseAddrPort("127.0.0.1:4420")}); err == nil {
		t.Error("a port was added twice")
	}
}

// TestDiscoveryPersistent: a host that connects with a keep-alive timeout is told of changes without asking for it first
// (NVMe base, "Discovery Controller Asynchronous Event Configuration").
func TestDiscoveryPersistent(t *testing.T) {
	tg, brief := discoveryOf(t)
	q := dial(t, tg)
	connectAdmin(q, nvme.DiscoveryNQN, 30_000)
	for c, want := range map[*fakeConn]nvme.AsyncEventConfig{brief: 0, q: nvme.AENDiscovery} {
		if got := c.must(getFeature(nvme.FeatAsyncEvent, 0, 0), nil).DW0(); got != uint32(want) {
			t.Errorf("connected with a keep-alive timeout: %v; feature 0Bh is %#x, want %#x", c == q, got, uint32(want))
		}
	}
	aer := q.start(asyncEvent(1), nil)
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + "2", AllowAnyHost: true}); err != nil {
		t.Fatal(err)
	}
	if !aer.answered() {
		t.Fatal("the host isn't told of a change")
	}
}

// TestDiscoveryEvents: everything that changes what a host finds is counted in GENCTR, and reported (NVMe base,
// "Discovery Log Page Change").
func TestDiscoveryEvents(t *testing.T) {
	tg, q := discoveryOf(t)
	enableEvents(q, nvme.AENDiscovery)
	const nqn = testNQN + "2"
	port := Port{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("127.0.0.1:4421")}
	other := Referral{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("127.0.0.1:8009")}
	before, _ := discover(t, q)
	for _, change := range []struct {
		name string
		make func() error
	}{
		{"port added", func() error { return tg.AddPort(port) }},
		{"port taken out", func() error { return tg.ListPort(port.Transport, port.Addr, false) }},
		{"port put in", func() error { return tg.ListPort(port.Transport, port.Addr, true) }},
		{"port removed", func() error { return tg.RemovePort(port.Transport, port.Addr) }},
		{"referral added", func() error { return tg.AddReferral(other) }},
		{"referral removed", func() error { return tg.RemoveReferral(other.Transport, other.Addr) }},
		{"subsystem added", func() error {
			_, err := tg.AddSubsystem(SubsystemConfig{NQN: nqn, AllowAnyHost: true})
			return err
		}},
		{"host refused", func() error { return tg.Subsystem(nqn).SetHosts(false, nil) }},
		{"subsystem removed", func() error { return tg.RemoveSubsystem(nqn) }},
	} {
		aer := q.start(asyncEvent(1), nil)
		if err := change.make(); err != nil {
			t.Fatalf("%s: %v", change.name, err)
		}
		if !aer.answered() {
			t.Fatalf("%s: no event", change.name)
		}
		if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventDiscoveryChanged {
			t.Errorf("%s: event %v", change.name, ev)
		}
		after, _ := discover(t, q)
		if after.GENCTR <= before.GENCTR {
			t.Errorf("%s: GENCTR is %d after %d", change.name, after.GENCTR, before.GENCTR)
		}
		before = after
	}
}

// TestUnlistedPort: a port has ANA states before it is in the discovery log, and when it is no longer. Until then, no
// host is told of it, and it changes nothing in the log.
func TestUnlistedPort(t *testing.T) {
	tg, q := discoveryOf(t)
	enableEvents(q, nvme.AENDiscovery)
	at := netip.MustParseAddrPort("127.0.0.1:4421")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := func() bool {
		_, entries := discover(t, q)
		return slices.ContainsFunc(entries, func(e nvme.DiscoveryEntry) bool { return e.PORTID == 9 })
	}
	holds := func() {
		t.Helper()
		s := connectAt(t, tg, at)
		defer s.close()
		if p := readANA(s.admin, 0, false); p.ChangeCount != 0 || p.Groups[0].State != nvme.ANAInaccessible {
			t.Errorf("a host finds %+v", p)
		}
	}
	before, _ := discover(t, q)
	aer := q.start(asyncEvent(1), nil)
	must(tg.AddPort(Port{ID: 9, Transport: nvme.TransportTCP, Addr: at, Unlisted: true}))
	must(tg.SetANAState(9, 1, nvme.ANAInaccessible))
	must(tg.ListPort(nvme.TransportTCP, at, false))
	if after, _ := discover(t, q); aer.answered() || after.GENCTR != before.GENCTR || listed() {
		t.Errorf("not yet listed: GENCTR %d after %d, listed: %v", after.GENCTR, before.GENCTR, listed())
	}
	holds()
	must(tg.ListPort(nvme.TransportTCP, at, true))
	if !aer.answered() || !listed() {
		t.Error("it isn't listed")
	}
	holds()
	must(tg.ListPort(nvme.TransportTCP, at, false))
	holds()
	before, _ = discover(t, q)
	must(tg.RemovePort(nvme.TransportTCP, at))
	if after, _ := discover(t, q); after.GENCTR != before.GENCTR {
		t.Errorf("removed when it was no longer listed: GENCTR %d after %d", after.GENCTR, before.GENCTR)
	}
	if err := tg.ListPort(nvme.TransportTCP, at, true); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
}

// TestPortAddress: hosts are told the addresses that they can reach.
func TestPortAddress(t *testing.T) {
	for _, tc := range []struct{ port, local, want string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", "192.0.2.1", ""},
		{"::1", "192.0.2.1", ""},
		{"::1", "127.0.0.1", "::1"},
		{"192.0.2.1", "127.0.0.1", "192.0.2.1"},
		{"192.0.2.1", "2001:db8::1", "192.0.2.1"},
		{"0.0.0.0", "192.0.2.7", "192.0.2.7"},
		{"0.0.0.0", "::ffff:192.0.2.7", "192.0.2.7"},
		{"0.0.0.0", "2001:db8::1", ""},
		{"::", "2001:db8::1", "2001:db8::1"},
		{"::", "::ffff:192.0.2.7", "192.0.2.7"},
	} {
		p := Port{Transport: nvme.TransportTCP, Addr: netip.AddrPortFrom(netip.MustParseAddr(tc.port), 4420)}
		a, ok := p.addressFor(netip.MustParseAddr(tc.local))
		if ok != (tc.want != "") || ok && a.String() != tc.want {
			t.Errorf("port %s, reached at %s: %v %v, want %q", tc.port, tc.local, a, ok, tc.want)
		}
	}
}

// TestDiscoveryOfMany: the cost of a piece of the log doesn't depend on the length of the log.
func TestDiscoveryOfMany(t *testing.T) {
	const subsystems, ports, pieces = 1000, 4, 32
	tg := newTargetWith(t, func(c *Config) {
		for i := range subsystems {
			c.Subsystems = append(c.Subsystems, SubsystemConfig{NQN: fmt.Sprintf("%s%d", testNQN, i), AllowAnyHost: true})
		}
		for i := range uint16(ports) {
			c.Ports = append(c.Ports, Port{Transport: nvme.TransportTCP, Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 4420+i)})
		}
	}, newTestVolume(1<<20, 512))
	q := dial(t, tg)
	connectAdmin(q, nvme.DiscoveryNQN, 0)
	piece := make([]byte, nvme.PageSize)
	read := func(off uint64) {
		q.must(command(func(c *nvme.Command) {
			c.SetGetLogPage(nvme.GetLogPage{LID: nvme.LogDiscovery, Length: nvme.PageSize, Offset: off, RAE: true})
		}), piece)
	}
	read(0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range uint64(pieces) {
		read(nvme.DiscoveryHeaderSize + i*100*nvme.PageSize/4)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / pieces; each > 256<<10 {
		t.Errorf("a piece of %d KiB has %d KiB of memory allocated", nvme.PageSize>>10, each>>10)
	}
}

// TestDiscoveryGeneration: what a host reads while something changes has the generation of either the old log or the
// new one, so that a host that reads in pieces notices (NVMe base, "Discovery Log Page", GENCTR).
func TestDiscoveryGeneration(t *testing.T) {
	tg := newANATarget(t)
	at := netip.MustParseAddrPort("192.0.2.1:4421")
	host, q := connectAt(t, tg, at), dial(t, tg)
	defer host.close()
	connectAdmin(q, nvme.DiscoveryNQN, 0)
	if err := tg.SetANAState(2, 7, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	enableEvents(host.admin, nvme.AENANA)
	logs := map[uint64]string{}
	read := func() {
		h, entries := discover(t, q)
		if log := fmt.Sprint(describe(entries)); logs[h.GENCTR] == "" {
			logs[h.GENCTR] = log
		} else if log != logs[h.GENCTR] {
			t.Errorf("generation %d is both %s and %s", h.GENCTR, logs[h.GENCTR], log)
		}
	}
	host.admin.answering = func(fr *fakeRequest) {
		if fr.Cmd.Opcode() == nvme.OpAsyncEvent {
			read() // the change is half done
		}
	}
	for _, change := range []func() error{
		func() error { return tg.AddPort(Port{ID: 3, Transport: nvme.TransportTCP, Addr: at}) },
		func() error { return tg.RemovePort(nvme.TransportTCP, at) },
	} {
		told := host.admin.start(asyncEvent(1), nil)
		read()
		if err := change(); err != nil || !told.answered() {
			t.Errorf("%v; told: %v", err, told.answered())
		}
		read()
		readANA(host.admin, 0, false)
	}
}
