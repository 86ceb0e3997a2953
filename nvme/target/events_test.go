package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func asyncEvent(cid uint16) nvme.Command {
	return command(func(c *nvme.Command) { c.SetAsyncEvent(); c.SetCID(cid) })
}

func enableEvents(c *fakeConn, ev nvme.AsyncEventConfig) {
	c.t.Helper()
	c.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatAsyncEvent, false, 0, uint32(ev)) }), nil)
}

func (fr *fakeRequest) answered() bool {
	select {
	case <-fr.done:
		return true
	default:
		return false
	}
}

func changedNamespaces(c *fakeConn, retain bool) nvme.ChangedNamespaces {
	c.t.Helper()
	page := make([]byte, 4096)
	c.must(command(func(c *nvme.Command) {
		c.SetGetLogPage(nvme.GetLogPage{LID: nvme.LogChangedNamespaces, Length: 4096, RAE: retain})
	}), page)
	var p nvme.ChangedNamespaces
	if err := p.Parse(page); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// TestUnwantedEvent: an event that happened while its host wanted events of that kind isn't sent once the host doesn't
// (NVMe base, "Asynchronous Event Configuration").
func TestUnwantedEvent(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	enableEvents(s.admin, nvme.AENNamespace|nvme.AENANA)
	if _, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	deliver(tg.controller(s.cntlid).tell(eventANA))
	enableEvents(s.admin, nvme.AENANA)
	wanted, unwanted := s.admin.start(asyncEvent(1), nil), s.admin.start(asyncEvent(2), nil)
	if ev := nvme.AsyncEvent(wanted.wait().DW0()); ev != nvme.EventANAChanged {
		t.Errorf("event %v", ev)
	}
	if unwanted.answered() {
		t.Errorf("event %v, which isn't wanted", nvme.AsyncEvent(unwanted.wait().DW0()))
	}
}

// TestNamespaceEvents: namespaces that come, go, grow or change are reported once, until the log is read.
func TestNamespaceEvents(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	sub := tg.Subsystem(testNQN)
	s := connect(t, tg, testNQN)
	defer s.close()
	enableEvents(s.admin, nvme.AENNamespace)

	aer := s.admin.start(asyncEvent(1), nil)
	if aer.answered() {
		t.Fatal("an event without a cause")
	}
	ns, err := sub.AddNamespace(NamespaceConfig{NSID: 7, Volume: newTestVolume(1<<20, 512)})
	if err != nil || ns.NSID() != 7 {
		t.Fatalf("AddNamespace: %v", err)
	}
	if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventNamespaceChanged {
		t.Errorf("event %v", ev)
	}
	aer = s.admin.start(asyncEvent(2), nil)
	v.info.Size = 2 << 20
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	if aer.answered() {
		t.Error("a second event before the log was read")
	}
	if p := changedNamespaces(s.admin, true); !slices.Equal(p.NSIDs, []uint32{1, 7}) || p.TooMany {
		t.Errorf("changed namespaces %+v", p)
	}
	s.admin.fails(getLog(nvme.GetLogPage{LID: nvme.LogChangedNamespaces, Length: 4, Offset: 8192}), make([]byte, 4), nvme.StatusInvalidField|dnr)
	if p := changedNamespaces(s.admin, false); !slices.Equal(p.NSIDs, []uint32{1, 7}) {
		t.Errorf("changed namespaces %+v after a read that retains them, and one that failed", p)
	}
	if p := changedNamespaces(s.admin, false); len(p.NSIDs) != 0 {
		t.Errorf("changed namespaces %+v after they were read", p)
	}
	if aer.answered() {
		t.Error("an event for what was read already")
	}
	page := make([]byte, 4096)
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }), page)
	var id nvme.IdentifyNamespace
	if err := id.Parse(page); err != nil || id.NSZE != 4096 {
		t.Errorf("NSZE %d after the volume grew to 4096 blocks", id.NSZE)
	}
	if err := sub.RemoveNamespace(7); err != nil {
		t.Error(err)
	}
	aer.wait()
	s.io.fails(command(func(c *nvme.Command) { c.SetFlush(7) }), nil, nvme.StatusInvalidNamespace|dnr)
	if err := sub.RemoveNamespace(7); err == nil {
		t.Error("a namespace was removed twice")
	}
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: v}); err == nil {
		t.Error("a namespace was added twice")
	}
	if ns, err := sub.AddNamespace(NamespaceConfig{Volume: v}); err != nil || ns.NSID() != 2 {
		t.Errorf("the lowest free NSID: %v", err)
	}
}

