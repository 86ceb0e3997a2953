package nvme

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

func TestLogsGolden(t *testing.T) {
	var smart SMARTLog
	checkGolden(t, "log-smart", &smart)
	if smart.DataUnitsRead != Uint128From(1) || smart.HostReads != Uint128From(3) {
		t.Errorf("SMART: units read %v, host reads %v", smart.DataUnitsRead, smart.HostReads)
	}

	var effects EffectsLog
	checkGolden(t, "log-effects", &effects)
	if effects.Admin[OpIdentify]&EffectSupported == 0 || effects.IO[OpWrite] != EffectSupported|EffectContentChange || effects.Admin[OpFormat] != 0 {
		t.Errorf("effects: Identify %x, Write %x, Format %x", effects.Admin[OpIdentify], effects.IO[OpWrite], effects.Admin[OpFormat])
	}

	var e ErrorEntry
	b := golden(t, "log-error")
	for i, want := range []struct {
		count    uint64
		sqid     uint16
		status   Status
		location uint16
	}{{2, 1, StatusInvalidOpcode | StatusDNR, 0}, {1, 0, StatusInvalidField | StatusDNR, 40}} {
		raw := b[i*ErrorEntrySize:][:ErrorEntrySize]
		if err := e.Parse(raw); err != nil {
			t.Fatal(err)
		}
		if e.Count != want.count || e.SQID != want.sqid || e.Status() != want.status || e.Location != want.location || e.NSID != 1 {
			t.Errorf("error entry %d: %+v", i, e)
		}
		if !bytes.Equal(e.AppendTo(nil), raw) {
			t.Errorf("error entry %d: append differs from the capture", i)
		}
	}
}

func TestANALogGolden(t *testing.T) {
	b := golden(t, "log-ana")
	var p ANALog
	if err := p.Parse(b); err != nil {
		t.Fatal(err)
	}
	want := ANALog{Groups: []ANAGroup{{ID: 1, State: ANAOptimized, NSIDs: NSIDList{1}}}}
	if !reflect.DeepEqual(p, want) {
		t.Fatalf("got %+v, want %+v", p, want)
	}
	got := p.AppendTo(nil)
	if len(got) != p.Size() || !bytes.Equal(got, b[:len(got)]) {
		t.Error("append differs from the capture")
	}
	if ANALogSize(128, 1024) != 16+128*32+1024*4 {
		t.Error("ANALogSize is not Linux's buffer size")
	}
}

// TestANALogGroups: each group has its own namespaces, or none, and nothing of a log parsed earlier remains.
func TestANALogGroups(t *testing.T) {
	want := ANALog{ChangeCount: 5, Groups: []ANAGroup{
		{ID: 1, ChangeCount: 3, State: ANAOptimized, NSIDs: NSIDList{1, 3}},
		{ID: 2, ChangeCount: 4, State: ANAInaccessible},
		{ID: 7, ChangeCount: 5, State: ANANonOptimized, NSIDs: NSIDList{2}},
	}}
	b := want.AppendTo(nil)
	for _, p := range []*ANALog{{}, {ChangeCount: 9, Groups: []ANAGroup{{ID: 9}}}} {
		if err := p.Parse(b); err != nil || !reflect.DeepEqual(*p, want) {
			t.Errorf("got %+v, %v; want %+v", *p, err, want)
		}
	}
	empty := ANALog{Groups: []ANAGroup{{ID: 9}}}
	if err := empty.Parse(make([]byte, 16)); err != nil || len(empty.Groups) != 0 {
		t.Errorf("of no groups: %+v, %v", empty, err)
	}
}

// TestANALogLength: the beginning of a log says how long the log is, as far as it has the groups; while there is more to
// read, the length is greater than what has been read.
func TestANALogLength(t *testing.T) {
	b := (&ANALog{Groups: []ANAGroup{{ID: 1, NSIDs: NSIDList{1, 2}}, {ID: 2}, {ID: 3, NSIDs: NSIDList{3}}}}).AppendTo(nil)
	for n := range len(b) {
		if l := ANALogLength(b[:n]); l <= uint64(n) || l > uint64(len(b)) {
			t.Errorf("of %d bytes from %d: %d", n, len(b), l)
		}
	}
	for _, more := range []int{0, 1, 100} {
		if l := ANALogLength(append(b[:len(b):len(b)], make([]byte, more)...)); l != uint64(len(b)) {
			t.Errorf("of all, %d, and %d bytes more: %d", len(b), more, l)
		}
	}
	huge := slices.Clone(b)
	copy(huge[20:], []byte{0xff, 0xff, 0xff, 0xff})
	if l := ANALogLength(huge); l < 1<<34 {
		t.Errorf("2^32-1 namespaces: %d", l)
	}
}

