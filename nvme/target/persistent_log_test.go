package target

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// readEvents reads the Persistent Event log, the newest first.
func readEvents(c *fakeConn, a nvme.PersistentAction) (h nvme.PersistentLogHeader, events []nvme.PersistentEvent) {
	c.t.Helper()
	b := make([]byte, 32<<10)
	c.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(a), Length: uint32(len(b))}), b)
	if err := h.Parse(b); err != nil {
		c.t.Fatal(err)
	}
	if h.Length > uint64(len(b)) {
		c.t.Fatalf("log of %d bytes", h.Length)
	}
	rest := b[nvme.PersistentHeaderSize:h.Length]
	for len(rest) > 0 {
		var e nvme.PersistentEvent
		var err error
		if rest, err = e.Parse(rest); err != nil {
			c.t.Fatal(err)
		}
		events = append(events, e)
	}
	if int(h.Events) != len(events) && a != nvme.PersistentHeader {
		c.t.Errorf("%d events, the header says %d", len(events), h.Events)
	}
	return h, events
}

// TestPersistentEvents: what happened is in the log, newest first, after a restart too.
func TestPersistentEvents(t *testing.T) {
	store := newMemStore()
	start := func() (*Target, *session) {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
		return tg, connectAs(t, tg, 1)
	}
	tg, s := start()
	s.admin.must(formatCommand(1, 0, nvme.EraseUser), nil)
	aer := s.admin.start(asyncEvent(1), nil)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	sanitized(t, aer)
	ts := nvme.Timestamp{Millis: 5000}
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0) }), ts.AppendTo(nil))
	s.close()
	closeTarget(t, tg)

	_, s = start()
	defer s.close()
	h, events := readEvents(s.admin, nvme.PersistentEstablish)
	var kinds []nvme.PersistentEventType
	for _, e := range events {
		kinds = append(kinds, e.Type)
	}
	want := []nvme.PersistentEventType{
		nvme.PersistentPowerOn, nvme.PersistentTimestamp, nvme.PersistentSanitizeEnd, nvme.PersistentSanitize,
		nvme.PersistentFormatEnd, nvme.PersistentFormatStart, nvme.PersistentPowerOn,
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
	if h.LID != nvme.LogPersistent || h.PowerCycles != 2 || h.HeaderLength != 492 || h.Generation == 0 || nvme.Text(h.SUBNQN[:]) != testNQN || h.Timestamp == 0 {
		t.Errorf("header %+v", h)
	}
	var id nvme.IdentifyController
	page := make([]byte, nvme.PageSize)
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	if err := id.Parse(page); err != nil || h.SN != id.SN || h.MN != id.MN || nvme.Text(h.SN[:]) == "" {
		t.Errorf("header of %q, %q, the controller is %q, %q (%v)", h.SN, h.MN, id.SN, id.MN, err)
	}
	for i, e := range events {
		ofHost := e.Type != nvme.PersistentPowerOn && e.Type != nvme.PersistentSanitizeEnd
		if (e.CNTLID != 0) != ofHost {
			t.Errorf("event %d, %v: controller %d", i, e.Type, e.CNTLID)
		}
	}
	for _, kind := range want {
		if h.SupportedEventsBits[kind/8]>>(kind%8)&1 == 0 {
			t.Errorf("event %d isn't among those supported", kind)
		}
	}
}

// TestPersistentFormatFails: a Format that fails is logged as failed, with its status, and as incomplete if it may have
// erased something.
func TestPersistentFormatFails(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, v), 1)
	defer s.close()
	v.setFail(&blockdev.OpError{Op: "test", Path: "test", Offset: -1, Kind: blockdev.ErrCapacity})
	s.admin.fails(formatCommand(1, 0, nvme.EraseUser), nil, nvme.StatusCapacityExceeded|nvme.StatusDNR)
	v.setFail(nil)
	s.admin.must(formatCommand(1, 0, nvme.EraseUser), nil)
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	const failed, incomplete = 1 << 0, 1 << 1 // FNVME and INCPFT
	for i, want := range []nvme.FormatEndEvent{
		{NSID: 1}, {NSID: 1, Failed: failed | incomplete, StatusPhase: uint16(nvme.StatusCapacityExceeded|dnr) << 1},
	} {
		if e, err := events[2*i].Decode(); err != nil || *e.(*nvme.FormatEndEvent) != want {
			t.Errorf("event %d: %+v, %v, want %+v", i, e, err, want)
		}
	}
	// Bits 15:1 of bytes 9:8 ("Format NVM Completion Event").
	if st := nvme.Status(binary.LittleEndian.Uint16(events[2].Data[8:]) >> 1); st != nvme.StatusCapacityExceeded|dnr {
		t.Errorf("status %#x", uint16(st))
	}
}

