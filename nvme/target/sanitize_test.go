package target

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func sanitizeCommand(a nvme.SanitizeAction, flags uint32, passes int, pattern uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetSanitize(a, flags, passes, pattern) })
}

func readSanitize(c *fakeConn, retain bool) (p nvme.SanitizeLog) {
	c.t.Helper()
	b := make([]byte, nvme.SanitizeLogSize)
	c.must(getLog(nvme.GetLogPage{LID: nvme.LogSanitize, Length: nvme.SanitizeLogSize, RAE: retain}), b)
	if err := p.Parse(b); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// sanitized waits for the end of a sanitize operation.
func sanitized(t *testing.T, aer *fakeRequest) {
	t.Helper()
	if ev := nvme.AsyncEvent(aer.wait().DW0()); ev != nvme.EventSanitized {
		t.Errorf("event %v", ev)
	}
}

// dirty gives volumes data that can be erased.
func dirty(volumes ...*testVolume) {
	for _, v := range volumes {
		for i := range v.data {
			v.data[i] = 0xaa
		}
	}
}

// TestSanitize: every namespace is erased as requested, while nothing else reaches it, and only the controller that got
// the command reports the end.
func TestSanitize(t *testing.T) {
	one, two := newTestVolume(1<<20, 512), newTestVolume(2<<20, 4096)
	tg := newTarget(t, one, two)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	const unknown = 0xffffffff
	if p := readSanitize(a.admin, false); p != (nvme.SanitizeLog{SPROG: 0xffff, OverwriteTime: unknown, BlockEraseTime: unknown, CryptoEraseTime: unknown,
		OverwriteTimeND: unknown, BlockEraseTimeND: unknown, CryptoEraseTimeND: unknown}) {
		t.Errorf("log %+v", p)
	}
	dirty(one, two)
	a.io.must(ioCommand(nvme.OpWriteUncorrectable, 5, 1, 0), nil)
	data := make([]byte, 512)
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	aer, other := a.admin.start(asyncEvent(1), nil), b.admin.start(asyncEvent(1), nil)
	two.setHold(true)
	a.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-two.arrived
	if p := readSanitize(b.admin, true); p.SSTAT != nvme.SanitizeInProgress || p.SPROG != 65536/3 || p.SCDW10 != 2 {
		t.Errorf("log %+v", p)
	}
	b.io.fails(read, data, nvme.StatusSanitizeInProgress)
	if c, w := compareAndWrite(b.io, 0, data, data); c != nvme.StatusSanitizeInProgress || w != nvme.StatusAbortFailedFused {
		t.Errorf("statuses %#x and %#x of a fused pair", uint16(c), uint16(w))
	}
	erased := fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1) // it doesn't wait either
	erased.SetNSID(2)
	half := b.io.start(erased, make([]byte, 4096))
	erased.SetOpcode(nvme.OpWrite)
	erased.SetFuse(nvme.FuseSecond)
	endsFused(t, "Write to what is being erased", b.io.start(erased, make([]byte, 4096)), nvme.StatusAbortFailedFused)
	endsFused(t, "Compare with what is being erased", half, nvme.StatusSanitizeInProgress)
	b.io.fails(command(func(c *nvme.Command) { c.SetFlush(2) }), nil, nvme.StatusSanitizeInProgress)
	b.io.fails(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil, nvme.StatusSanitizeInProgress)
	b.io.fails(command(func(c *nvme.Command) { c.SetResvReport(1, 64) }), make([]byte, 64), nvme.StatusSanitizeInProgress)
	b.admin.fails(formatCommand(1, 0, nvme.EraseNone), nil, nvme.StatusSanitizeInProgress)
	for _, state := range []uint32{writeProtected, writeOpen} {
		b.admin.fails(setFeature(nvme.FeatWriteProtect, 1, state), nil, nvme.StatusSanitizeInProgress)
	}
	b.admin.fails(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil, nvme.StatusSanitizeInProgress|nvme.StatusDNR)
	b.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), make([]byte, nvme.PageSize))
	late := connectAs(t, tg, 3) // a host may connect meanwhile
	late.io.fails(read, data, nvme.StatusSanitizeInProgress)
	late.close()
	two.release()
	sanitized(t, aer)
	if other.answered() {
		t.Error("another controller tells of the end, too")
	}
	for _, v := range []*testVolume{one, two} {
		if !bytes.Equal(v.data, make([]byte, len(v.data))) {
			t.Error("something is left")
		}
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpWriteZeroes, blockdev.OpFlush}) {
			t.Errorf("the volume saw %v", ops)
		}
	}
	if p := readSanitize(a.admin, false); p.SSTAT != nvme.SanitizeDone || p.SPROG != 0xffff {
		t.Errorf("log %+v", p)
	}
	a.io.must(ioCommand(nvme.OpRead, 5, 1, 0), data) // no block is marked any more
}