func TestANALogMalformed(t *testing.T) {
	good := (&ANALog{Groups: []ANAGroup{{ID: 1, State: ANAChange, NSIDs: NSIDList{1, 2}}}}).AppendTo(nil)
	for n := range good {
		if err := new(ANALog).Parse(good[:n]); !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	huge := slices.Clone(good)
	copy(huge[20:], []byte{0xff, 0xff, 0xff, 0xff})
	if err := new(ANALog).Parse(huge); !errors.Is(err, ErrMalformed) {
		t.Errorf("2^32-1 namespaces: %v", err)
	}
}

func TestDiscoveryGolden(t *testing.T) {
	b := golden(t, "log-discovery")
	var h DiscoveryHeader
	if err := h.Parse(b); err != nil {
		t.Fatal(err)
	}
	if h.GENCTR != 13 || h.NUMREC != 2 || h.RECFMT != 0 {
		t.Fatalf("header %+v", h)
	}
	out := h.AppendTo(nil)
	var e [2]DiscoveryEntry
	for i := range e {
		if err := e[i].Parse(b[DiscoveryEntrySize*(i+1):]); err != nil {
			t.Fatal(err)
		}
		out = e[i].AppendTo(out)
	}
	if !bytes.Equal(out, b) {
		t.Error("append differs from the capture:", firstDifference(out, b))
	}
	if e[0].SUBTYPE != SubsystemCurrentDiscovery || e[0].NQN() != DiscoveryNQN {
		t.Errorf("first entry: %v %q", e[0].SUBTYPE, e[0].NQN())
	}
	d := &e[1]
	if d.TRTYPE != TransportTCP || d.ADRFAM != FamilyIPv4 || d.SUBTYPE != SubsystemNVM || d.TREQ != TREQNoSQFlowControl ||
		d.PORTID != 2 || d.CNTLID != CNTLIDDynamic || d.ASQSZ != AdminQueueSize || d.Service() != "4420" ||
		d.Address() != "198.18.0.12" || d.NQN() != "nqn.2026-01.lab:golden" || d.TCP() != TCPSecurityNone {
		t.Errorf("second entry: %+v", d)
	}
}

func TestTSASRDMA(t *testing.T) {
	want := TSASRDMA{QPType: RDMAQPConnected, Provider: RDMAProviderRoCE2, CMS: RDMACMS, PKey: 0xffff}
	d := DiscoveryEntry{TSAS: want.Bytes()}
	if d.RDMA() != want || d.TSAS[1] != 4 || d.TSAS[8] != 0xff {
		t.Errorf("got %+v from % x", d.RDMA(), d.TSAS[:10])
	}
}

func TestChangedNamespaces(t *testing.T) {
	for _, c := range []struct {
		in   ChangedNamespaces
		want ChangedNamespaces
	}{
		{ChangedNamespaces{}, ChangedNamespaces{}},
		{ChangedNamespaces{NSIDs: NSIDList{1, 7}}, ChangedNamespaces{NSIDs: NSIDList{1, 7}}},
		{ChangedNamespaces{TooMany: true}, ChangedNamespaces{TooMany: true}},
		{ChangedNamespaces{NSIDs: make(NSIDList, MaxNSIDList+1)}, ChangedNamespaces{TooMany: true}},
	} {
		b := c.in.AppendTo(nil)
		var got ChangedNamespaces
		if err := got.Parse(b); err != nil || !reflect.DeepEqual(got, c.want) || len(b) != PageSize {
			t.Errorf("got %+v, %v, want %+v", got, err, c.want)
		}
	}
}

func TestFirmwareLog(t *testing.T) {
	p := FirmwareLog{AFI: 1}
	PutPadded(p.FRS[0][:], "1.0")
	b := p.AppendTo(nil)
	if len(b) != 512 || b[0] != 1 || string(b[8:16]) != "1.0     " || p.Active() != 1 {
		t.Errorf("page % x", b[:16])
	}
}

func TestSMARTDataUnits(t *testing.T) {
	for bytes, want := range map[uint64]uint64{0: 0, 1: 1, 512000: 1, 512001: 2, 1<<64 - 1: 36028797018963} {
		// The specification: a value of one is 1,000 units of 512 bytes, rounded up.
		if bytes == 1<<64-1 {
			want = (1<<64-1)/512000 + 1
		}
		if got := SMARTDataUnits(bytes); got.Lo != want || got.Hi != 0 {
			t.Errorf("%d bytes are %v units, want %d", bytes, got, want)
		}
	}
	if u := Uint128From(1<<64 - 1).Plus(3).Plus(1<<64 - 1); u != (Uint128{Lo: 1, Hi: 2}) {
		t.Errorf("the sum is %v", u)
	}
	if s := (Uint128{Hi: 1}).String(); s != "18446744073709551616" {
		t.Errorf("2^64 prints as %s", s)
	}
}

func TestReservationNotification(t *testing.T) {
	p := ReservationNotification{Count: 1, Type: 2, NSID: 3}
	if b := p.AppendTo(nil); len(b) != 64 || b[0] != 1 || b[8] != 2 || b[12] != 3 {
		t.Errorf("page % x", b)
	}
	for kind, want := range map[uint8]string{
		ResvNoticeRegistrationPreempted: "registration preempted, namespace 3",
		ResvNoticeReleased:              "reservation released, namespace 3",
		ResvNoticePreempted:             "reservation preempted, namespace 3",
		9:                               "reservation notification 9, namespace 3",
	} {
		p.Type = kind
		if got := p.String(); got != want {
			t.Errorf("type %d: %q", kind, got)
		}
	}
}

func FuzzSMARTLog(f *testing.F)        { fuzzPage[*SMARTLog](f, "log-smart") }
func FuzzEffectsLog(f *testing.F)      { fuzzPage[*EffectsLog](f, "log-effects") }
func FuzzErrorEntry(f *testing.F)      { fuzzPage[*ErrorEntry](f, "log-error") }
func FuzzFirmwareLog(f *testing.F)     { fuzzPage[*FirmwareLog](f, "log-smart") }
func FuzzSupportedLogs(f *testing.F)   { fuzzPage[*SupportedLogs](f, "log-effects") }
func FuzzANALog(f *testing.F)          { fuzzPage[*ANALog](f, "log-ana") }
func FuzzDiscoveryHeader(f *testing.F) { fuzzPage[*DiscoveryHeader](f, "log-discovery") }
func FuzzDiscoveryEntry(f *testing.F)  { fuzzPage[*DiscoveryEntry](f, "log-discovery") }
func FuzzChangedNamespaces(f *testing.F) {
	fuzzPage[*ChangedNamespaces](f, "identify-active-nsids")
}
func FuzzReservationNotification(f *testing.F) {
	fuzzPage[*ReservationNotification](f, "log-error")
}