// TestPersistentContext: a host reads the log as it was when the host established the context, until it releases that.
func TestPersistentContext(t *testing.T) {
	s := connectAs(t, newTargetWith(t, func(c *Config) {
		c.Store = newMemStore()
		c.Ports = []Port{{ID: 7, Transport: nvme.TransportTCP, Addr: attr(nvme.TransportTCP).Local}}
	}, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	log := getLog(nvme.GetLogPage{LID: nvme.LogPersistent, Length: 512})
	s.admin.fails(log, make([]byte, 512), nvme.StatusCommandSequence|nvme.StatusDNR)
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
	if _, again := readEvents(s.admin, nvme.PersistentRead); len(again) != len(events) {
		t.Errorf("%d events, want %d", len(again), len(events))
	}
	s.admin.fails(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentEstablish), Length: 512}), make([]byte, 512),
		nvme.StatusCommandSequence|nvme.StatusDNR)
	// Bit 18: it existed; bits 17:16: it was established by an NVM subsystem port, that of bits 15:0.
	if h, _ := readHeader(s.admin); h.ReportingContext != 1<<18|1<<16|7 {
		t.Errorf("reporting context %#x", h.ReportingContext)
	}
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentRelease), Length: 512}), make([]byte, 512))
	s.admin.fails(log, make([]byte, 512), nvme.StatusCommandSequence|nvme.StatusDNR)
	if h, n := readHeader(s.admin); h.ReportingContext != 0 || int(n) != len(events)+2 {
		t.Errorf("reporting context %#x, %d events", h.ReportingContext, n)
	}
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentRelease), Length: 512}), make([]byte, 512))
}

// TestPersistentOffset: all actions are supported. A command whose offset is beyond the log establishes no context. Actions that don't read the log
// ignore the offset.
func TestPersistentOffset(t *testing.T) {
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	log := func(a nvme.PersistentAction, offset uint64) nvme.Command {
		return getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(a), Length: 512, Offset: offset})
	}
	var logs nvme.SupportedLogs
	supported := make([]byte, 1024)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSupported, Length: 1024}), supported)
	if err := logs.Parse(supported); err != nil || logs[nvme.LogPersistent] != 1<<16|1 || logs[nvme.LogSMART] != 1 {
		t.Errorf("the log is supported as %#x, that of health as %#x, %v", logs[nvme.LogPersistent], logs[nvme.LogSMART], err)
	}
	page := make([]byte, 512)
	s.admin.fails(log(nvme.PersistentEstablish, 1<<20), page, nvme.StatusInvalidField|dnr)
	s.admin.fails(log(nvme.PersistentRead, 0), page, nvme.StatusCommandSequence|dnr)
	s.admin.must(log(nvme.PersistentEstablish, 0), page)
	s.admin.fails(log(nvme.PersistentRead, 1<<20), page, nvme.StatusInvalidField|dnr)
	header := make([]byte, 512)
	s.admin.must(log(nvme.PersistentHeader, 1<<20), header)
	var h nvme.PersistentLogHeader
	if err := h.Parse(header); err != nil || h.Events != 1 || h.ReportingContext != nvme.PersistentContextExisted|nvme.PersistentContextOfPort {
		t.Errorf("header %+v, %v", h, err)
	}
	s.admin.must(log(nvme.PersistentRelease, 1<<20), page)
	s.admin.fails(log(nvme.PersistentRead, 0), page, nvme.StatusCommandSequence|dnr)
	s.admin.must(log(nvme.PersistentEstablish|1<<2, 0), page) // with a reserved bit
}

// TestPersistentEventsBounded: the oldest events are dropped when there are too many, also those of a full log that was
// saved.
func TestPersistentEventsBounded(t *testing.T) {
	store := newMemStore()
	for run, formats := range []int{maxPersistentEvents, 0} {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
		s := connectAs(t, tg, 1)
		for range formats {
			s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
		}
		if h, events := readEvents(s.admin, nvme.PersistentEstablish); len(events) != maxPersistentEvents || h.Length > persistentUnits*nvme.PersistentLogUnit ||
			h.PowerCycles != uint64(run+1) {
			t.Errorf("run %d: %d events in %d bytes, %d power cycles", run, len(events), h.Length, h.PowerCycles)
		}
		s.close()
		closeTarget(t, tg)
	}
}

