package host

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// answerLog makes a fake target answer one log page, and records the log specific parameters of the requests.
func answerLog(f *fakeTarget, lid nvme.LID, page []byte) (asked *[]uint8) {
	asked = new([]uint8)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LID() != lid {
			return usual
		}
		*asked = append(*asked, r.Cmd.LogLSP())
		off := min(r.Cmd.LogOffset(), uint64(len(page)))
		clear(r.Data[copy(r.Data, page[off:]):])
		return answered
	}
	return asked
}

// TestErrorLog: the existing entries, newest first, out of ELPE + 1.
func TestErrorLog(t *testing.T) {
	f := newFakeTarget()
	f.identity.ELPE = 127
	var page []byte
	for i := range uint64(100) {
		page = (&nvme.ErrorEntry{Count: 100 - i, SQID: 1, StatusPhase: uint16(nvme.StatusLBAOutOfRange) << 1}).AppendTo(page)
	}
	answerLog(f, nvme.LogError, page)
	c := connect(t, f)
	defer closeController(t, c)
	all, err := c.ErrorLog(t.Context())
	if err != nil || len(all) != 100 || all[0].Count != 100 || all[99].Count != 1 || all[5].Status() != nvme.StatusLBAOutOfRange {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

// TestErrorLogMoves: an error that occurs while the log is read in pieces moves the others, none of which is then there
// twice.
func TestErrorLogMoves(t *testing.T) {
	f := newFakeTarget()
	f.identity.ELPE = 255 // two pieces, by MDTS
	c := connect(t, f)
	defer closeController(t, c)
	newest := uint64(256)
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LID() != nvme.LogError {
			return usual
		}
		first := newest - r.Cmd.LogOffset()/nvme.ErrorEntrySize
		var b []byte
		for i := range uint64(len(r.Data) / nvme.ErrorEntrySize) {
			b = (&nvme.ErrorEntry{Count: first - i}).AppendTo(b)
		}
		copy(r.Data, b)
		newest++
		return answered
	})
	all, err := c.ErrorLog(t.Context())
	if err != nil || len(all) != 255 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	for i, e := range all {
		if e.Count != 256-uint64(i) {
			t.Fatalf("entry %d has count %d", i, e.Count)
		}
	}
}

// TestLogsInOnePiece: a controller without extended data (LPA bit 2) can't be asked for more than 16 KiB, since NUMD
// has 12 bits then, nor for the rest of a longer log. Of its Error Information log, the newest entries are read.
func TestLogsInOnePiece(t *testing.T) {
	for _, tc := range []struct {
		mdts    uint8
		entries int // of 256
		most    int // bytes of a log
	}{{0, 256, 16 << 10}, {1, 128, 8 << 10}, {5, 256, 16 << 10}} {
		f := newFakeTarget()
		f.identity.LPA, f.identity.ELPE, f.identity.MDTS = 0, 255, tc.mdts
		var page []byte
		for i := range uint64(256) {
			page = (&nvme.ErrorEntry{Count: 256 - i}).AppendTo(page)
		}
		c := connect(t, f)
		answerLog(f, nvme.LogError, page)
		all, err := c.ErrorLog(t.Context())
		if err != nil || len(all) != tc.entries || all[0].Count != 256 {
			t.Errorf("MDTS %d: %d entries, %v", tc.mdts, len(all), err)
		}
		p := nvme.GetLogPage{LID: nvme.LogError}
		if err := c.ReadLog(t.Context(), p, make([]byte, tc.most)); err != nil {
			t.Errorf("MDTS %d, %d bytes: %v", tc.mdts, tc.most, err)
		}
		if err := c.ReadLog(t.Context(), p, make([]byte, tc.most+4)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("MDTS %d, more than %d bytes: %v", tc.mdts, tc.most, err)
		}
		closeController(t, c)
	}
}

