package target

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func getLog(p nvme.GetLogPage) nvme.Command {
	return command(func(c *nvme.Command) { c.SetGetLogPage(p) })
}

func TestIdentifyErrors(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	page := make([]byte, 4096)
	for _, tc := range []struct {
		cns    nvme.CNS
		nsid   uint32
		csi    nvme.CSI
		status nvme.Status
	}{
		{nvme.CNSNamespace, 0, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSNamespace, MaxNSID + 1, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSNamespace, nvme.NSIDAll, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSDescriptors, 2, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSActiveNSIDs, 0xfffffffe, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSActiveNSIDs, nvme.NSIDAll, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSCommandSetController, 0, nvme.CSIZonedNS, nvme.StatusInvalidField | dnr},
		{nvme.CNSCommandSetNamespace, 1, nvme.CSIKeyValue, nvme.StatusInvalidField | dnr},
		{nvme.CNSCommandSetNamespace, 0, nvme.CSINVM, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSNVMSets, 0, 0, nvme.StatusInvalidField | dnr},
		{nvme.CNSAllocatedNSIDs, nvme.NSIDAll, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSAttachedControllers, 0, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSAttachedControllers, nvme.NSIDAll, 0, nvme.StatusInvalidField | dnr},
		{nvme.CNSIndependentNamespace, nvme.NSIDAll, 0, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSCommandSetNamespace, nvme.NSIDAll, nvme.CSINVM, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSCommandSets, 0, 0, nvme.StatusInvalidField | dnr}, // there is no controller 0
		{0xff, 0, 0, nvme.StatusInvalidField | dnr},
		{nvme.CNSActiveNSIDs, 1, 0, 0},
		{nvme.CNSNamespace, 2, 0, 0},
		{nvme.CNSNamespace, MaxNSID, 0, 0}, // NN: it is valid, and not active
		{nvme.CNSCommandSetNamespace, MaxNSID, nvme.CSINVM, 0},
		{nvme.CNSCommandSetNamespace, MaxNSID + 1, nvme.CSINVM, nvme.StatusInvalidNamespace | dnr},
		{nvme.CNSAttachedControllers, MaxNSID, 0, 0},
		{nvme.CNSAttachedControllers, MaxNSID + 1, 0, nvme.StatusInvalidNamespace | dnr},
	} {
		s.admin.fails(command(func(c *nvme.Command) { c.SetIdentify(tc.cns, tc.nsid, 0, tc.csi) }), page, tc.status)
	}
	s.admin.fails(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page[:512], nvme.StatusSGLLengthInvalid|dnr)
}

func TestLogPages(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	q := s.admin
	data := make([]byte, 512)
	for range 3 {
		s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data)
	}
	s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), data)

	var smart nvme.SMARTLog
	for _, nsid := range []uint32{0, 1, nvme.NSIDAll} {
		q.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nsid, Length: 512}), data)
		if err := smart.Parse(data); err != nil || smart.HostWrites.Uint64() != 3 || smart.HostReads.Uint64() != 1 ||
			smart.DataUnitsWritten.Uint64() != 1 || smart.DataUnitsRead.Uint64() != 1 || smart.CriticalWarning != 0 {
			t.Errorf("NSID %#x: SMART %+v, %v", nsid, smart, err)
		}
	}
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 2, Length: 512}), data, nvme.StatusInvalidNamespace|dnr)
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, NSID: 1, Length: 512}), data, nvme.StatusInvalidField|dnr) // it doesn't belong to a namespace
	if e := lastError(q); e.Location != offNSID {
		t.Errorf("location %#x of the NSID", e.Location)
	}
	q.fails(getLog(nvme.GetLogPage{LID: 0xff, NSID: 1, Length: 512}), data, nvme.StatusInvalidLogPage|dnr)

	var fw nvme.FirmwareLog
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 512}), data)
	if err := fw.Parse(data); err != nil || fw.Active() != 1 || nvme.Text(fw.FRS[0][:]) != defaultFirmware {
		t.Errorf("firmware log %+v, %v", fw, err)
	}

	var logs nvme.SupportedLogs
	page := make([]byte, 4096)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogSupported, Length: 1024}), page[:1024])
	if err := logs.Parse(page); err != nil {
		t.Fatal(err)
	}
	for lid, supported := range logs {
		want := nvme.Status(0)
		if supported == 0 {
			want = nvme.StatusInvalidLogPage | dnr
		}
		q.fails(getLog(nvme.GetLogPage{LID: nvme.LID(lid), Length: 4}), page[:4], want)
	}

	// Bytes beyond the page's end read as zero; an offset beyond it is an error.
	whole := make([]byte, 512)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 512}), whole)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4096, Offset: 8}), page)
	if !bytes.Equal(page, append(bytes.Clone(whole[8:]), make([]byte, 4096-504)...)) {
		t.Error("a log page read at an offset differs")
	}
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4, Offset: 512}), page[:4])
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4, Offset: 516}), page[:4], nvme.StatusInvalidField|dnr)
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4, Offset: 2}), page[:4], nvme.StatusInvalidField|dnr)
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 8}), page[:4], nvme.StatusSGLLengthInvalid|dnr)
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 2 << 20}), page, nvme.StatusInvalidField|dnr)
	q.fails(getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4, Offset: 1 << 63}), page[:4], nvme.StatusInvalidField|dnr)
}