// TestPersistentEventsOfHosts: hosts that connect, each of which sets the time, don't displace the subsystem's own
// events; of the hosts' events the newest are kept.
func TestPersistentEventsOfHosts(t *testing.T) {
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
	for i := range maxPersistentEvents + 10 {
		ts := nvme.Timestamp{Millis: uint64(i)}
		s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0) }), ts.AppendTo(nil))
	}
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	count := map[nvme.PersistentEventType]int{}
	for _, e := range events {
		count[e.Type]++
	}
	if len(events) != maxPersistentEvents || count[nvme.PersistentPowerOn] != 1 || count[nvme.PersistentFormatStart] != 1 || count[nvme.PersistentFormatEnd] != 1 {
		t.Errorf("%d events: %v", len(events), count)
	}
	last, err := events[0].Decode()
	if d, ok := last.(*nvme.TimestampChangeEvent); err != nil || !ok || d.Previous < maxPersistentEvents {
		t.Errorf("the last is %+v, %v", last, err)
	}
}

// TestPersistentReset: a Controller Level Reset is an event, of the controller that was reset (NVMe base, "Power-on or
// Reset Event"). Resets displace no other events of the subsystem. Those of discovery controllers, which have no such
// log, are saved nowhere.
func TestPersistentReset(t *testing.T) {
	store := newMemStore()
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	d := dial(t, tg)
	connectAdmin(d, nvme.DiscoveryNQN, 0)
	d.must(ccOff, nil)
	s := connectAs(t, tg, 1)
	defer s.close()
	for range maxPersistentEvents + 10 {
		s.admin.must(ccOff, nil)
		s.admin.must(ccOn, nil)
	}
	h, events := readEvents(s.admin, nvme.PersistentEstablish)
	for i, e := range events {
		cntlid := s.cntlid
		if i == len(events)-1 {
			cntlid = 0 // the start of the subsystem
		}
		on, err := e.Decode()
		if d, ok := on.(*nvme.PowerOnEvent); err != nil || !ok || d.CNTLID != cntlid || e.CNTLID != cntlid || uint64(d.PowerCycle) != h.PowerCycles {
			t.Fatalf("event %d of %d: %+v, %v, of controller %d", i, len(events), on, err, e.CNTLID)
		}
	}
	tg.Subsystem(testNQN).work.wait()
	if len(events) != maxPersistentEvents || len(store.kept) != 1 {
		t.Errorf("%d events, %d logs saved", len(events), len(store.kept))
	}
}

// TestPersistentEventsFull: nor do they if the log is full of the subsystem's events.
func TestPersistentEventsFull(t *testing.T) {
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	for range maxPersistentEvents / 2 {
		s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
	}
	_, before := readEvents(s.admin, nvme.PersistentEstablish)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentRelease), Length: 512}), make([]byte, 512))
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0) }), nvme.Timestamp{Millis: 1}.AppendTo(nil))
	_, events := readEvents(s.admin, nvme.PersistentEstablish)
	if len(before) != maxPersistentEvents || !reflect.DeepEqual(events, before) {
		t.Errorf("%d events, the oldest %+v, before that %d, the oldest %+v", len(events), events[len(events)-1], len(before), before[len(before)-1])
	}
}

// TestPersistentEventsDamaged: a log that can't be used keeps nobody from the data. It is kept under another name, which
// the target's log tells, and a new one begins.
func TestPersistentEventsDamaged(t *testing.T) {
	many, err := json.Marshal(savedEvents{Events: make([]nvme.PersistentEvent, maxPersistentEvents+1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"{", string(many)} {
		store, name := newMemStore(), "events-"+nvme.HostID(deriveUUID(testNQN, 0, "")).String()
		store.put(name, []byte(bad))
		var log bytes.Buffer
		s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store, c.Log = store, slog.New(slog.NewTextHandler(&log, nil)) }, newTestVolume(1<<20, 512)), 1)
		s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
		if h, events := readHeader(s.admin); events < 1 || h.PowerCycles != 1 {
			t.Errorf("%d events, %d power cycles", events, h.PowerCycles)
		}
		s.close()
		if kept := store.copy()[name+"-damaged"]; string(kept) != bad {
			t.Errorf("what was there is now %q", kept)
		}
		if said := log.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, name+"-damaged") {
			t.Errorf("the log says %s", said)
		}
	}
}

func readHeader(c *fakeConn) (h nvme.PersistentLogHeader, events uint32) {
	c.t.Helper()
	b := make([]byte, 512)
	c.must(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentHeader), Length: 512}), b)
	if err := h.Parse(b); err != nil {
		c.t.Fatal(err)
	}
	return h, h.Events
}