// TestLogsWhileSanitizing: meanwhile only the log pages that reveal no user data can be read, and the error log doesn't
// say which blocks were in error (NVMe base, figure "Sanitize Operations and Format NVM Command – Admin Commands
// Allowed").
func TestLogsWhileSanitizing(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, v)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	a.io.fails(ioCommand(nvme.OpRead, 5000, 1, 0), make([]byte, 512), nvme.StatusLBAOutOfRange|dnr)
	read := func(lid nvme.LID, st nvme.Status) {
		t.Helper()
		b.admin.fails(getLog(nvme.GetLogPage{LID: lid, LSP: uint8(nvme.PersistentHeader), Length: 4, NSID: nvme.NSIDAll}), make([]byte, 4), st)
	}
	check := func(refused nvme.Status, lba uint64) {
		t.Helper()
		for _, lid := range []nvme.LID{
			nvme.LogError, nvme.LogSMART, nvme.LogChangedNamespaces, nvme.LogReservation, nvme.LogANA, nvme.LogSanitize,
		} {
			read(lid, 0)
		}
		for _, lid := range []nvme.LID{
			nvme.LogSupported, nvme.LogFirmware, nvme.LogEffects, nvme.LogPersistent, nvme.LogFeatureEffects, nvme.LogMIEffects,
		} {
			read(lid, refused)
		}
		read(0x42, nvme.StatusInvalidLogPage|dnr)
		if e := lastError(a.admin); e.Status().Code() != nvme.StatusLBAOutOfRange || e.LBA != lba {
			t.Errorf("error log %+v", e)
		}
	}
	check(0, 5000)
	v.setHold(true)
	aer := a.admin.start(asyncEvent(1), nil)
	a.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-v.arrived
	check(nvme.StatusSanitizeInProgress, 0)
	v.release()
	sanitized(t, aer)
	check(0, 5000)
}

// TestSanitizeVerification: the media can't be verified after an operation (SANICAP.VERS is 0), so a host isn't led to
// believe that it can. If no operation begins the bit has no meaning.
func TestSanitizeVerification(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	for _, a := range []nvme.SanitizeAction{nvme.SanitizeBlockErase, nvme.SanitizeOverwrite} {
		s.admin.fails(sanitizeCommand(a, nvme.SanitizeEMVS, 1, 0), nil, nvme.StatusInvalidField|dnr)
		if e := lastError(s.admin); e.Location != nvme.SanitizeOffEMVS {
			t.Errorf("location %#x", e.Location)
		}
	}
	s.admin.must(sanitizeCommand(nvme.SanitizeExitFailure, nvme.SanitizeEMVS, 0, 0), nil)
	if p := readSanitize(s.admin, false); p.SSTAT != nvme.SanitizeNever || len(v.ops()) != 0 {
		t.Errorf("status %#x, the volume saw %v", uint16(p.SSTAT), v.ops())
	}
}

// TestSanitizeWaits: commands that are on their way to a volume when it is to be erased reach it first.
func TestSanitizeWaits(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := connect(t, tg, testNQN)
		v.setHold(true)
		write := s.writes(1, 7)
		aer := s.admin.start(asyncEvent(1), nil)
		s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
		synctest.Wait()
		if n := v.has(); n != 1 {
			t.Errorf("the volume has %d requests while a write is on its way", n)
		}
		v.release()
		sanitized(t, aer)
		write.wait()
		if v.data[0] != 0 {
			t.Error("something is left")
		}
		s.close()
	})
}