// TestResizeOfSeveral: a volume that is several namespaces reports its new size to each, as long as it is one.
func TestResizeOfSeveral(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v, v)
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + "2", AllowAnyHost: true,
		Namespaces: []NamespaceConfig{{Volume: v}}}); err != nil {
		t.Fatal(err)
	}
	sub := tg.Subsystem(testNQN)
	s, other := connect(t, tg, testNQN), connect(t, tg, testNQN+"2")
	defer s.close()
	defer other.close()
	grow := func(blocks uint64, want ...uint32) {
		t.Helper()
		v.info.Size = int64(blocks) << 9
		if err := v.Refresh(); err != nil {
			t.Fatal(err)
		}
		if p := changedNamespaces(s.admin, false); !slices.Equal(p.NSIDs, want) {
			t.Errorf("changed namespaces %v, want %v", p.NSIDs, want)
		}
		if p := changedNamespaces(other.admin, false); !slices.Equal(p.NSIDs, []uint32{1}) {
			t.Errorf("changed namespaces of the other subsystem: %v", p.NSIDs)
		}
		for _, nsid := range want {
			page := make([]byte, 4096)
			s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, nsid, 0, 0) }), page)
			var id nvme.IdentifyNamespace
			if err := id.Parse(page); err != nil || id.NSZE != blocks {
				t.Errorf("namespace %d has %d blocks, want %d: %v", nsid, id.NSZE, blocks, err)
			}
		}
	}
	grow(4096, 1, 2)
	if err := sub.RemoveNamespace(2); err != nil {
		t.Fatal(err)
	}
	changedNamespaces(s.admin, false)
	grow(8192, 1)
}

// TestEventsOfOthers: the host that protects a namespace isn't told, the other hosts are.
func TestEventsOfOthers(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	var qs []*fakeConn
	var aers []*fakeRequest
	for range 3 {
		q := dial(t, tg)
		connectAdmin(q, testNQN, 0)
		if len(qs) < 2 {
			enableEvents(q, nvme.AENNamespace)
		}
		qs, aers = append(qs, q), append(aers, q.start(asyncEvent(1), nil))
	}
	qs[0].must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }), nil)
	for i, want := range []bool{false, true, false} {
		if aers[i].answered() != want {
			t.Errorf("host %d was told: %v", i, !want)
		}
	}
	changedNamespaces(qs[1], false)
	again := qs[1].start(asyncEvent(1), nil)
	qs[0].must(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	if again.answered() {
		t.Error("told of protection that there was already")
	}
}

func TestTooManyChanged(t *testing.T) {
	tg := newTarget(t)
	q := dial(t, tg)
	c := tg.controller(connectAdmin(q, testNQN, 0))
	for nsid := range uint32(nvme.MaxNSIDList) {
		c.namespaceChanged(nsid + 1)
	}
	if p := changedNamespaces(q, true); p.TooMany || len(p.NSIDs) != nvme.MaxNSIDList {
		t.Errorf("%d namespaces, too many: %v", len(p.NSIDs), p.TooMany)
	}
	c.namespaceChanged(nvme.MaxNSIDList + 1)
	c.namespaceChanged(1)
	if p := changedNamespaces(q, false); !p.TooMany {
		t.Error("not too many")
	}
	c.namespaceChanged(5)
	c.namespaceChanged(5)
	if p := changedNamespaces(q, false); p.TooMany || !slices.Equal(p.NSIDs, []uint32{5}) {
		t.Errorf("%+v", p)
	}
}