// TestSupportedLogs: which log pages a controller has, with a Store and without, and a discovery controller.
func TestSupportedLogs(t *testing.T) {
	always := []nvme.LID{nvme.LogSupported, nvme.LogError, nvme.LogSMART, nvme.LogFirmware, nvme.LogChangedNamespaces, nvme.LogEffects,
		nvme.LogANA, nvme.LogFeatureEffects, nvme.LogMIEffects, nvme.LogReservation, nvme.LogSanitize}
	for name, tc := range map[string]struct {
		store bool
		nqn   string
		want  []nvme.LID
	}{
		"without a Store": {false, testNQN, always},
		"with a Store":    {true, testNQN, append(slices.Clone(always), nvme.LogPersistent)},
		"discovery":       {true, nvme.DiscoveryNQN, []nvme.LID{nvme.LogSupported, nvme.LogError, nvme.LogEffects, nvme.LogFeatureEffects, nvme.LogMIEffects, nvme.LogDiscovery}},
	} {
		tg := newTargetWith(t, func(c *Config) {
			if tc.store {
				c.Store = newMemStore()
			}
		}, newTestVolume(1<<20, 512))
		q := dial(t, tg)
		connectAdmin(q, tc.nqn, 0)
		page := make([]byte, 1024)
		q.must(getLog(nvme.GetLogPage{LID: nvme.LogSupported, Length: 1024}), page)
		var logs nvme.SupportedLogs
		if err := logs.Parse(page); err != nil {
			t.Fatal(err)
		}
		for lid, supported := range logs {
			if want := slices.Contains(tc.want, nvme.LID(lid)); (supported != 0) != want {
				t.Errorf("%s: %v is %#x", name, nvme.LID(lid), supported)
			}
		}
		q.hangUp(nil)
	}
}

// TestLogByIndex: a log page can be read at the index of an entry only if the controller says so (NVMe base, "LID
// Supported and Effects Data Structure", IOS).
func TestLogByIndex(t *testing.T) {
	const ios = 1 << 1
	tg := newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, newTestVolume(1<<20, 512))
	s, d := connect(t, tg, testNQN), dial(t, tg)
	defer s.close()
	defer d.hangUp(nil)
	connectAdmin(d, nvme.DiscoveryNQN, 0)
	for _, q := range []*fakeConn{s.admin, d} {
		var logs nvme.SupportedLogs
		page := make([]byte, 1024)
		q.must(getLog(nvme.GetLogPage{LID: nvme.LogSupported, Length: 1024}), page)
		if err := logs.Parse(page); err != nil {
			t.Fatal(err)
		}
		for lid, supported := range logs {
			if supported&nvme.LogIsSupported == 0 {
				continue
			}
			if supported&ios != 0 {
				t.Errorf("%v can be read by index: test it", nvme.LID(lid))
			}
			for _, index := range []uint64{0, 1, 4} {
				cmd := getLog(nvme.GetLogPage{LID: nvme.LID(lid), Length: 4, Offset: index})
				cmd.SetCDW(14, 1<<23) // OT
				q.fails(cmd, page[:4], nvme.StatusInvalidField|dnr)
				if e := lastError(q); e.Location != offOT {
					t.Errorf("%v: location %#x of OT", nvme.LID(lid), e.Location)
				}
			}
		}
	}
}