// TestAddedWhileSanitizing: no namespace can be used while a sanitize operation runs, including one that the operator
// adds meanwhile. That one keeps its data, and can be used afterwards.
func TestAddedWhileSanitizing(t *testing.T) {
	v, added := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connectAs(t, tg, 1)
	defer s.close()
	aer := s.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-v.arrived
	dirty(added)
	if _, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 2, Volume: added}); err != nil {
		t.Fatal(err)
	}
	read, data := command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, 2, 0, 1, 0) }), make([]byte, 512)
	s.io.fails(read, data, nvme.StatusSanitizeInProgress)
	v.release()
	sanitized(t, aer)
	if s.io.must(read, data); data[0] != 0xaa {
		t.Error("what was added is erased")
	}
}

// TestSanitizeWithoutRemoved: if the operator removes a namespace whose volume hangs, only the removal waits for it:
// the other namespaces are erased, and used again, whether the volume hangs on the erasure or on an earlier command of
// a host.
func TestSanitizeWithoutRemoved(t *testing.T) {
	for _, before := range []bool{false, true} {
		slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
			sub := tg.Subsystem(testNQN)
			two := sub.namespace(2).volume.(*testVolume)
			dirty(v, two)
			s := connect(t, tg, testNQN)
			v.setHold(true)
			if before {
				s.writes(1, 7)
			}
			aer := s.admin.start(asyncEvent(1), nil)
			s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
			synctest.Wait()
			removed := make(chan error)
			go func() { removed <- sub.RemoveNamespace(1) }()
			synctest.Wait()
			if !aer.answered() {
				t.Errorf("sent before: %v: the sanitize operation waits for what is removed", before)
			}
			if !bytes.Equal(two.data, make([]byte, len(two.data))) {
				t.Errorf("sent before: %v: something is left", before)
			}
			if len(removed) > 0 {
				t.Error("removed while its volume is used")
			}
			v.release()
			if err := <-removed; err != nil {
				t.Error(err)
			}
			s.close()
		})
	}
}

// TestSanitizeAddedAgain: a namespace that the operator removes while a sanitize operation runs, and adds again before
// the end, is erased like all that existed when it began.
func TestSanitizeAddedAgain(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		sub := tg.Subsystem(testNQN)
		two := sub.namespace(2).volume.(*testVolume)
		dirty(v, two)
		s := connect(t, tg, testNQN)
		aer := s.admin.start(asyncEvent(1), nil)
		two.setHold(true)
		s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, 0, 2, 7), nil)
		synctest.Wait()
		if err := sub.RemoveNamespace(1); err != nil {
			t.Fatal(err)
		}
		dirty(v)
		if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: v}); err != nil {
			t.Fatal(err)
		}
		two.release()
		sanitized(t, aer)
		for i, v := range []*testVolume{v, two} {
			if !bytes.Equal(v.data, bytes.Repeat([]byte{7, 0, 0, 0}, len(v.data)/4)) {
				t.Errorf("something of namespace %d is left", i+1)
			}
		}
		if p := readSanitize(s.admin, false); p.SSTAT.State() != nvme.SanitizeDone || p.SSTAT.Passes() != 2 {
			t.Errorf("log %+v", p)
		}
		s.close()
	})
}

// TestSanitizeAgain: an operation that begins clears the event of the one before, even if no host has fetched it or
// read the log for it, and its progress starts at 0 (NVMe base, "Sanitize Operation Restrictions").
func TestSanitizeAgain(t *testing.T) {
	v := newTestVolume(2<<20, 512)
	s := connectAs(t, newTarget(t, v), 1)
	defer s.close()
	other := connectAs(t, s.admin.q.t, 2)
	defer other.close()
	again := func(by *session) {
		t.Helper()
		v.setHold(true)
		by.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, 0, 2, 7), nil)
		<-v.arrived
		if p := readSanitize(s.admin, true); p.SPROG != 0 || p.SSTAT.Passes() != 0 || p.SSTAT.State() != nvme.SanitizeInProgress {
			t.Errorf("log %+v at the beginning", p)
		}
	}
	again(s)
	told := s.admin.start(asyncEvent(1), nil)
	v.release()
	sanitized(t, told)
	if p := readSanitize(other.admin, true); p.SSTAT.Passes() != 2 {
		t.Errorf("log %+v at the end", p)
	}
	again(other) // which requests no event until the next
	v.release()
	if !soon.Until(func() bool { return readSanitize(other.admin, true).SSTAT.State() == nvme.SanitizeDone }) {
		t.Fatal("the sanitize operation doesn't end")
	}
	again(s)
	late, next := other.admin.start(asyncEvent(1), nil), s.admin.start(asyncEvent(1), nil)
	if late.answered() || next.answered() {
		t.Error("told of the end of an operation while the next is in progress")
	}
	v.release()
	sanitized(t, next)
	if late.answered() {
		t.Error("told of the end of an operation that another controller was asked for")
	}
}

