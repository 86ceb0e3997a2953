package target

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Two ports of the ANA tests.
var (
	anaPortA = netip.MustParseAddrPort("127.0.0.1:4420")
	anaPortB = netip.MustParseAddrPort("0.0.0.0:4421")
)

// newANATarget has namespaces 1 and 2 in group 1, and 3 in group 7, at two ports.
func newANATarget(t *testing.T) *Target {
	return newTargetWith(t, func(c *Config) {
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}, {ID: 2, Transport: nvme.TransportTCP, Addr: anaPortB}}
		c.Subsystems[0].Namespaces[2].ANAGroup = 7
	}, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
}

// connectAt connects a host to the port at an address.
func connectAt(t *testing.T, tg *Target, local netip.AddrPort) *session {
	t.Helper()
	at := func(c *fakeConn) { c.attr.Local = local }
	s := &session{admin: dial(t, tg, at)}
	s.cntlid = connectAdmin(s.admin, testNQN, 0)
	s.io = dial(t, tg, at)
	s.io.must(connectCommand(1, 127, 0), connectData(t, s.cntlid, testNQN))
	return s
}

func readANA(q *fakeConn, lsp uint8, retain bool) (p nvme.ANALog) {
	q.t.Helper()
	b := make([]byte, 4096)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogANA, NSID: nvme.NSIDAll, LSP: lsp, RAE: retain, Length: 4096}), b)
	if err := p.Parse(b); err != nil {
		q.t.Fatal(err)
	}
	return p
}

// TestSameANAState: a state that a group has already is given to nobody again.
func TestSameANAState(t *testing.T) {
	tg := newANATarget(t)
	s := connectAt(t, tg, anaPortA)
	defer s.close()
	c := tg.controllers[s.cntlid]
	for _, state := range []nvme.ANAState{nvme.ANAOptimized, nvme.ANAInaccessible} {
		if err := tg.SetANAState(1, 7, state); err != nil {
			t.Fatal(err)
		}
		given := c.ana.Load()
		if err := tg.SetANAState(1, 7, state); err != nil || c.ana.Load() != given || c.anaState(7) != state {
			t.Errorf("%v; the same state, %v, was spread again", err, state)
		}
	}
}

// TestANAStates: each port has its own states, its hosts are told, and commands fail where a
// group can't be reached.
func TestANAStates(t *testing.T) {
	tg := newANATarget(t)
	a, b := connectAt(t, tg, anaPortA), connectAt(t, tg, netip.MustParseAddrPort("192.0.2.1:4421"))
	defer a.close()
	defer b.close()
	for _, s := range []*session{a, b} {
		enableEvents(s.admin, nvme.AENANA)
	}
	aerA, aerB := a.admin.start(asyncEvent(1), nil), b.admin.start(asyncEvent(1), nil)
	data := make([]byte, 512)
	read := func(nsid uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) })
	}
	for _, tc := range []struct {
		state  nvme.ANAState
		status nvme.Status
	}{
		{nvme.ANAInaccessible, nvme.StatusANAInaccessible},
		{nvme.ANAPersistentLoss, nvme.StatusANAPersistentLoss},
		{nvme.ANAChange, nvme.StatusANATransition},
		{nvme.ANANonOptimized, 0},
		{nvme.ANAOptimized, 0},
	} {
		if err := tg.SetANAState(2, 7, tc.state); err != nil {
			t.Fatal(err)
		}
		if ev := nvme.AsyncEvent(aerB.wait().DW0()); ev != nvme.EventANAChanged {
			t.Errorf("event %v", ev)
		}
		if aerA.answered() {
			t.Fatal("the hosts of the other port were told")
		}
		b.io.fails(read(3), data, tc.status)
		b.io.must(read(1), data)
		a.io.must(read(3), data)
		p := readANA(b.admin, 0, false)
		if len(p.Groups) != 2 || p.Groups[0].ID != 1 || p.Groups[0].State != nvme.ANAOptimized || !slices.Equal(p.Groups[0].NSIDs, nvme.NSIDList{1, 2}) ||
			p.Groups[1].ID != 7 || p.Groups[1].State != tc.state || !slices.Equal(p.Groups[1].NSIDs, nvme.NSIDList{3}) ||
			p.Groups[1].ChangeCount != p.ChangeCount+1 || p.Groups[0].ChangeCount != 1 {
			t.Errorf("%v: log %+v", tc.state, p)
		}
		if s := tg.Snapshot().ANA; len(s) != 4 || s[0] != (ANAStats{1, nvme.TransportTCP, anaPortA, 1, nvme.ANAOptimized}) || s[3] != (ANAStats{2, nvme.TransportTCP, anaPortB, 7, tc.state}) {
			t.Errorf("snapshot %+v", s)
		}
		aerB = b.admin.start(asyncEvent(1), nil)
	}
	if err := tg.SetANAState(2, 7, nvme.ANAOptimized); err != nil || aerB.answered() {
		t.Errorf("an event without a change, %v", err)
	}
	if p := readANA(a.admin, 0, true); p.ChangeCount != 0 || p.Groups[1].State != nvme.ANAOptimized {
		t.Errorf("log of the other port %+v", p)
	}
	if p := readANA(a.admin, nvme.LSPGroupsOnly, true); len(p.Groups) != 2 || p.Groups[0].NSIDs != nil {
		t.Errorf("log of groups only %+v", p)
	}
	for addr, want := range map[netip.AddrPort]uint16{anaPortA: 1, anaPortB: 2} {
		if id, err := tg.PortID(nvme.TransportTCP, addr); err != nil || id != want {
			t.Errorf("port %s is %d, %v", addr, id, err)
		}
		if _, err := tg.PortID(nvme.TransportRDMA, addr); !errors.Is(err, ErrNotFound) {
			t.Errorf("port %s of another transport: %v", addr, err)
		}
	}
	// The first port's state counts, whatever the second's is.
	if err := tg.SetANAState(1, 7, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	a.io.fails(read(3), data, nvme.StatusANAInaccessible)
	b.io.must(read(3), data)
}

