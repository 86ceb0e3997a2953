package target

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// nextNotice reads one notification.
func nextNotice(c *fakeConn) nvme.ReservationNotification {
	c.t.Helper()
	return readNotice(c, false)
}

func readNotice(c *fakeConn, retain bool) (p nvme.ReservationNotification) {
	c.t.Helper()
	b := make([]byte, 64)
	c.must(getLog(nvme.GetLogPage{LID: nvme.LogReservation, NSID: nvme.NSIDAll, Length: 64, RAE: retain}), b)
	if err := p.Parse(b); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// TestReservationNotices: hosts are told what others did to their registrations and reservations, unless they don't
// want to be.
func TestReservationNotices(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	aer := b.admin.start(asyncEvent(1), nil)
	registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusiveRegOnly, 11, 0, 0).run(a.io)
	if aer.answered() {
		t.Fatal("an event without a cause")
	}
	releaseAs(1, nvme.ResvRelease, nvme.ResvWriteExclusiveRegOnly, 11, 0).run(a.io)
	if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventReservation || uint32(ev) != 0x800006 {
		t.Errorf("event %v (%#x)", ev, uint32(ev))
	}
	acquireAs(2, nvme.ResvAcquire, nvme.ResvExclusiveAccess, 22, 0, 0).run(b.io)
	acquireAs(1, nvme.ResvPreempt, nvme.ResvExclusiveAccess, 11, 22, 0).run(a.io)
	for i, want := range []nvme.ReservationNotification{
		{Count: 1, Type: nvme.ResvNoticeReleased, Pages: 1, NSID: 1},
		{Count: 2, Type: nvme.ResvNoticeRegistrationPreempted, NSID: 1},
		{},
	} {
		if got := nextNotice(b.admin); got != want {
			t.Errorf("notification %d: %+v, want %+v", i, got, want)
		}
	}
	// Masked.
	mask := func(nsid, v uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatResvNotification, false, nsid, v) })
	}
	b.admin.fails(mask(7, 0), nil, nvme.StatusInvalidField|dnr)
	b.admin.must(mask(nvme.NSIDAll, 0xffffffff), nil)
	get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvNotification, 0, 1, 0) })
	if v := b.admin.must(get, nil).DW0(); v != 0xe {
		t.Errorf("mask %#x", v)
	}
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	aer = b.admin.start(asyncEvent(2), nil)
	releaseAs(1, nvme.ResvClear, 0, 11, 0).run(a.io)
	if aer.answered() || nextNotice(b.admin) != (nvme.ReservationNotification{}) {
		t.Error("told of what it doesn't want to know")
	}
	if got := nextNotice(a.admin); got != (nvme.ReservationNotification{}) {
		t.Errorf("told of what it did itself: %+v", got)
	}
	// No more notifications wait than there is room for.
	c := tg.controller(b.cntlid)
	b.admin.must(mask(1, 0), nil)
	for range maxResvNotices + 10 {
		c.resvNotice(1, nvme.ResvNoticeReleased)
	}
	for i := range uint64(maxResvNotices) {
		want := 2 + 1 + i
		if i == maxResvNotices-1 {
			want += 10 // which says that so many are lost
		}
		if got := nextNotice(b.admin); got.Count != want || got.Pages != uint8(maxResvNotices-1-i) {
			t.Fatalf("notification %+v, want number %d", got, want)
		}
	}
	if got := nextNotice(b.admin); got != (nvme.ReservationNotification{}) {
		t.Errorf("notification %+v", got)
	}
}

// TestNoticeIsRead: reading a notification removes it from the queue, whatever happens to the event (NVMe base,
// "Reservation Notification"); a read beyond its end doesn't.
func TestNoticeIsRead(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	for range 3 {
		tg.controller(s.cntlid).resvNotice(1, nvme.ResvNoticeReleased)
	}
	beyond := nvme.GetLogPage{LID: nvme.LogReservation, NSID: nvme.NSIDAll, Length: 4, Offset: 68}
	for i, want := range []nvme.ReservationNotification{
		{Count: 1, Type: nvme.ResvNoticeReleased, Pages: 2, NSID: 1},
		{Count: 2, Type: nvme.ResvNoticeReleased, Pages: 1, NSID: 1},
		{Count: 3, Type: nvme.ResvNoticeReleased, NSID: 1},
		{},
	} {
		s.admin.fails(getLog(beyond), make([]byte, 4), nvme.StatusInvalidField|dnr)
		if got := readNotice(s.admin, i%2 == 0); got != want {
			t.Errorf("notification %d: %+v, want %+v", i, got, want)
		}
	}
}