// TestSanitizeAskerGone: if the controller that got the command is gone at the end, the others report it.
func TestSanitizeAskerGone(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer b.close()
	aer := b.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	a.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-v.arrived
	a.close()
	v.release()
	sanitized(t, aer)
}

// TestSanitizeDenied: a reservation of another host and write protection prevent a sanitize operation, also after a
// restart.
func TestSanitizeDenied(t *testing.T) {
	v, store := newTestVolume(1<<20, 512), newMemStore()
	dirty(v)
	kept := bytes.Clone(v.data)
	start := func() *Target {
		return newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512), v)
	}
	tg := start()
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	for _, op := range []resvOp{registerAs(1, nvme.ResvRegister, 0, 22, 0), acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 22, 0, 0)} {
		op.cmd.SetNSID(2)
		op.run(a.io)
	}
	b.admin.fails(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil, resvConflict|nvme.StatusDNR)
	a.admin.must(setFeature(nvme.FeatWriteProtect, 2, 1), nil)
	a.admin.fails(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)
	a.close()
	b.close()
	closeTarget(t, tg)
	a = connectAs(t, start(), 1)
	if p := readSanitize(a.admin, false); p.SSTAT != nvme.SanitizeNever {
		t.Errorf("log after a restart %+v", p)
	}
	if !bytes.Equal(v.data, kept) {
		t.Error("something is erased")
	}
	a.close()
}

// TestSanitizeFailure: after a failure only another sanitize operation is executed, unless the host allowed leaving the
// failure mode; a restart doesn't change that.
func TestSanitizeFailure(t *testing.T) {
	v, store := newTestVolume(1<<20, 512), newMemStore()
	start := func() (*Target, *session) {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
		return tg, connectAs(t, tg, 1)
	}
	tg, s := start()
	data := make([]byte, 512)
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	fail := func(op blockdev.Op, flags uint32) {
		t.Helper()
		v.mu.Lock()
		v.fail = func(r *blockdev.Request) error {
			if r.Op == op {
				return errors.New("worn out")
			}
			return nil
		}
		v.mu.Unlock()
		aer := s.admin.start(asyncEvent(1), nil)
		s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, flags, 0, 0), nil)
		sanitized(t, aer)
		v.setFail(nil)
		if p := readSanitize(s.admin, false); p.SSTAT.State() != nvme.SanitizeFailed {
			t.Errorf("log %+v", p)
		}
		s.io.fails(read, data, nvme.StatusSanitizeFailed)
	}
	fail(blockdev.OpWriteZeroes, nvme.SanitizeAUSE)
	s.close()
	closeTarget(t, tg)
	tg, s = start()
	s.io.fails(read, data, nvme.StatusSanitizeFailed)
	for nsid, err := range map[uint32]error{2: nil, 1: ErrExists} { // what comes meanwhile isn't reached either
		if _, got := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: nsid, Volume: newTestVolume(1<<20, 512)}); !errors.Is(got, err) {
			t.Errorf("namespace %d: %v", nsid, got)
		}
	}
	second := read
	second.SetNSID(2)
	s.io.fails(second, data, nvme.StatusSanitizeFailed)
	dirty(v)
	before := len(v.ops())
	s.admin.must(sanitizeCommand(nvme.SanitizeExitFailure, 0, 0, 0), nil)
	s.io.must(read, data)
	s.io.must(second, data)
	if ops := v.ops()[before:]; !slices.Equal(ops, []blockdev.Op{blockdev.OpRead}) {
		t.Errorf("leaving the failure mode did %v", ops)
	}
	if p := readSanitize(s.admin, false); p.SSTAT.State() != nvme.SanitizeFailed {
		t.Errorf("log %+v: the last operation failed nevertheless", p)
	}
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	if n := slices.DeleteFunc(events, func(e nvme.PersistentEvent) bool { return e.Type != nvme.PersistentSanitize }); len(n) != 1 {
		t.Errorf("%d operations have begun", len(n))
	}
	if err := tg.Subsystem(testNQN).RemoveNamespace(2); err != nil {
		t.Fatal(err)
	}

	fail(blockdev.OpFlush, 0)
	s.admin.fails(sanitizeCommand(nvme.SanitizeExitFailure, 0, 0, 0), nil, nvme.StatusSanitizeFailed|nvme.StatusDNR)
	s.admin.fails(sanitizeCommand(nvme.SanitizeBlockErase, nvme.SanitizeAUSE, 0, 0), nil, nvme.StatusSanitizeFailed|nvme.StatusDNR)
	s.admin.fails(formatCommand(1, 0, nvme.EraseNone), nil, nvme.StatusSanitizeFailed)
	aer := s.admin.start(asyncEvent(1), nil)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	sanitized(t, aer)
	s.io.must(read, data)

	store.setErr(errors.New("disk on fire"))
	s.admin.fails(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil, nvme.StatusInternalError|nvme.StatusDNR)
	s.io.must(read, data)
	store.setErr(nil)
	s.close()
}