// TestANAGroupsAscend: the log lists groups in the order of their identifiers, whatever the order of the namespaces.
func TestANAGroupsAscend(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		for i, group := range []uint32{7, 3, 7, 1} {
			c.Subsystems[0].Namespaces[i].ANAGroup = group
		}
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}}
	}, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
	s := connectAt(t, tg, anaPortA)
	defer s.close()
	if err := tg.SetANAState(1, 3, nvme.ANANonOptimized); err != nil {
		t.Fatal(err)
	}
	p := readANA(s.admin, 0, true)
	if len(p.Groups) != 3 {
		t.Fatalf("log %+v", p)
	}
	for i, want := range []nvme.ANAGroup{
		{ID: 1, State: nvme.ANAOptimized, NSIDs: nvme.NSIDList{4}, ChangeCount: 1},
		{ID: 3, State: nvme.ANANonOptimized, NSIDs: nvme.NSIDList{2}, ChangeCount: 2},
		{ID: 7, State: nvme.ANAOptimized, NSIDs: nvme.NSIDList{1, 3}, ChangeCount: 1},
	} {
		if g := p.Groups[i]; g.ID != want.ID || g.State != want.State || g.ChangeCount != want.ChangeCount || !slices.Equal(g.NSIDs, want.NSIDs) {
			t.Errorf("group %+v, want %+v", g, want)
		}
	}
}