// TestCommandScopes: every admin command in the Commands Supported and Effects log has a scope, as LPA promises ("Commands
// Supported and Effects Data Structure", CSP). I/O commands report none: Linux warns of each effect there that it
// doesn't know.
func TestCommandScopes(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	q := dial(t, tg)
	connectAdmin(q, testNQN, 0)
	log := effectsOf(q)
	for op, e := range log.Admin {
		if supported := e&nvme.EffectSupported != 0; supported != (e>>20 != 0) {
			t.Errorf("admin command %#x: %#x", op, uint32(e))
		}
	}
	for op, want := range map[nvme.Opcode]nvme.Effects{
		nvme.OpKeepAlive:   nvme.EffectSupported | nvme.EffectScopeController,
		nvme.OpSetFeatures: nvme.EffectSupported | nvme.EffectScopeController | nvme.EffectScopeNamespace,
		nvme.OpFormat:      nvme.EffectSupported | nvme.EffectContentChange | nvme.EffectScopeNamespace,
		nvme.OpSanitize:    nvme.EffectSupported | nvme.EffectContentChange | nvme.EffectScopeSubsystem,
	} {
		if got := log.Admin[op]; got != want {
			t.Errorf("admin command %#x: %#x, want %#x", op, uint32(got), uint32(want))
		}
	}
	const known = nvme.EffectSupported | nvme.EffectContentChange
	for op, e := range log.IO {
		if e&^known != 0 {
			t.Errorf("I/O command %#x: %#x", op, uint32(e))
		}
	}
}

// effectsOf returns the Commands Supported and Effects log.
func effectsOf(q *fakeConn) (log nvme.EffectsLog) {
	q.t.Helper()
	page := make([]byte, nvme.EffectsLogSize)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogEffects, Length: nvme.EffectsLogSize}), page)
	if err := log.Parse(page); err != nil {
		q.t.Fatal(err)
	}
	return log
}

// TestOpcodesAsTold: the controller executes exactly the commands that the Commands Supported and Effects log names, on
// either kind of queue. A Fabrics command, which isn't in the log, is identified by its type.
func TestOpcodesAsTold(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"the operator's namespaces": func(*Config) {},
		"those of hosts, too":       func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20) },
	} {
		tg := newTargetWith(t, change, newTestVolume(1<<20, 512))
		s := connect(t, tg, testNQN)
		log := effectsOf(s.admin)
		for _, k := range []struct {
			queue string
			q     *fakeConn
			told  *[256]nvme.Effects
		}{{"admin", s.admin, &log.Admin}, {"I/O", s.io, &log.IO}} {
			for op, effects := range k.told {
				if nvme.Opcode(op) == nvme.OpFabrics {
					continue
				}
				cmd := command(func(c *nvme.Command) { c.SetOpcode(nvme.Opcode(op)); c.SetFlags(nvme.FlagsSGL) })
				fr := k.q.start(cmd, make([]byte, 4)) // wrong for most
				if k.q == s.admin && nvme.Opcode(op) == nvme.OpAsyncEvent {
					if fr.answered() {
						t.Errorf("%s: Asynchronous Event Request is answered without an event", name)
					}
					continue
				}
				unknown := fr.wait().Status().Code() == nvme.StatusInvalidOpcode
				if told := effects&nvme.EffectSupported != 0; unknown == told {
					t.Errorf("%s: opcode %#x of the %s queue: status %#x, the log says %#x", name, op, k.queue, uint16(fr.cqe.Status()), uint32(effects))
				}
			}
		}
		s.close()
	}
}