// TestPersistentEventLog: the log is read as a whole, in a reporting context that is released; a damaged log is
// rejected.
func TestPersistentEventLog(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer closeController(t, c)
	if _, _, err := c.PersistentEvents(t.Context()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without LPA bit 4: %v", err)
	}
	c.identity.LPA |= nvme.LPAPersistent
	const events = 300
	h := nvme.PersistentLogHeader{LID: nvme.LogPersistent, Events: events, Length: nvme.PersistentHeaderSize}
	var rest []byte
	for i := range events {
		e := nvme.PersistentEvent{
			Type: nvme.PersistentTimestamp, CNTLID: uint16(i),
			Data: nvme.PersistentData(&nvme.TimestampChangeEvent{Previous: uint64(i)}),
		}
		rest = e.AppendTo(rest)
	}
	h.Length += uint64(len(rest))
	asked := answerLog(f, nvme.LogPersistent, append(h.AppendTo(nil), rest...))
	_, all, err := c.PersistentEvents(t.Context())
	if err != nil || len(all) != events || all[events-1].CNTLID != events-1 {
		t.Fatalf("%d events, %v", len(all), err)
	}
	last, err := all[events-1].Decode()
	if d, ok := last.(*nvme.TimestampChangeEvent); err != nil || !ok || d.Previous != events-1 {
		t.Errorf("%+v, %v", last, err)
	}
	a := *asked
	if nvme.PersistentAction(a[0]) != nvme.PersistentRelease || nvme.PersistentAction(a[1]) != nvme.PersistentEstablish ||
		nvme.PersistentAction(a[2]) != nvme.PersistentRead || nvme.PersistentAction(a[len(a)-1]) != nvme.PersistentRelease {
		t.Errorf("log specific parameters %v", a)
	}
	for name, wrong := range map[string]func(*nvme.PersistentLogHeader){
		"a length of less than the header": func(h *nvme.PersistentLogHeader) { h.Length = 100 },
		"a length of 1 TiB":                func(h *nvme.PersistentLogHeader) { h.Length = 1 << 40 },
		"events that aren't there":         func(h *nvme.PersistentLogHeader) { h.Events, h.Length = 400, h.Length+8000 },
	} {
		bad := h
		wrong(&bad)
		asked := answerLog(f, nvme.LogPersistent, append(bad.AppendTo(nil), rest...))
		if _, _, err := c.PersistentEvents(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if a := *asked; nvme.PersistentAction(a[len(a)-1]) != nvme.PersistentRelease {
			t.Errorf("%s: the reporting context isn't given back: log specific parameters %v", name, a)
		}
	}
}

// TestPersistentContextLost: if the reporting context is replaced while the log is read, its events are rejected: what the
// commands have read may not belong together (NVMe base 2.1, section 5.1.12.1.14).
func TestPersistentContextLost(t *testing.T) {
	f := newFakeTarget()
	f.identity.LPA |= nvme.LPAPersistent
	c := connect(t, f)
	defer closeController(t, c)
	event := nvme.PersistentEvent{Type: nvme.PersistentTimestamp}
	for _, lost := range []bool{false, true} {
		h := nvme.PersistentLogHeader{LID: nvme.LogPersistent, Events: 1, Generation: 7,
			Length: nvme.PersistentHeaderSize + uint64(event.Size())}
		var last nvme.PersistentAction
		f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpGetLogPage {
				return usual
			}
			copy(r.Data, event.AppendTo(h.AppendTo(nil))[r.Cmd.LogOffset():])
			last = nvme.PersistentAction(r.Cmd.LogLSP())
			if lost && r.Cmd.LogOffset() > 0 {
				h.Generation++
			}
			return answered
		})
		if _, all, err := c.PersistentEvents(t.Context()); (err != nil) != lost || len(all) != 1 && !lost {
			t.Errorf("context lost: %t; %d events, %v", lost, len(all), err)
		}
		if last != nvme.PersistentRelease {
			t.Errorf("context lost: %t; it isn't released", lost)
		}
	}
}