// TestANAChangeCounts: the log and its groups count each of their changes, including namespaces that come and go, since
// the controller was reset (NVMe base, "Asymmetric Namespace Access"; a group's count begins with 1).
func TestANAChangeCounts(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}, {ID: 2, Transport: nvme.TransportTCP, Addr: anaPortB}}
		c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20)
	}, newTestVolume(1<<20, 512))
	s, other := connectAt(t, tg, anaPortA), connectAt(t, tg, anaPortB)
	defer s.close()
	defer other.close()
	sub := tg.Subsystem(testNQN)
	created := create(s.admin, nvme.NMICShared)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, log uint64, groups ...nvme.ANAGroup) {
		t.Helper()
		p := readANA(s.admin, 0, false)
		same := func(a, b nvme.ANAGroup) bool {
			return a.ID == b.ID && a.ChangeCount == b.ChangeCount && len(a.NSIDs) == len(b.NSIDs)
		}
		if p.ChangeCount != log || !slices.EqualFunc(p.Groups, groups, same) {
			t.Errorf("%s: log %+v, want a count of %d, and %+v", what, p, log, groups)
		}
	}
	group := func(id uint32, count uint64, namespaces int) nvme.ANAGroup {
		return nvme.ANAGroup{ID: id, ChangeCount: count, NSIDs: make(nvme.NSIDList, namespaces)}
	}
	expect("at first", 0, group(1, 1, 1))
	for range 2 {
		_, err := sub.AddNamespace(NamespaceConfig{NSID: 2, ANAGroup: 7, Volume: newTestVolume(1<<20, 512)})
		must(err)
		must(sub.RemoveNamespace(2))
	}
	expect("a namespace has come and gone twice", 4, group(1, 1, 1))
	_, err := sub.AddNamespace(NamespaceConfig{NSID: 2, ANAGroup: 7, Volume: newTestVolume(1<<20, 512)})
	must(err)
	expect("it is there again", 5, group(1, 1, 1), group(7, 6, 1))
	other.admin.must(attachCommand(created, nvme.NSAttach), controllerList(other.cntlid))
	expect("one is attached to another controller", 5, group(1, 1, 1), group(7, 6, 1))
	other.admin.must(attachCommand(created, nvme.NSAttach), controllerList(s.cntlid))
	expect("and to this one", 6, group(1, 2, 2), group(7, 6, 1))
	other.admin.must(attachCommand(2, nvme.NSDetach), controllerList(s.cntlid))
	expect("one is detached", 7, group(1, 2, 2))
	must(tg.SetANAState(1, 7, nvme.ANAInaccessible))
	must(tg.SetANAState(2, 1, nvme.ANAInaccessible))
	expect("what is in the log is as it was", 7, group(1, 2, 2))
	must(tg.SetANAState(1, 1, nvme.ANANonOptimized))
	expect("a state is another", 8, group(1, 3, 2))
	must(tg.RemovePort(nvme.TransportTCP, anaPortA))
	expect("and stays, though its port is gone", 8, group(1, 3, 2))
	s.admin.must(deleteCommand(created), nil)
	expect("a host has deleted one", 9, group(1, 4, 1))
	s.io.hangUp(nil)
	for _, cc := range []nvme.CC{nvme.CCFabrics, nvme.CCFabrics | nvme.CCEnable} {
		s.admin.must(setProperty(nvme.PropCC, uint64(cc)), nil)
	}
	expect("after a reset", 0, group(1, 1, 1))
}