// TestErrorLog: the log has the errors, newest first, as many as it has room for.
func TestErrorLog(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	data := make([]byte, 512)
	for i := range errorLogEntries + 3 {
		cmd := ioCommand(nvme.OpRead, 5000+uint64(i), 1, 0)
		cmd.SetCID(uint16(i))
		if cqe := s.io.do(cmd, data); cqe.Status() != nvme.StatusLBAOutOfRange|dnr|nvme.StatusMore {
			t.Fatalf("status %#x", uint16(cqe.Status()))
		}
	}
	page := make([]byte, (errorLogEntries+1)*nvme.ErrorEntrySize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogError, Length: uint32(len(page))}), page)
	for i := range errorLogEntries + 1 {
		var e nvme.ErrorEntry
		if err := e.Parse(page[i*nvme.ErrorEntrySize:]); err != nil {
			t.Fatal(err)
		}
		if i == errorLogEntries {
			if e != (nvme.ErrorEntry{}) {
				t.Errorf("an entry more: %+v", e)
			}
			break
		}
		n := uint64(errorLogEntries + 3 - i)
		if e.Count != n || e.CID != uint16(n-1) || e.SQID != 1 || e.NSID != 1 || e.LBA != 5000+n-1 ||
			e.Status() != nvme.StatusLBAOutOfRange|dnr|nvme.StatusMore || e.Location != 40 || e.TRTYPE != 0 {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
}

// TestErrorLogTransport: an entry names the transport only if the transport caused the error.
func TestErrorLogTransport(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	s.io.pullErr = errors.New("no data")
	s.io.fails(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512), nvme.StatusDataTransferError)
	page := make([]byte, nvme.ErrorEntrySize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogError, Length: nvme.ErrorEntrySize}), page)
	var e nvme.ErrorEntry
	if err := e.Parse(page); err != nil {
		t.Fatal(err)
	}
	if e.Status().Code() != nvme.StatusDataTransferError || e.TRTYPE != nvme.TransportTCP {
		t.Errorf("entry %+v, want a data transfer error of TCP", e)
	}
}

func setFeature(f nvme.FID, nsid, v uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetSetFeatures(f, false, nsid, v) })
}

func getFeature(f nvme.FID, sel nvme.SEL, v uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetGetFeatures(f, sel, 1, v) })
}

// featureCase is a value that a feature is set to, and its value afterwards.
type featureCase struct {
	fid      nvme.FID
	set      uint32
	status   nvme.Status
	dw11     uint32 // of Get Features
	get, def uint32
}

func (tc *featureCase) run(t *testing.T, q *fakeConn) {
	t.Helper()
	ofNS := tc.fid == nvme.FeatWriteProtect || tc.fid == nvme.FeatErrorRecovery
	nsid := uint32(0)
	if ofNS {
		nsid = 1
	}
	q.fails(setFeature(tc.fid, nsid, tc.set), nil, tc.status)
	if v := q.must(getFeature(tc.fid, nvme.SELCurrent, tc.dw11), nil).DW0(); v != tc.get {
		t.Errorf("%v is %#x, want %#x", tc.fid, v, tc.get)
	}
	for _, sel := range []nvme.SEL{nvme.SELDefault, nvme.SELSaved} {
		if v := q.must(getFeature(tc.fid, sel, tc.dw11), nil).DW0(); v != tc.def {
			t.Errorf("default of %v is %#x, want %#x", tc.fid, v, tc.def)
		}
	}
	// The write cache stays as it is: clearing WCE gets Feature Not Changeable.
	changeable := tc.fid != nvme.FeatVolatileWC
	if v := q.must(getFeature(tc.fid, nvme.SELSupported, 0), nil).DW0(); v&nvme.FeatureChangeable != 0 != changeable || v&nvme.FeatureSaveable != 0 {
		t.Errorf("%v can %#x", tc.fid, v)
	}
	q.fails(getFeature(tc.fid, 4, 0), nil, nvme.StatusInvalidField|dnr)
	save := setFeature(tc.fid, nsid, tc.set)
	save.SetCDW(10, save.CDW10()|1<<31)
	q.fails(save, nil, nvme.StatusFeatureNotSaveable|dnr)
	if !ofNS {
		q.fails(setFeature(tc.fid, 1, tc.set), nil, nvme.StatusFeatureNotNamespace|dnr)
	}
}

