package nvme

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// TestReservationGolden: fields lie where the specification has them (NVMe base 2.0, figures
// "Reservation Acquire – Command Dword 10", "Reservation Register – Command Dword 10",
// "Reservation Status Extended Data Structure" and "Registered Controller Extended Data Structure").
func TestReservationGolden(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*Command)
		dw10 string
	}{
		{"register, PTPL set", func(c *Command) { c.SetResvRegister(1, ResvRegister, false, CPTPLSet) }, "000000c0"},
		{"replace, key ignored, PTPL cleared", func(c *Command) { c.SetResvRegister(1, ResvReplace, true, CPTPLClear) }, "0a000080"},
		{"preempt and abort", func(c *Command) { c.SetResvAcquire(1, ResvPreemptAndAbort, ResvExclusiveAccessAllReg) }, "02060000"},
		{"release", func(c *Command) { c.SetResvRelease(1, ResvRelease, ResvExclusiveAccessRegOnly) }, "00040000"},
		{"acquire", func(c *Command) { c.SetResvAcquire(1, ResvAcquire, ResvWriteExclusive) }, "00010000"},
		{"clear", func(c *Command) { c.SetResvRelease(1, ResvClear, ResvNone) }, "01000000"},
		{"report of 192 bytes", func(c *Command) { c.SetResvReport(1, 192) }, "2f000000"},
	} {
		var c Command
		tc.set(&c)
		if want := unhex(t, tc.dw10); !bytes.Equal(c[40:44], want) {
			t.Errorf("%s: dword 10 is %x, want %x", tc.name, c[40:44], want)
		}
	}
	var c Command
	c.SetResvReport(1, 192)
	if c.Opcode() != OpResvReport || c.NSID() != 1 {
		t.Errorf("a report is %v of namespace %d", c.Opcode(), c.NSID())
	}
	c.SetResvAcquire(7, ResvAcquire, ResvWriteExclusive)
	if c.Opcode() != OpResvAcquire || c.NSID() != 7 {
		t.Errorf("an acquire is %v of namespace %d", c.Opcode(), c.NSID())
	}
	c.SetResvReport(1, 192)
	if c[44] != 1 || c.ResvReportLength() != 192 || !c.ResvExtended() {
		t.Errorf("report of %d bytes, dword 11 %x", c.ResvReportLength(), c[44:48])
	}
	p := ResvStatus{Generation: 0x01020304, Type: ResvWriteExclusiveRegOnly, Persist: true, Registrants: []ResvRegistrant{
		{CNTLID: 0x1234, Holder: true, Key: 0x1122334455667788, HostID: HostID{0xaa, 15: 0xbb}},
		{CNTLID: CNTLIDDynamic, Key: 5, HostID: HostID{1}},
	}}
	b := p.AppendTo(nil)
	want := make([]byte, 192)
	copy(want, unhex(t, "04030201"+"03"+"0200"+"0000"+"01"))
	copy(want[64:], unhex(t, "3412"+"01"+"0000000000"+"8877665544332211"+"aa0000000000000000000000000000bb"))
	copy(want[128:], unhex(t, "ffff"+"00"+"0000000000"+"0500000000000000"+"01000000000000000000000000000000"))
	if !bytes.Equal(b, want) {
		t.Errorf("status\n%x, want\n%x", b, want)
	}
	var q ResvStatus
	if err := q.Parse(b); err != nil || !reflect.DeepEqual(p, q) {
		t.Errorf("parsed %+v, %v", q, err)
	}
	if err := q.Parse(b[:130]); err != nil || len(q.Registrants) != 1 {
		t.Errorf("parsed %+v of less, %v", q, err)
	}
	b[5], b[9] = 1, 0xfe // one registrant, though there is room for two, and reserved bits
	if err := q.Parse(b); err != nil || len(q.Registrants) != 1 || q.Persist {
		t.Errorf("parsed %+v of one registrant, %v", q, err)
	}
	if err := q.Parse(make([]byte, 64)); err != nil || !reflect.DeepEqual(q, ResvStatus{}) {
		t.Errorf("parsed %+v of no registrants, %v", q, err)
	}
	if q.Parse(b[:63]) == nil {
		t.Error("a short header was parsed")
	}
	var k ResvKeys
	if err := k.Parse(unhex(t, "0100000000000000"+"0200000000000000")); err != nil || k != (ResvKeys{1, 2}) {
		t.Errorf("keys %+v, %v", k, err)
	}
	for _, n := range []int{8, 15} { // Release has one key
		if err := k.Parse(unhex(t, "0300000000000000"+"0200000000000000")[:n]); err != nil || k != (ResvKeys{Current: 3}) {
			t.Errorf("keys %+v of %d bytes, %v", k, n, err)
		}
	}
	if k.Parse(make([]byte, 7)) == nil {
		t.Error("short keys were parsed")
	}
}

func FuzzResvStatus(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add((&ResvStatus{Registrants: []ResvRegistrant{{Key: 1}}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q ResvStatus
		if p.Parse(b) != nil {
			return
		}
		if err := q.Parse(p.AppendTo(nil)); err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	})
}
