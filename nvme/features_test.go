package nvme

import (
	"testing"
	"time"
)

func TestQueueCounts(t *testing.T) {
	q := NewQueueCounts(4, 8)
	if uint32(q) != 7<<16|3 || q.SQ() != 4 || q.CQ() != 8 {
		t.Errorf("%#x: %d, %d", uint32(q), q.SQ(), q.CQ())
	}
	// What Linux granted in tcp-02-connect.
	if q := QueueCounts(0x007f007f); q.SQ() != 128 || q.CQ() != 128 {
		t.Errorf("%d, %d", q.SQ(), q.CQ())
	}
}

func TestTimestamp(t *testing.T) {
	now := time.UnixMilli(1763692800123)
	b := TimestampOf(now).AppendTo(nil)
	var got Timestamp
	if err := got.Parse(b); err != nil || !got.Time().Equal(now) {
		t.Errorf("%v became %v, %v", now, got.Time(), err)
	}
	got = Timestamp{Millis: 1, Origin: 1, Synch: true}
	if b := got.AppendTo(nil); b[6] != 0x03 {
		t.Errorf("byte 6 is %#x: Synch is bit 0, Origin bits 3:1", b[6])
	}
}

func TestFeatureDataSize(t *testing.T) {
	for _, c := range []struct {
		f    FID
		dw11 uint32
		want int
	}{{FeatTimestamp, 0, 8}, {FeatHostBehavior, 0, 512}, {FeatHostID, HostIDExtended, 16}, {FeatHostID, 0, 8}, {FeatKATO, 1, 0}} {
		if got := FeatureDataSize(c.f, c.dw11); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.f, got, c.want)
		}
	}
}

func TestHostBehavior(t *testing.T) {
	b := HostBehavior{ACRE: 1, LBAFEE: 1}.AppendTo(nil)
	var got HostBehavior
	if err := got.Parse(b); err != nil || len(b) != 512 || got != (HostBehavior{ACRE: 1, LBAFEE: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAsyncEvents(t *testing.T) {
	// The event of a Linux target whose namespaces changed is 0x00040002.
	if EventNamespaceChanged != 0x040002 || EventANAChanged != 0x0c0302 || EventDiscoveryChanged != 0x70f002 {
		t.Errorf("%#x %#x %#x", uint32(EventNamespaceChanged), uint32(EventANAChanged), uint32(EventDiscoveryChanged))
	}
	for e, want := range map[AsyncEvent]string{
		EventNamespaceChanged: "namespace attribute changed",
		0x020101:              "SMART / health event, information 0x01, SMART / Health Information",
		0x5:                   "type 5 event, information 0x00, Supported Log Pages",
	} {
		if e.String() != want {
			t.Errorf("%#x is %q", uint32(e), e)
		}
	}
}

func FuzzTimestamp(f *testing.F) { fuzzValue[Timestamp](f, "dsm-ranges") }

func FuzzHostBehavior(f *testing.F) { fuzzValue[HostBehavior](f, "log-smart") }