// TestErrorRecoveryOfNamespaces: feature 05h belongs to a namespace, and is forgotten with it.
func TestErrorRecoveryOfNamespaces(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512))
	q := dial(t, tg)
	connectAdmin(q, testNQN, 0)
	expect := func(first, second uint32) {
		t.Helper()
		for nsid, want := range map[uint32]uint32{1: first, 2: second} {
			get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatErrorRecovery, 0, nsid, 0) })
			if v := q.must(get, nil).DW0(); v != want {
				t.Errorf("namespace %d: %d, want %d", nsid, v, want)
			}
		}
	}
	if v := q.must(getFeature(nvme.FeatErrorRecovery, nvme.SELSupported, 0), nil).DW0(); v&nvme.FeatureNamespace == 0 {
		t.Errorf("it can %#x", v)
	}
	q.must(setFeature(nvme.FeatErrorRecovery, 2, 5), nil)
	expect(0, 5)
	q.must(setFeature(nvme.FeatErrorRecovery, 1, 3), nil)
	expect(3, 5)
	q.must(setFeature(nvme.FeatErrorRecovery, nvme.NSIDAll, 7), nil)
	expect(7, 7)
	for _, nsid := range []uint32{0, 3} {
		q.fails(setFeature(nvme.FeatErrorRecovery, nsid, 9), nil, nvme.StatusInvalidNamespace|dnr)
		q.fails(command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatErrorRecovery, 0, nsid, 0) }), nil, nvme.StatusInvalidNamespace|dnr)
	}
	sub := tg.Subsystem(testNQN)
	if err := sub.RemoveNamespace(2); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 2, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	expect(7, 0)
}

func TestTimestamp(t *testing.T) {
	tg := newTarget(t)
	q := dial(t, tg)
	connectAdmin(q, testNQN, 0)
	b := make([]byte, 8)
	get := func() (ts nvme.Timestamp) {
		t.Helper()
		q.must(command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatTimestamp, 0, 0, 0) }), b)
		if err := ts.Parse(b); err != nil {
			t.Fatal(err)
		}
		return ts
	}
	if ts := get(); ts.Origin != 0 || ts.Millis > 60_000 {
		t.Errorf("timestamp %+v before it was set", ts)
	}
	now := time.Now()
	q.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0) }), nvme.TimestampOf(now).AppendTo(nil))
	if ts := get(); ts.Origin != 1 || ts.Time().Sub(now).Abs() > time.Minute {
		t.Errorf("timestamp %+v after it was set to %v", ts, now)
	}
}

// TestTimestampRuns: the timestamp counts milliseconds from the value that it was set to, until a reset.
func TestTimestampRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		q := dial(t, tg)
		connectAdmin(q, testNQN, 0)
		b := make([]byte, 8)
		expect := func(want nvme.Timestamp) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			q.must(getFeature(nvme.FeatTimestamp, 0, 0), b)
			var ts nvme.Timestamp
			if err := ts.Parse(b); err != nil || ts != want {
				t.Errorf("%+v, want %+v (%v)", ts, want, err)
			}
		}
		q.must(setFeature(nvme.FeatTimestamp, 0, 0), nvme.Timestamp{Millis: 7000, Synch: true}.AppendTo(nil))
		expect(nvme.Timestamp{Millis: 8500, Origin: 1})
		expect(nvme.Timestamp{Millis: 10000, Origin: 1})
		q.must(ccOff, nil)
		q.must(ccOn, nil)
		expect(nvme.Timestamp{Millis: 1500})
	})
}

// TestQueuesAreGrantedOnce: Set Features 07h fails once there are I/O queues.
func TestQueuesAreGrantedOnce(t *testing.T) {
	s := connect(t, newTarget(t), testNQN)
	defer s.close()
	s.admin.fails(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatNumberOfQueues, false, 0, 0) }), nil,
		nvme.StatusCommandSequence|dnr)
}