// TestSanitizeAnsweredFree: a host whose transport is slow to take the response to Sanitize holds up no other host's,
// however the command ends.
func TestSanitizeAnsweredFree(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	var others nvme.Status // what the other host is answered meanwhile
	a.admin.answering = func(fr *fakeRequest) {
		if fr.Cmd.Opcode() != nvme.OpSanitize {
			return
		}
		other := b.admin.start(sanitizeCommand(nvme.SanitizeExitFailure, 0, 0, 0), nil)
		if _, ok := soon.Receive(other.done); !ok {
			t.Error("the other host's command waits for the answer to this one's")
			return
		}
		others = other.cqe.Status() &^ nvme.StatusMore
	}
	try := func(what string, action nvme.SanitizeAction, st, other nvme.Status) {
		t.Helper()
		a.admin.fails(sanitizeCommand(action, 0, 0, 0), nil, st)
		if others != other {
			t.Errorf("%s: the other host's command ended with %#x, want %#x", what, uint16(others), uint16(other))
		}
	}
	try("there is no failure to leave", nvme.SanitizeExitFailure, 0, 0)
	aer := a.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	try("an operation begins", nvme.SanitizeBlockErase, 0, nvme.StatusSanitizeInProgress|dnr)
	try("one runs", nvme.SanitizeBlockErase, nvme.StatusSanitizeInProgress|dnr, nvme.StatusSanitizeInProgress|dnr)
	v.setFail(errors.New("worn out"))
	v.release()
	sanitized(t, aer)
	try("a failure can't be left", nvme.SanitizeExitFailure, nvme.StatusSanitizeFailed|dnr, nvme.StatusSanitizeFailed|dnr)
	v.setFail(nil)
}

// TestSanitizeDeallocates: sanitize deallocates blocks, unless the host doesn't want that.
func TestSanitizeDeallocates(t *testing.T) {
	for _, flags := range []uint32{0, nvme.SanitizeNDAS} {
		v := newTestVolume(1<<20, 512)
		v.fail = func(r *blockdev.Request) error {
			if r.Op == blockdev.OpWriteZeroes && r.MayUnmap != (flags == 0) {
				t.Errorf("flags %#x: may unmap: %v", flags, r.MayUnmap)
			}
			return nil
		}
		s := connectAs(t, newTarget(t, v), 1)
		aer := s.admin.start(asyncEvent(1), nil)
		s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, flags, 0, 0), nil)
		sanitized(t, aer)
		s.close()
	}
}