// TestANAChanging: a log that changes between the commands that read it is read again; pieces from before and after
// the change are not combined.
func TestANAChanging(t *testing.T) {
	f := newFakeTarget()
	f.identity.CMIC, f.identity.NANAGRPID, f.identity.MNAN, f.identity.NN = nvme.CMICANA, 2, 4000, 4000
	log := func(first int) []byte {
		p := nvme.ANALog{ChangeCount: uint64(first), Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAOptimized}, {ID: 2, State: nvme.ANAInaccessible}}}
		for id := range 4000 {
			g := &p.Groups[0]
			if id >= first {
				g = &p.Groups[1]
			}
			g.NSIDs = append(g.NSIDs, uint32(id+1))
		}
		return p.AppendTo(nil)
	}
	c := connect(t, f)
	defer closeController(t, c)
	changes, always := 0, false
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LID() != nvme.LogANA {
			return usual
		}
		if r.Cmd.LogOffset() == 0 && len(r.Data) < 8192 {
			t.Errorf("a read of %d bytes, which Linux's target refuses, since the log has more", len(r.Data))
		}
		if r.Cmd.LogOffset() != 0 && (changes < 2 || always) {
			changes++ // 500 namespaces move to the other group
		}
		page := log(1500 - 500*(changes%3))
		clear(r.Data[copy(r.Data, page[min(int(r.Cmd.LogOffset()), len(page)):]):])
		return answered
	})
	l, err := c.ANA(t.Context())
	if err != nil || l.ChangeCount != 500 || len(l.Groups) != 2 || len(l.Groups[0].NSIDs) != 500 || len(l.Groups[1].NSIDs) != 3500 {
		t.Errorf("%v, %+v", err, l)
	}
	always = true
	if _, err := c.ANA(t.Context()); !errors.Is(err, ErrANAUnstable) || errors.Is(err, ErrController) {
		t.Errorf("one that never stays the same: %v", err)
	}
}

// TestANAShrinking: a log that becomes shorter between two of the commands that read it is read again, although the
// controller refuses to read beyond its end. If it refuses without such a change, that is the error.
func TestANAShrinking(t *testing.T) {
	f := newFakeTarget()
	f.identity.CMIC, f.identity.NANAGRPID, f.identity.MNAN, f.identity.NN = nvme.CMICANA, 1, 8000, 8000
	c := connect(t, f)
	defer closeController(t, c)
	log := func(ids int) []byte {
		p := nvme.ANALog{ChangeCount: uint64(ids), Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAOptimized}}}
		for id := range ids {
			p.Groups[0].NSIDs = append(p.Groups[0].NSIDs, uint32(id+1))
		}
		return p.AppendTo(nil)
	}
	page, shrinks := log(8000), true
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LID() != nvme.LogANA {
			return usual
		}
		off := r.Cmd.LogOffset()
		if off > uint64(len(page)) || off > 0 && !shrinks {
			cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
			return answered
		}
		clear(r.Data[copy(r.Data, page[off:]):])
		if off > 0 {
			page = log(5)
		}
		return answered
	})
	l, err := c.ANA(t.Context())
	if err != nil || l.ChangeCount != 5 || len(l.Groups[0].NSIDs) != 5 {
		t.Errorf("%v, %+v", err, l)
	}
	page, shrinks = log(8000), false
	if _, err := c.ANA(t.Context()); !errors.Is(err, nvme.StatusInvalidField) {
		t.Errorf("a log that stays the same: %v", err)
	}
}

// TestANALogEnd: if a controller may have more namespaces than it has, nothing is read beyond the end of its log,
// which it would answer with Invalid Field (NVMe base 2.1, Get Log Page, LPOL).
func TestANALogEnd(t *testing.T) {
	const most = 1 << 17 // namespaces: half a MiB of NSIDs
	f := newFakeTarget()
	f.identity.CMIC, f.identity.NANAGRPID, f.identity.MNAN, f.identity.NN, f.identity.MDTS = nvme.CMICANA, 8, most, most, 0
	c := connect(t, f)
	defer closeController(t, c)
	for _, ids := range []int{0, 3, 1000, 16 << 10, 40000, most} {
		log := nvme.ANALog{ChangeCount: 7}
		for g := range uint32(8) {
			log.Groups = append(log.Groups, nvme.ANAGroup{ID: g + 1, State: nvme.ANAOptimized})
		}
		for id := range ids {
			g := &log.Groups[id*8/ids]
			g.NSIDs = append(g.NSIDs, uint32(id+1))
		}
		page := log.AppendTo(nil)
		f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LID() != nvme.LogANA {
				return usual
			}
			off := r.Cmd.LogOffset()
			if off > uint64(len(page)) {
				cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
				return answered
			}
			clear(r.Data[copy(r.Data, page[off:]):])
			return answered
		})
		l, err := c.ANA(t.Context())
		if err != nil || len(l.Groups) != 8 || l.Size() != len(page) {
			t.Errorf("%d namespaces of %d: %v", ids, most, err)
		}
	}
}