// TestEventPerNotice: a host that reads one notification for each event gets them all. An event tells of the presence of
// one or more pages (NVMe base 2.1, section 8.1.22.2), and a read takes only one of them.
func TestEventPerNotice(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	notify := func() { tg.controller(s.cntlid).resvNotice(1, nvme.ResvNoticeReleased) }
	aer := s.admin.start(asyncEvent(1), nil)
	for range 3 {
		notify()
	}
	for left := 3; left > 0; left-- {
		if !aer.answered() {
			t.Fatalf("no event while there are %d notifications", left)
		}
		aer = s.admin.start(asyncEvent(1), nil)
		if aer.answered() {
			t.Fatal("a second event before the log was read")
		}
		if p := nextNotice(s.admin); p.Pages != uint8(left-1) {
			t.Errorf("%+v, want %d more", p, left-1)
		}
	}
	if aer.answered() {
		t.Fatal("an event though nothing is left")
	}
	notify()
	notify()
	aer.wait()
	nextNotice(s.admin)
	if aer = s.admin.start(asyncEvent(1), nil); !aer.answered() {
		t.Fatal("no event for what was left when the host had no request outstanding")
	}
	aer = s.admin.start(asyncEvent(1), nil)
	readNotice(s.admin, true)
	if aer.answered() {
		t.Error("an event though it is retained")
	}
}

// TestNoticesOfAll: who is notified when registrations are removed: hosts that are preempted, holders or not, of the
// preempted registration, and hosts whose registrations are cleared, of the preempted reservation ("Preempting a
// Reservation or Registration", "Clearing a Reservation").
func TestNoticesOfAll(t *testing.T) {
	const registration, reservation = nvme.ResvNoticeRegistrationPreempted, nvme.ResvNoticePreempted
	const ofOne, ofAll = nvme.ResvWriteExclusive, nvme.ResvWriteExclusiveAllReg
	for name, tc := range map[string]struct {
		kind nvme.ResvType
		op   resvOp // of the third host
		want [3][]uint8
	}{
		"preempt":        {ofOne, acquireAs(3, nvme.ResvPreempt, ofOne, 33, 11, 0), [3][]uint8{{registration, 0}, {registration, 0}, {0}}},
		"preempt of all": {ofAll, acquireAs(3, nvme.ResvPreempt, ofAll, 33, 11, 0), [3][]uint8{{registration, 0}, {registration, 0}, {0}}},
		"preempt itself": {ofOne, acquireAs(3, nvme.ResvPreempt, ofOne, 33, 33, 0), [3][]uint8{{0}, {0}, {0}}},
		"clear":          {ofOne, releaseAs(3, nvme.ResvClear, 0, 33, 0), [3][]uint8{{reservation, 0}, {reservation, 0}, {0}}},
	} {
		tg := newTarget(t, newTestVolume(1<<20, 512))
		holder, alike, other := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
		registerAs(1, nvme.ResvRegister, 0, 11, 0).run(holder.io)
		registerAs(2, nvme.ResvRegister, 0, 11, 0).run(alike.io)
		registerAs(3, nvme.ResvRegister, 0, 33, 0).run(other.io)
		acquireAs(1, nvme.ResvAcquire, tc.kind, 11, 0, 0).run(holder.io)
		tc.op.run(other.io)
		for i, s := range []*session{holder, alike, other} {
			for n, kind := range tc.want[i] {
				if got := nextNotice(s.admin); got.Type != kind {
					t.Errorf("%s: notification %d of host %d is of type %d, want %d", name, n, i+1, got.Type, kind)
				}
			}
			s.close()
		}
	}
}