// TestANAOfOthers: a host isn't told of a group in which it has no namespace ("Asymmetric Namespace Access Change": of
// one that contains namespaces attached to this controller).
func TestANAOfOthers(t *testing.T) {
	const elsewhere = "nqn.2024-01.com.example:elsewhere"
	tg := newTargetWith(t, func(c *Config) {
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}}
		c.Subsystems = append(c.Subsystems, SubsystemConfig{NQN: elsewhere, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{ANAGroup: 7, Volume: newTestVolume(1<<20, 512)}}})
	}, newTestVolume(1<<20, 512))
	s := connectAt(t, tg, anaPortA)
	defer s.close()
	theirs := dial(t, tg)
	defer theirs.hangUp(nil)
	connectAdmin(theirs, elsewhere, 0)
	enableEvents(s.admin, nvme.AENANA)
	enableEvents(theirs, nvme.AENANA)
	told, aer := theirs.start(asyncEvent(1), nil), s.admin.start(asyncEvent(1), nil)
	if err := tg.SetANAState(1, 7, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	if ev := nvme.AsyncEvent(told.wait().DW0()); ev != nvme.EventANAChanged {
		t.Errorf("event %v", ev)
	}
	if aer.answered() {
		t.Error("a host is told of a group of others' namespaces")
	}
	if _, err := tg.Subsystem(elsewhere).AddNamespace(NamespaceConfig{NSID: 2, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	if p := readANA(s.admin, 0, true); p.ChangeCount != 0 || len(p.Groups) != 1 || p.Groups[0].ChangeCount != 1 {
		t.Errorf("a namespace of others came: %+v", p)
	}
	if err := tg.SetANAState(1, 1, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventANAChanged {
		t.Errorf("event %v", ev)
	}
}

// TestANAAdmin: how a group that can't be reached affects commands of the admin queue, and commands for all namespaces:
// features of its namespaces aren't available, and how much of their capacity is in use isn't known (NVMe base, "ANA
// effects on Command Processing").
func TestANAAdmin(t *testing.T) {
	tg := newANATarget(t)
	s := connectAt(t, tg, anaPortA)
	defer s.close()
	for state, st := range map[nvme.ANAState]nvme.Status{
		nvme.ANAOptimized: 0, nvme.ANANonOptimized: 0, nvme.ANAChange: nvme.StatusANATransition,
		nvme.ANAInaccessible: nvme.StatusANAInaccessible, nvme.ANAPersistentLoss: nvme.StatusANAPersistentLoss,
	} {
		if err := tg.SetANAState(1, 7, state); err != nil {
			t.Fatal(err)
		}
		for _, f := range []nvme.FID{nvme.FeatErrorRecovery, nvme.FeatResvNotification, nvme.FeatResvPersistence} {
			s.admin.fails(command(func(c *nvme.Command) { c.SetGetFeatures(f, 0, 3, 0) }), nil, st)
			s.admin.fails(setFeature(f, 3, 0), nil, st)
			s.admin.fails(setFeature(f, nvme.NSIDAll, 0), nil, st)
			s.admin.must(setFeature(f, 1, 0), nil)
		}
		s.admin.must(command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatWriteProtect, 0, 3, 0) }), nil)
		set := nvme.Status(0) // not among the features that aren't available, but a loss leaves none
		if state == nvme.ANAPersistentLoss {
			set = st
		}
		for _, v := range []uint32{writeProtected, writeOpen} {
			s.admin.fails(setFeature(nvme.FeatWriteProtect, 3, v), nil, set)
		}
		s.io.fails(command(func(c *nvme.Command) { c.SetFlush(3) }), nil, st)
		s.io.fails(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil, st)
		s.io.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
		var ns nvme.IdentifyNamespace
		page := make([]byte, nvme.PageSize)
		s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 3, 0, 0) }), page)
		if err := ns.Parse(page); err != nil {
			t.Fatal(err)
		}
		hidden := state == nvme.ANAInaccessible || state == nvme.ANAPersistentLoss
		if (ns.NUSE == 0) != hidden || (ns.NVMCAP == nvme.Uint128{}) != hidden || ns.NSZE != 2048 || ns.NCAP != 2048 {
			t.Errorf("%v: NSZE %d, NCAP %d, NUSE %d, NVMCAP %v", state, ns.NSZE, ns.NCAP, ns.NUSE, ns.NVMCAP)
		}
	}
}

