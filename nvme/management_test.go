package nvme

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// TestManagementGolden: the bytes of the commands and pages of Namespace Management, Namespace
// Attachment and Sanitize, worked out by hand from the figures of NVMe base 2.0.
func TestManagementGolden(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*Command)
		dw   map[int]uint32
	}{
		{"create", func(c *Command) { c.SetNSCreate(CSIZonedNS) }, map[int]uint32{0: 0x400d, 11: 0x02000000}},
		{"delete", func(c *Command) { c.SetNSDelete(7) }, map[int]uint32{0: 0x400d, 1: 7, 10: 1}},
		{"attach", func(c *Command) { c.SetNSAttachment(7, NSAttach) }, map[int]uint32{0: 0x4015, 1: 7}},
		{"detach", func(c *Command) { c.SetNSAttachment(7, NSDetach) }, map[int]uint32{0: 0x4015, 1: 7, 10: 1}},
		{"sanitize", func(c *Command) {
			c.SetSanitize(SanitizeOverwrite, SanitizeAUSE|SanitizeOIPBP|SanitizeNDAS, 3, 0xdeadbeef)
		},
			map[int]uint32{0: 0x4084, 10: 0x33b, 11: 0xdeadbeef}},
	} {
		var got, want Command
		tc.set(&got)
		for n, v := range tc.dw {
			want.SetCDW(n, v)
		}
		if got != want {
			t.Errorf("%s:\n%x, want\n%x", tc.name, got, want)
		}
	}
	if n := SanitizePasses(0x03); n != 16 {
		t.Errorf("OWPASS 0 is %d passes", n)
	}
	p := NamespaceSpec{NSZE: 1, NCAP: 2, FLBAS: 3, DPS: 4, NMIC: 5, ANAGRPID: 6, NVMSETID: 7, ENDGID: 8}
	b := p.AppendTo(nil)
	want := make([]byte, PageSize)
	for at, v := range map[int]byte{0: 1, 8: 2, 26: 3, 29: 4, 30: 5, 92: 6, 100: 7, 102: 8} {
		want[at] = v
	}
	if !bytes.Equal(b, want) {
		t.Errorf("namespace to create:\n%x", b[:104])
	}
	s := SanitizeLog{SPROG: 0x1234, SSTAT: SanitizeInProgress.WithPasses(5), SCDW10: 0x03, OverwriteTime: 1, BlockEraseTime: 2}
	if got := hex.EncodeToString(s.AppendTo(nil)[:16]); got != "34122a00"+"03000000"+"01000000"+"02000000" {
		t.Errorf("sanitize status %s", got)
	}
	if s.SSTAT.Passes() != 5 || s.SSTAT.State() != SanitizeInProgress {
		t.Errorf("SSTAT %#x", s.SSTAT)
	}
}

// TestPersistentGolden checks the offsets of the log's fields against the figures of NVMe base 2.0.
func TestPersistentGolden(t *testing.T) {
	h := PersistentLogHeader{LID: LogPersistent, Events: 1, Length: 2, Revision: 3, HeaderLength: PersistentHeaderRest, Timestamp: 4,
		PowerCycles: 5, VID: 6, Generation: 7, ReportingContext: PersistentContextExisted}
	h.SN[0], h.MN[0], h.SUBNQN[0], h.SupportedEventsBits[0] = 's', 'm', 'n', 0x5a
	b := h.AppendTo(nil)
	want := make([]byte, PersistentHeaderSize)
	for at, v := range map[int]byte{0: 0x0d, 4: 1, 8: 2, 16: 3, 18: 0xec, 19: 1, 20: 4, 44: 5, 52: 6, 56: 's', 76: 'm', 116: 'n', 372: 7, 376: 4, 480: 0x5a} {
		want[at] = v
	}
	if !bytes.Equal(b, want) {
		t.Errorf("header\n%x, want\n%x", b, want)
	}
	e := PersistentEvent{Type: PersistentSanitize, Revision: 1, CNTLID: 0x0203, Timestamp: 5, Data: PersistentData(&SanitizeStartEvent{1, 2, 3})}
	if got := hex.EncodeToString(e.AppendTo(nil)); got != "09011503"+"0302"+"0500000000000000"+"0000000000000000"[:12]+"0000"+"0c00"+"01000000"+"02000000"+"03000000" {
		t.Errorf("event %s", got)
	}
	if _, err := e.Parse(make([]byte, 10)); !errors.Is(err, ErrShort) {
		t.Errorf("10 bytes: %v", err)
	}
}

// TestPersistentEventParse: an event of another implementation may have a longer header, and vendor specific information
// before its data.
func TestPersistentEventParse(t *testing.T) {
	b := unhex(t, "08"+"01"+"17"+"00"+"0302"+"0807060504030201"+"0000"+"00000000"+"0200"+"0500"+"ffff"+ // 17h and 3 bytes
		"eeee"+"0a0b0c"+"77")
	want := PersistentEvent{Type: PersistentFormatEnd, Revision: 1, CNTLID: 0x0203, Timestamp: 0x0102030405060708, Data: []byte{10, 11, 12}}
	var e PersistentEvent
	if rest, err := e.Parse(b); err != nil || !reflect.DeepEqual(e, want) || !bytes.Equal(rest, []byte{0x77}) {
		t.Errorf("got %+v, then % x, %v; want %+v", e, rest, err, want)
	}
	log := bytes.Clone(b[:len(b)-1])
	if _, err := e.Parse(log); err != nil {
		t.Errorf("that ends the log: %v", err)
	}
	if clear(log); !bytes.Equal(e.Data, want.Data) {
		t.Errorf("the event's data became % x with the memory that it was parsed from", e.Data)
	}
	if _, err := e.Parse(b[:len(b)-2]); !errors.Is(err, ErrShort) {
		t.Errorf("cut: %v", err)
	}
	for at, v := range map[int]byte{2: 0x14, 20: 6} { // a header without its last byte; more vendor specific information than data
		bad := bytes.Clone(b)
		bad[at] = v
		if _, err := e.Parse(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d is %#x: %v", at, v, err)
		}
	}
}

func FuzzPersistentEvent(tf *testing.F) {
	f := fuzzing.New(tf)
	e := PersistentEvent{Type: PersistentFormatEnd, Revision: 1, CNTLID: 1, Timestamp: 9, Data: PersistentData(&FormatEndEvent{NSID: 1})}
	f.Add(e.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v, w PersistentEvent
		rest, err := v.Parse(b)
		if err != nil {
			return
		}
		if len(rest) >= len(b) {
			t.Fatal("nothing was parsed")
		}
		if left, err := w.Parse(v.AppendTo(nil)); err != nil || len(left) != 0 || w.Type != v.Type || w.CNTLID != v.CNTLID || !bytes.Equal(w.Data, v.Data) {
			t.Fatalf("%+v became %+v, %v", v, w, err)
		}
	})
}