// TestANALogBound: what counts is how long the log is, not how long it could be by NANAGRPID, MNAN and NN, which go up
// to four billion each. A log that is longer than it may be is refused.
func TestANALogBound(t *testing.T) {
	for name, tc := range map[string]struct {
		groups, namespaces uint32 // NANAGRPID, and MNAN and NN
		ids                uint32 // that the log says it has
		ok                 bool
	}{
		"a short one of many":       {math.MaxUint32, math.MaxUint32 - 1, 3, true},
		"one beyond what is read":   {1, math.MaxUint32 - 1, 1 << 30, false},
		"one beyond what it may be": {1, 2, 3, false},
	} {
		f := newFakeTarget()
		f.identity.CMIC, f.identity.NANAGRPID, f.identity.MNAN, f.identity.NN = nvme.CMICANA, tc.groups, tc.namespaces, tc.namespaces
		c := connect(t, f)
		page := (&nvme.ANALog{Groups: []nvme.ANAGroup{{ID: 1, State: nvme.ANAOptimized, NSIDs: nvme.NSIDList{1, 2, 3}}}}).AppendTo(nil)
		binary.LittleEndian.PutUint32(page[20:], tc.ids)
		answerLog(f, nvme.LogANA, page)
		l, err := c.ANA(t.Context())
		switch {
		case tc.ok && (err != nil || len(l.Groups) != 1 || len(l.Groups[0].NSIDs) != 3):
			t.Errorf("%s: %+v, %v", name, l, err)
		case !tc.ok && !errors.Is(err, ErrController):
			t.Errorf("%s: %v", name, err)
		}
		closeController(t, c)
	}
}

// TestReadLogFromWithin: a controller that can't read a page in pieces (LPA bit 2) would ignore an offset.
func TestReadLogFromWithin(t *testing.T) {
	f := newFakeTarget()
	f.identity.LPA = 0
	c := connect(t, f)
	defer closeController(t, c)
	b := make([]byte, 512)
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError, Offset: 4}, b); !errors.Is(err, ErrUnsupported) {
		t.Errorf("from an offset: %v", err)
	}
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError}, b); err != nil {
		t.Errorf("from the beginning: %v", err)
	}
}

// TestReservations: a report that is longer than expected is read again as a whole.
func TestReservations(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	if _, err := n.Reservations(t.Context()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without ONCS bit 5: %v", err)
	}
	n.ctrl.identity.ONCS |= nvme.ONCSReservations
	for _, registrants := range []int{0, 2, 100, 1 << 10} {
		report := nvme.ResvStatus{Generation: 7, Type: nvme.ResvExclusiveAccess, Registrants: make([]nvme.ResvRegistrant, registrants)}
		for i := range report.Registrants {
			report.Registrants[i] = nvme.ResvRegistrant{CNTLID: uint16(i), Holder: i == 1, Key: uint64(i), HostID: nvme.HostID{byte(i)}}
		}
		page := report.AppendTo(nil)
		f.mu.Lock()
		f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpResvReport {
				return usual
			}
			clear(r.Data[copy(r.Data, page):])
			return answered
		}
		f.mu.Unlock()
		st, err := n.Reservations(t.Context())
		if registrants == 1<<10 { // more than MDTS, 8 KiB
			if !errors.Is(err, ErrRange) {
				t.Errorf("%d registrants: %v", registrants, err)
			}
			continue
		}
		if err != nil || st.Generation != 7 || len(st.Registrants) != registrants || registrants > 0 && st.Registrants[registrants-1].Key != uint64(registrants-1) {
			t.Errorf("%d registrants: %+v, %v", registrants, st, err)
		}
	}
}
