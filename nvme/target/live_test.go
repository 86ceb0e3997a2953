package target

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestHostsDisallowed: hosts are admitted by the list, and disconnected by DisconnectRevoked, not before; those that
// a change doesn't affect stay.
func TestHostsDisallowed(t *testing.T) {
	const friend = "nqn.2024-01.com.example:friend"
	tg := newTarget(t, newTestVolume(1<<20, 512))
	sub := tg.Subsystem(testNQN)
	stays := connect(t, tg, testNQN)
	q := dial(t, tg)
	d := nvme.ConnectData{HostID: nvme.HostID{9}, CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: friend}
	data, _ := d.AppendTo(nil)
	q.must(connectCommand(0, 31, 0), data)

	disc := dial(t, tg)
	connectAdmin(disc, nvme.DiscoveryNQN, 0)
	enableEvents(disc, nvme.AENDiscovery)
	aer := disc.start(asyncEvent(1), nil)
	if err := sub.SetHosts(false, []string{testHost}); err != nil {
		t.Fatal(err)
	}
	aer.wait()
	q.must(getProperty(nvme.PropCAP), nil)
	tg.DisconnectRevoked()
	q.waitClosed()
	if !errors.Is(q.reason, ErrNotAllowed) {
		t.Errorf("disconnected because of %v", q.reason)
	}
	stays.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	q = dial(t, tg)
	q.fails(connectCommand(0, 31, 0), data, nvme.StatusConnectInvalidHost|dnr)
	if err := sub.SetHosts(false, []string{testHost, friend}); err != nil {
		t.Fatal(err)
	}
	q.must(connectCommand(0, 31, 0), data)
	if err := sub.SetHosts(false, []string{"me"}); !errors.Is(err, ErrConfig) {
		t.Errorf("a name that is none: %v", err)
	}
	stays.close()
}

// uniqueDiscovery is the name of the discovery subsystem of newReferring.
const uniqueDiscovery = "nqn.2024-01.com.example:discovery"

// newReferring makes a target with a port and a referral, which it returns.
func newReferring(t *testing.T) (*Target, Referral) {
	t.Helper()
	other := Referral{Transport: nvme.TransportRDMA, Addr: netip.MustParseAddrPort("192.0.2.9:8009"), NQN: uniqueDiscovery + "2"}
	return newTargetWith(t, func(c *Config) {
		c.Referrals, c.DiscoveryNQN = []Referral{other}, uniqueDiscovery
		c.Ports = []Port{{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("127.0.0.1:4420")}}
	}), other
}

// TestReferrals: hosts are referred to other discovery services.
func TestReferrals(t *testing.T) {
	tg, _ := newReferring(t)
	for _, nqn := range []string{uniqueDiscovery, nvme.DiscoveryNQN} {
		q := dial(t, tg)
		connectAdmin(q, nqn, 0)
		page := make([]byte, nvme.PageSize)
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
		var id nvme.IdentifyController
		if err := id.Parse(page); err != nil || id.NQN() != uniqueDiscovery {
			t.Errorf("reached as %s it is %q, %v", nqn, id.NQN(), err)
		}
		_, entries := discover(t, q)
		want := []string{
			"3 tcp ipv4 " + uniqueDiscovery + " 127.0.0.1:4420",
			"1 rdma ipv4 " + uniqueDiscovery + "2 192.0.2.9:8009",
			"2 tcp ipv4 " + testNQN + " 127.0.0.1:4420",
		}
		if got := describe(entries); !slices.Equal(got, want) {
			t.Errorf("log:\n%q\nwant\n%q", got, want)
		}
		q.hangUp(nil)
	}
}