// TestEventRequests: at most AERL + 1 are held, and they end with the controller.
func TestEventRequests(t *testing.T) {
	tg := newTarget(t)
	q := dial(t, tg)
	s := &session{admin: q, cntlid: connectAdmin(q, testNQN, 0)}
	s.addQueue(t, tg, 1, testNQN)
	var held []*fakeRequest
	for i := range uint16(maxEventRequests) {
		held = append(held, q.start(asyncEvent(100+i), nil))
	}
	q.fails(asyncEvent(200), nil, nvme.StatusAsyncEventLimit|dnr)

	abort := func(sqid, cid uint16) uint32 {
		t.Helper()
		return q.must(command(func(c *nvme.Command) { c.SetAbort(sqid, cid) }), nil).DW0()
	}
	if abort(0, 99) != nvme.AbortNotDone || abort(1, 101) != nvme.AbortNotDone {
		t.Error("aborted what isn't there")
	}
	if abort(0, 101) != 0 {
		t.Error("not aborted")
	}
	if st := held[1].wait().Status().Code(); st != nvme.StatusAbortRequested {
		t.Errorf("aborted event request: %#x", uint16(st))
	}
	held[1] = q.start(asyncEvent(101), nil)

	q.must(setProperty(nvme.PropCC, 0), nil)
	for _, r := range held {
		if st := r.wait().Status().Code(); st != nvme.StatusAbortRequested {
			t.Errorf("event request at reset: %#x", uint16(st))
		}
	}
	q.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	last := q.start(asyncEvent(1), nil)
	q.hangUp(nil)
	if st := last.wait().Status(); st != nvme.StatusAbortSQDeleted {
		t.Errorf("event request at the end: %#x", uint16(st))
	}
}

// TestFailedReadRetains: reading a log page clears its event, and lets the next one through; a read that fails, or has
// Retain Asynchronous Event set, doesn't (NVMe base, "Get Log Page", RAE).
func TestFailedReadRetains(t *testing.T) {
	tg := newTarget(t)
	for _, tc := range []struct {
		nqn  string
		lid  nvme.LID
		kind eventKind
		size uint64
	}{
		{testNQN, nvme.LogChangedNamespaces, eventNamespace, 4096},
		{testNQN, nvme.LogANA, eventANA, nvme.ANALogSize(MaxANAGroup, MaxNSID)},
		{testNQN, nvme.LogReservation, eventReservation, nvme.ReservationNotificationSize},
		{testNQN, nvme.LogSanitize, eventSanitize, nvme.SanitizeLogSize},
		{nvme.DiscoveryNQN, nvme.LogDiscovery, eventDiscovery, nvme.DiscoveryHeaderSize}, // there is no port
	} {
		q := dial(t, tg)
		c := tg.controller(connectAdmin(q, tc.nqn, 0))
		enableEvents(q, c.supportedEvents())
		// again reports whether the host is told of one more event.
		again := func() bool {
			aer := q.start(asyncEvent(1), nil)
			c.mu.Lock()
			out := c.raise(tc.kind)
			c.mu.Unlock()
			deliver(out)
			told := aer.answered()
			q.must(command(func(c *nvme.Command) { c.SetAbort(0, 1) }), nil)
			return told
		}
		page := make([]byte, 8)
		read := func(off uint64, retain bool) nvme.Command {
			return getLog(nvme.GetLogPage{LID: tc.lid, NSID: nvme.NSIDAll, Length: 8, Offset: off, RAE: retain})
		}
		if !again() || again() {
			t.Errorf("%v: the host is told, and that again before it has read", tc.lid)
		}
		q.fails(read(tc.size+4, false), page, nvme.StatusInvalidField|dnr)
		q.must(read(8, true), page)
		if again() {
			t.Errorf("%v: told again though the page was not read", tc.lid)
		}
		for _, off := range []uint64{8, tc.size} { // reading at the log's end returns nothing, but isn't an error
			q.must(read(off, false), page)
			if !again() {
				t.Errorf("%v: not told again though the page was read at %d", tc.lid, off)
			}
		}
		q.must(ccOff, nil)
		q.must(ccOn, nil)
		enableEvents(q, c.supportedEvents())
		if !again() {
			t.Errorf("%v: not told again after a reset", tc.lid)
		}
		q.hangUp(nil)
	}
}