// TestProtectionPersists: write protection that a host set is still in force after a restart.
func TestProtectionPersists(t *testing.T) {
	store := newMemStore()
	write := ioCommand(nvme.OpWrite, 0, 1, 0)
	data := make([]byte, 512)
	set := func(v uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, v) })
	}
	for run := range 3 {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
		s := connectAs(t, tg, 1)
		switch run {
		case 0:
			store.setErr(errors.New("disk full"))
			s.admin.fails(set(1), nil, nvme.StatusInternalError)
			store.setErr(nil)
			s.io.must(write, data)
			s.admin.must(set(1), nil)
			s.io.fails(write, data, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)
		case 1:
			s.io.fails(write, data, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)
			s.admin.must(set(0), nil)
			s.io.must(write, data)
		default:
			s.io.must(write, data)
		}
		s.close()
		closeTarget(t, tg)
	}
}

// TestPersistentGeneration: no two reporting contexts have the same number, even across a restart.
func TestPersistentGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, last := newMemStore(), uint16(0)
		for range 3 {
			tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
			s := connectAs(t, tg, 1)
			synctest.Wait() // that the target was started is saved
			h, _ := readEvents(s.admin, nvme.PersistentEstablish)
			if h.Generation <= last {
				t.Errorf("generation %d after %d", h.Generation, last)
			}
			last = h.Generation
			s.close()
			closeTarget(t, tg)
		}
	})
}

// TestPersistentEventData: what the events say (NVMe base, "Persistent Event Log Events").
func TestPersistentEventData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := uint64(time.Now().UnixMilli())
		tg := newTargetWith(t, func(c *Config) { c.Store = newMemStore() }, newTestVolume(1<<20, 512))
		s := connectAs(t, tg, 1)
		setTime := func(ms uint64) {
			s.admin.must(setFeature(nvme.FeatTimestamp, 0, 0), nvme.Timestamp{Millis: ms}.AppendTo(nil))
		}
		time.Sleep(2 * time.Second)
		setTime(7000)
		time.Sleep(time.Second)
		setTime(7000)
		s.admin.must(ccOff, nil)
		s.admin.must(ccOn, nil)
		time.Sleep(500 * time.Millisecond)
		setTime(1<<48 - 1)
		time.Sleep(500 * time.Millisecond)
		setTime(7000)
		s.admin.must(formatCommand(1, 0, nvme.EraseUser), nil)
		aer := s.admin.start(asyncEvent(1), nil)
		s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, nvme.SanitizeOIPBP, 2, 0x12345678), nil)
		sanitized(t, aer)

		on := nvme.PowerOnEvent{PowerCycle: 1, Timestamp: start}
		nvme.PutPadded(on.Firmware[:], defaultFirmware)
		reset := on
		reset.CNTLID, reset.PowerOn, reset.Timestamp = s.cntlid, 3000, start+3000
		want := []any{
			&on,
			&nvme.TimestampChangeEvent{Previous: 2000, SinceReset: 2000},
			&nvme.TimestampChangeEvent{Previous: 8000, SinceReset: 3000},
			&reset,
			&nvme.TimestampChangeEvent{Previous: 500, SinceReset: 500},
			&nvme.TimestampChangeEvent{Previous: 499, SinceReset: 1000}, // the sum modulo 2^48
			&nvme.FormatStartEvent{NSID: 1, FNA: 1 << 3, CDW10: 1 << 9},
			&nvme.FormatEndEvent{NSID: 1},
			&nvme.SanitizeStartEvent{SANICAP: 1<<30 | 1<<2 | 1<<1, CDW10: 1<<8 | 2<<4 | 3, CDW11: 0x12345678},
			&nvme.SanitizeEndEvent{SPROG: 0xffff, SSTAT: 2<<3 | 1},
		}
		h, events := readEvents(s.admin, nvme.PersistentEstablish)
		if h.Revision != 3 || h.PowerOnHours.Uint64() != 0 || h.Timestamp != start+4000 {
			t.Errorf("header %+v", h)
		}
		slices.Reverse(events)
		for i, e := range events {
			if got, err := e.Decode(); err != nil || e.Revision != 1 || !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%v, revision %d: %+v, %v, want %+v", e.Type, e.Revision, got, err, want[i])
			}
		}
		if len(events) != len(want) {
			t.Errorf("%d events, want %d", len(events), len(want))
		}
		s.close()
		closeTarget(t, tg)
	})
}