// TestReferralsChange: hosts are told when referrals change.
func TestReferralsChange(t *testing.T) {
	tg, other := newReferring(t)
	q := dial(t, tg)
	connectAdmin(q, uniqueDiscovery, 30_000)
	enableEvents(q, nvme.AENDiscovery)
	aer := q.start(asyncEvent(1), nil)
	second := Referral{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("[2001:db8::1]:8009"), Secure: true}
	if err := tg.AddReferral(second); err != nil {
		t.Fatal(err)
	}
	aer.wait()
	_, entries := discover(t, q)
	if e := entries[2]; e.NQN() != nvme.DiscoveryNQN || e.ADRFAM != nvme.FamilyIPv6 || e.SUBTYPE != nvme.SubsystemReferral || e.TREQ&1 == 0 {
		t.Errorf("entry %+v", e)
	}
	if err := tg.AddReferral(second); !errors.Is(err, ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	if err := tg.RemoveReferral(other.Transport, other.Addr); err != nil {
		t.Error(err)
	}
	if err := tg.RemoveReferral(other.Transport, other.Addr); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: uniqueDiscovery}); !errors.Is(err, ErrExists) {
		t.Errorf("a subsystem of the discovery subsystem's name: %v", err)
	}
	for _, bad := range []Referral{
		{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("0.0.0.0:1")},
		{Transport: nvme.TransportFC, Addr: other.Addr},
		{Transport: nvme.TransportTCP, Addr: other.Addr, NQN: "x"},
	} {
		if err := tg.AddReferral(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestIdentifyLists: lists of allocated namespaces, controllers, and command sets.
func TestIdentifyLists(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
	var ids nvme.ControllerList
	var q *fakeConn
	for range 3 {
		q = dial(t, tg)
		ids = append(ids, connectAdmin(q, testNQN, 0))
	}
	slices.Sort(ids)
	other := dial(t, tg)
	stranger := connectAdmin(other, nvme.DiscoveryNQN, 0)
	page := make([]byte, nvme.PageSize)
	identify := func(cns nvme.CNS, nsid uint32, cntid uint16) nvme.Command {
		return command(func(c *nvme.Command) { c.SetIdentify(cns, nsid, cntid, 0) })
	}
	for _, tc := range []struct {
		cns  nvme.CNS
		nsid uint32
		from uint16
		want nvme.ControllerList
	}{
		{nvme.CNSControllers, 0, 0, ids},
		{nvme.CNSControllers, 0, ids[1], ids[1:]},
		{nvme.CNSAttachedControllers, 2, ids[2], ids[2:]},
		{nvme.CNSAttachedControllers, 3, 0, nil},
	} {
		q.must(identify(tc.cns, tc.nsid, tc.from), page)
		if got, err := nvme.ParseControllerList(page); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("CNS %#x from %d: %v, want %v, %v", tc.cns, tc.from, got, tc.want, err)
		}
	}
	for _, cns := range []nvme.CNS{nvme.CNSActiveNSIDs, nvme.CNSAllocatedNSIDs, nvme.CNSCommandSetActiveNSIDs, nvme.CNSCommandSetAllocated} {
		q.must(identify(cns, 1, 0), page)
		if l, err := nvme.ParseNSIDList(page); err != nil || !slices.Equal(l, nvme.NSIDList{2}) {
			t.Errorf("CNS %#x after 1: %v, %v", cns, l, err)
		}
	}
	q.must(identify(nvme.CNSAllocatedNamespace, 2, 0), page)
	var ns nvme.IdentifyNamespace
	if err := ns.Parse(page); err != nil || ns.NSZE != 2048 {
		t.Errorf("allocated namespace of %d blocks, %v", ns.NSZE, err)
	}
	for _, cntid := range []uint16{nvme.CNTLIDDynamic, ids[0]} {
		q.must(identify(nvme.CNSCommandSets, 0, cntid), page)
		var sets nvme.CommandSets
		if err := sets.Parse(page); err != nil || sets != (nvme.CommandSets{1}) {
			t.Errorf("command sets %v, %v", sets[:2], err)
		}
	}
	q.fails(identify(nvme.CNSCommandSets, 0, stranger), page, nvme.StatusInvalidField|dnr)
}

// TestFoundBeforeRemoval: a command that found its namespace just before the namespace is removed doesn't use it.
func TestFoundBeforeRemoval(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	ns := tg.Subsystem(testNQN).namespace(1)
	ns.state.Or(nsRemoved)
	s.io.fails(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512), nvme.StatusInvalidNamespace|dnr)
	ns.state.And(^nsRemoved)
	if ops := v.ops(); len(ops) != 0 {
		t.Errorf("the volume saw %v", ops)
	}
}

// TestDistinct: no two namespaces of a subsystem have an identifier in common, and the error for the second one says
// which namespace has it. Once that is gone the identifier is free.
func TestDistinct(t *testing.T) {
	first := NamespaceConfig{NSID: 3, UUID: [16]byte{1}, NGUID: [16]byte{2}, EUI64: [8]byte{3}}
	for want, second := range map[string]NamespaceConfig{
		"namespace 5: UUID 01000000-0000-0000-0000-000000000000 already exists, as that of namespace 3":      {UUID: first.UUID, NGUID: [16]byte{4}},
		"namespace 5: NGUID 02000000000000000000000000000000 already exists, as that of namespace 3":         {UUID: [16]byte{4}, NGUID: first.NGUID},
		"namespace 5: EUI64 0300000000000000 already exists, as that of namespace 3":                         {EUI64: first.EUI64},
		"namespace 5: UUID " + nvme.HostID(deriveUUID(testNQN, 1, "")).String() + " already exists, as that": {UUID: deriveUUID(testNQN, 1, "")},
		"": {UUID: [16]byte{4}, NGUID: first.UUID, EUI64: [8]byte{4}}, // each kind is distinct from the others
	} {
		sub := newTarget(t, newTestVolume(1<<20, 512)).Subsystem(testNQN)
		first.Volume, second.NSID, second.Volume = newTestVolume(1<<20, 512), 5, newTestVolume(1<<20, 512)
		if _, err := sub.AddNamespace(first); err != nil {
			t.Fatal(err)
		}
		_, err := sub.AddNamespace(second)
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
			continue
		}
		others := []uint32{1, 3}
		if got := sub.CheckNamespaces(nil, []NamespaceConfig{second}); got == nil || got.Error() != err.Error() {
			t.Errorf("a check gets %v, want %v", got, err)
		}
		if err := sub.CheckNamespaces(others, []NamespaceConfig{second}); err != nil {
			t.Errorf("before the other goes: %v", err)
		}
		twice := []NamespaceConfig{second, second}
		twice[1].NSID = 6
		if err := sub.CheckNamespaces(others, twice); !errors.Is(err, ErrExists) || !strings.HasSuffix(err.Error(), "as that of namespace 5: give it another, or none") {
			t.Errorf("twice in one change: %v", err)
		}
		for _, nsid := range others {
			if err := sub.RemoveNamespace(nsid); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sub.AddNamespace(second); err != nil {
			t.Errorf("when it is gone: %v", err)
		}
	}
}