// TestReservationReleased: registrants that were allowed to write, or read, because others held the reservation are
// told when it ends, and all when its type changes (sections "Unregistering", "Releasing a Reservation" and "Preempting
// a Reservation or Registration").
func TestReservationReleased(t *testing.T) {
	ends := map[string]func(host int, kind nvme.ResvType) resvOp{
		"unregistered": func(host int, _ nvme.ResvType) resvOp { return registerAs(host, nvme.ResvUnregister, 11, 0, 0) },
		"released":     func(host int, kind nvme.ResvType) resvOp { return releaseAs(host, nvme.ResvRelease, kind, 11, 0) },
		"changed": func(host int, kind nvme.ResvType) resvOp { // the holder preempts itself
			if kind == nvme.ResvWriteExclusiveAllReg || kind == nvme.ResvExclusiveAccessAllReg {
				return acquireAs(host, nvme.ResvPreempt, nvme.ResvWriteExclusive, 11, 0, 0)
			}
			return acquireAs(host, nvme.ResvPreempt, 3-min(kind, 2), 11, 11, 0)
		},
		"kept": func(host int, kind nvme.ResvType) resvOp {
			if kind == nvme.ResvWriteExclusiveAllReg || kind == nvme.ResvExclusiveAccessAllReg {
				return acquireAs(host, nvme.ResvAcquire, kind, 11, 0, 0)
			}
			return acquireAs(host, nvme.ResvPreempt, kind, 11, 11, 0)
		},
	}
	for kind := nvme.ResvWriteExclusive; kind <= nvme.ResvExclusiveAccessAllReg; kind++ {
		for how, end := range ends {
			tg := newTarget(t, newTestVolume(1<<20, 512))
			a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
			registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
			registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
			acquireAs(1, nvme.ResvAcquire, kind, 11, 0, 0).run(a.io)
			end(1, kind).run(a.io)
			all := kind == nvme.ResvWriteExclusiveAllReg || kind == nvme.ResvExclusiveAccessAllReg
			told := kind == nvme.ResvWriteExclusiveRegOnly || kind == nvme.ResvExclusiveAccessRegOnly || all || how == "changed"
			if how == "kept" || all && how == "unregistered" { // not an end: the others hold it
				told = false
			}
			got := nextNotice(b.admin)
			if all && how == "changed" { // every other one was a holder
				if got.Type != nvme.ResvNoticeRegistrationPreempted {
					t.Errorf("%v, %s: notification %+v", kind, how, got)
				}
			} else if (got.Type == nvme.ResvNoticeReleased) != told || !told && got.Count != 0 {
				t.Errorf("%v, %s: notification %+v, told should be %t", kind, how, got, told)
			}
			a.close()
			b.close()
		}
	}
}

// TestResvMaskOfKind: a host that doesn't want one kind of notification gets the others.
func TestResvMaskOfKind(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	b.admin.must(setFeature(nvme.FeatResvNotification, 1, 1<<nvme.ResvNoticeReleased), nil)
	registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusiveRegOnly, 11, 0, 0).run(a.io)
	releaseAs(1, nvme.ResvRelease, nvme.ResvWriteExclusiveRegOnly, 11, 0).run(a.io)
	releaseAs(1, nvme.ResvClear, 0, 11, 0).run(a.io)
	if got := nextNotice(b.admin); got.Type != nvme.ResvNoticePreempted || got.Count != 1 {
		t.Errorf("notification %+v", got)
	}
}

// TestResvMaskOfOne: the mask of one namespace doesn't affect others.
func TestResvMaskOfOne(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatResvNotification, false, 2, resvMaskAll) }), nil)
	for nsid, want := range map[uint32]uint32{1: 0, 2: resvMaskAll} {
		if v := s.admin.must(command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvNotification, 0, nsid, 0) }), nil).DW0(); v != want {
			t.Errorf("namespace %d: mask %#x, want %#x", nsid, v, want)
		}
	}
}

// TestResvMaskOfAnother: a namespace that gets the NSID of one that is gone starts with the default of feature 82h.
func TestResvMaskOfAnother(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatResvNotification, false, 1, resvMaskAll) }), nil)
	sub := tg.Subsystem(testNQN)
	if err := sub.RemoveNamespace(1); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	if v := s.admin.must(command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvNotification, 0, 1, 0) }), nil).DW0(); v != 0 {
		t.Errorf("mask %#x", v)
	}
}

// TestFeatureOfOneThatGoes: what is set for a namespace that is being removed doesn't apply to the next one with its
// NSID, even if that is added before all users of the first have ended.
func TestFeatureOfOneThatGoes(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connectAs(t, tg, 1)
	defer s.close()
	sub, c := tg.Subsystem(testNQN), tg.controller(s.cntlid)
	set := func(f *nsFeatures) { f.resvMask = resvMaskAll }
	all := c.all() // as Set Features found them just before
	v.setHold(true)
	read := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	removed := make(chan error)
	go func() { removed <- sub.RemoveNamespace(1) }()
	if !soon.Until(func() bool { return sub.namespace(1) == nil }) {
		t.Fatal("the namespace isn't removed")
	}
	c.setOfNS(all, set)
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	c.setOfNS(all, set)
	get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvNotification, 0, 1, 0) })
	if v := s.admin.must(get, nil).DW0(); v != 0 {
		t.Errorf("mask %#x", v)
	}
	c.setOfNS(c.all(), set)
	v.release()
	read.wait()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if v := s.admin.must(get, nil).DW0(); v != resvMaskAll {
		t.Errorf("mask %#x, which was set for the new one", v)
	}
}