// TestANADelete: a controller can't delete a namespace that is attached to it and that it can't reach (NVMe base, "ANA
// Inaccessible state" and the following), nor all namespaces if one is like that. Another controller can, and so can
// this one if the namespace isn't attached: a lost one should be detached ("Host ANA Persistent Loss Operation").
func TestANADelete(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: anaPortA}, {ID: 2, Transport: nvme.TransportTCP, Addr: anaPortB}}
		c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20)
	})
	here, there := connectAt(t, tg, anaPortA), connectAt(t, tg, anaPortB)
	defer here.close()
	defer there.close()
	both := controllerList(here.cntlid, there.cntlid)
	for state, st := range map[nvme.ANAState]nvme.Status{
		nvme.ANAChange: nvme.StatusANATransition, nvme.ANAInaccessible: nvme.StatusANAInaccessible,
		nvme.ANAPersistentLoss: nvme.StatusANAPersistentLoss,
	} {
		spec := nvme.NamespaceSpec{NSZE: 16, NCAP: 16, FLBAS: 1, NMIC: nvme.NMICShared, ANAGRPID: 7}
		one := here.admin.must(createCommand(), spec.AppendTo(nil)).DW0()
		two := here.admin.must(createCommand(), spec.AppendTo(nil)).DW0()
		reached := create(here.admin, nvme.NMICShared) // in group 1
		for _, nsid := range []uint32{one, two, reached} {
			here.admin.must(attachCommand(nsid, nvme.NSAttach), both)
		}
		if err := tg.SetANAState(1, 7, state); err != nil {
			t.Fatal(err)
		}
		here.admin.fails(deleteCommand(one), nil, st)
		here.admin.fails(deleteCommand(nvme.NSIDAll), nil, st)
		if l := nsidsOf(there.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{one, two, reached}) {
			t.Errorf("%v: namespaces %v are left", state, l)
		}
		here.admin.must(deleteCommand(reached), nil)
		there.admin.must(deleteCommand(one), nil)
		here.admin.must(attachCommand(two, nvme.NSDetach), controllerList(here.cntlid))
		here.admin.must(deleteCommand(nvme.NSIDAll), nil)
		if l := nsidsOf(there.admin, nvme.CNSAllocatedNSIDs); len(l) != 0 {
			t.Errorf("%v: namespaces %v are left", state, l)
		}
		if err := tg.SetANAState(1, 7, nvme.ANAOptimized); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortAt: a controller's port is the one that listens at the address its host connected to, or else one that
// listens at all addresses, with the same transport and port number.
func TestPortAt(t *testing.T) {
	at := netip.MustParseAddrPort
	tcp, rdma := nvme.TransportTCP, nvme.TransportRDMA
	tg := newTargetWith(t, func(c *Config) {
		c.Ports = []Port{
			{ID: 1, Transport: rdma, Addr: at("127.0.0.1:4420")}, {ID: 2, Transport: tcp, Addr: at("127.0.0.1:4420")},
			{ID: 3, Transport: tcp, Addr: at("127.0.0.1:4421")}, {ID: 4, Transport: tcp, Addr: at("192.0.2.1:4422")},
			{ID: 5, Transport: tcp, Addr: at("0.0.0.0:4422")}, {ID: 6, Transport: rdma, Addr: at("0.0.0.0:4422")},
			{ID: 7, Transport: tcp, Addr: at("192.0.2.2:4422")},
		}
	})
	tg.mu.Lock()
	defer tg.mu.Unlock()
	for _, tc := range []struct {
		transport nvme.TransportType
		local     string
		want      uint16
	}{
		{rdma, "127.0.0.1:4420", 1}, {tcp, "127.0.0.1:4420", 2}, {tcp, "127.0.0.1:4421", 3}, {rdma, "127.0.0.1:4421", 0},
		{tcp, "127.0.0.2:4421", 0}, {tcp, "192.0.2.1:4422", 4}, {tcp, "192.0.2.2:4422", 7}, {tcp, "[::ffff:192.0.2.1]:4422", 4},
		{tcp, "192.0.2.3:4422", 5}, {rdma, "192.0.2.1:4422", 6}, {tcp, "192.0.2.1:4420", 0},
	} {
		var got uint16
		if p := tg.portAt(tc.transport, at(tc.local)); p != nil {
			got = p.ID
		}
		if got != tc.want {
			t.Errorf("%v %s: port %d, want %d", tc.transport, tc.local, got, tc.want)
		}
	}
}

// TestANANewSubsystem: a new subsystem concerns the states of no controller, as going through all of them for each one
// takes a start with thousands long. Its own namespaces have the states of their groups.
func TestANANewSubsystem(t *testing.T) {
	tg := newANATarget(t)
	s := connectAt(t, tg, anaPortA)
	defer s.close()
	if err := tg.SetANAState(1, 7, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	given := tg.controllers[s.cntlid].ana.Load()
	added, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + ":new", Namespaces: []NamespaceConfig{
		{NSID: 1, Volume: newTestVolume(1<<20, 512)}, {NSID: 2, Volume: newTestVolume(1<<20, 512), ANAGroup: 7},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if tg.controllers[s.cntlid].ana.Load() != given {
		t.Error("the controller of another subsystem was given its states again")
	}
	for _, ns := range added.all() {
		if barred := ns.state.Load()&nsBarred != 0; barred != (ns.nsid == 2) {
			t.Errorf("namespace %d, group %d: barred %v", ns.nsid, ns.anaGroup, barred)
		}
	}
}

// TestANALater: ports, namespaces and hosts that are added later get the states that were set.
func TestANALater(t *testing.T) {
	tg := newANATarget(t)
	early := connectAt(t, tg, netip.MustParseAddrPort("192.0.2.1:4422"))
	if err := tg.AddPort(Port{ID: 3, Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("192.0.2.1:4422")}); err != nil {
		t.Fatal(err)
	}
	if err := tg.SetANAState(3, 5, nvme.ANAInaccessible); err != nil {
		t.Fatal(err)
	}
	sub := tg.Subsystem(testNQN)
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 9, ANAGroup: 5, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	late := connectAt(t, tg, netip.MustParseAddrPort("192.0.2.1:4422"))
	other := connectAt(t, tg, anaPortA)
	cmd := command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, 9, 0, 1, 0) })
	for _, s := range []*session{early, late} {
		s.io.fails(cmd, make([]byte, 512), nvme.StatusANAInaccessible)
		s.admin.fails(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatErrorRecovery, false, 9, 1) }), nil, nvme.StatusANAInaccessible)
	}
	other.io.must(cmd, make([]byte, 512))
	page := make([]byte, nvme.PageSize)
	other.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 9, 0, 0) }), page)
	var ns nvme.IdentifyNamespace
	if err := ns.Parse(page); err != nil || ns.ANAGRPID != 5 {
		t.Errorf("ANAGRPID %d, %v", ns.ANAGRPID, err)
	}
	// A port that goes leaves its states to the hosts that are still connected there, and to nobody else.
	if err := tg.RemovePort(nvme.TransportTCP, netip.MustParseAddrPort("192.0.2.1:4422")); err != nil {
		t.Fatal(err)
	}
	early.io.fails(cmd, make([]byte, 512), nvme.StatusANAInaccessible)
	other.io.must(cmd, make([]byte, 512))
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 10, ANAGroup: 5, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	added := command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, 10, 0, 1, 0) })
	early.io.fails(added, make([]byte, 512), nvme.StatusANAInaccessible)
	early.close()
	late.io.fails(cmd, make([]byte, 512), nvme.StatusANAInaccessible)
	late.close()
	again := connectAt(t, tg, netip.MustParseAddrPort("192.0.2.1:4422"))
	again.io.must(cmd, make([]byte, 512))
	for _, nsid := range []uint32{9, 10} {
		if s := sub.namespace(nsid).state.Load(); s != 0 {
			t.Errorf("namespace %d: state bits %#x are left", nsid, s)
		}
	}
	for _, err := range []error{tg.SetANAState(3, 1, nvme.ANAOptimized), tg.SetANAState(1, 0, nvme.ANAOptimized),
		tg.SetANAState(1, MaxANAGroup+1, nvme.ANAOptimized), tg.SetANAState(1, 1, 9)} {
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConfig) {
			t.Errorf("error %v", err)
		}
	}
	for _, s := range []*session{again, other} {
		s.close()
	}
}

// TestANAPorts: adding or removing a port changes the states for hosts that connected there, and they are told.
func TestANAPorts(t *testing.T) {
	tg := newANATarget(t)
	at := netip.MustParseAddrPort("192.0.2.1:4421")
	if err := tg.SetANAState(2, 7, nvme.ANAInaccessible); err != nil { // at any address
		t.Fatal(err)
	}
	here, elsewhere := connectAt(t, tg, at), connectAt(t, tg, anaPortA)
	defer here.close()
	defer elsewhere.close()
	for _, s := range []*session{here, elsewhere} {
		enableEvents(s.admin, nvme.AENANA)
	}
	quiet := elsewhere.admin.start(asyncEvent(1), nil)
	for _, tc := range []struct {
		what   string
		change func() error
		want   nvme.ANAState
	}{
		{"a port for the address alone", func() error { return tg.AddPort(Port{ID: 3, Transport: nvme.TransportTCP, Addr: at}) }, nvme.ANAOptimized},
		{"it goes again", func() error { return tg.RemovePort(nvme.TransportTCP, at) }, nvme.ANAInaccessible},
	} {
		told := here.admin.start(asyncEvent(1), nil)
		if err := tc.change(); err != nil {
			t.Fatal(err)
		}
		if ev := nvme.AsyncEvent(told.wait().DW0()); ev != nvme.EventANAChanged {
			t.Errorf("%s: event %v", tc.what, ev)
		}
		if p := readANA(here.admin, 0, false); p.Groups[1].State != tc.want {
			t.Errorf("%s: state %v, want %v", tc.what, p.Groups[1].State, tc.want)
		}
	}
	if quiet.answered() {
		t.Error("the hosts of another port were told")
	}
}
