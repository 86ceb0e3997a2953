package nvme

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestConnectDataGolden(t *testing.T) {
	const host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
	id, err := ParseHostID("11111111-2222-3333-4444-555555555555")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]ConnectData{
		"admin-connect-data":     {id, CNTLIDDynamic, "nqn.2026-01.lab:golden", host},
		"io-connect-data":        {id, 1, "nqn.2026-01.lab:golden", host},
		"discovery-connect-data": {id, CNTLIDDynamic, DiscoveryNQN, host},
	} {
		b := golden(t, name)
		var d ConnectData
		if err := d.Parse(b); err != nil || d != want {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
		out, err := d.AppendTo(nil)
		if err != nil || !bytes.Equal(out, b) {
			t.Errorf("%s: append differs from the capture: %v", name, err)
		}
	}
	if got, ok := HostIDOf(host); !ok || got != id || id.NQN() != host {
		t.Errorf("HostIDOf gives %v", got)
	}
}

func TestConnectDataMalformed(t *testing.T) {
	b := bytes.Clone(golden(t, "io-connect-data"))
	var d ConnectData
	if err := d.Parse(b[:1023]); !errors.Is(err, ErrShort) {
		t.Errorf("1023 bytes: %v", err)
	}
	for i := range MaxNQN {
		b[ConnectDataOffHOSTNQN+i] = 'x'
	}
	if err := d.Parse(b); err != nil || len(d.HostNQN) != MaxNQN {
		t.Errorf("NQN of 223 bytes: %v", err)
	}
	b[ConnectDataOffHOSTNQN+MaxNQN] = 'x'
	if err := d.Parse(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "HOSTNQN") {
		t.Errorf("NQN of 224 bytes: %v", err)
	}
	b = bytes.Clone(golden(t, "io-connect-data"))
	for i := range ConnectDataOffHOSTNQN - ConnectDataOffSUBNQN {
		b[ConnectDataOffSUBNQN+i] = 'x' // the host's valid name follows
	}
	if err := d.Parse(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "SUBNQN") {
		t.Errorf("NQN without an end: %v", err)
	}
	longest := ConnectData{HostID: HostID{1, 15: 2}, CNTLID: 3, SubNQN: strings.Repeat("s", MaxNQN), HostNQN: strings.Repeat("h", MaxNQN)}
	out, err := longest.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Parse(out); err != nil || d != longest {
		t.Errorf("the longest names: %+v, %v", d, err)
	}
	d.SubNQN = strings.Repeat("x", 224)
	if out, err := d.AppendTo([]byte{1}); !errors.Is(err, ErrNQN) || len(out) != 1 {
		t.Errorf("appended an NQN of 224 bytes: %v", err)
	}
}

func FuzzConnectData(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(golden(f, "admin-connect-data"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, e ConnectData
		if d.Parse(b) != nil {
			return
		}
		out, err := d.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Parse(out); err != nil || d != e {
			t.Fatalf("%+v became %+v, %v", d, e, err)
		}
	})
}

func TestConnectResults(t *testing.T) {
	if r := ConnectResult(0x20007); r.CNTLID() != 7 || r&ConnectATR == 0 || r&ConnectASCR != 0 {
		t.Errorf("result %#x", uint32(r))
	}
	for want, r := range map[string]ConnectInvalid{
		"subsystem NQN": InvalidData(ConnectDataOffSUBNQN), "host NQN": InvalidData(512), "CNTLID": 0x10010, "host ID": 0x10000,
		"queue size": InvalidCommand(ConnectOffSQSIZE), "queue ID": 42, "record format": 40, "keep alive timeout": 48,
		"connect attributes": 46, "byte 3 of the Connect command": 3, "byte 3 of the Connect data": 0x10003,
	} {
		if r.String() != want {
			t.Errorf("%#x is %q, want %q", uint32(r), r, want)
		}
	}
}

// TestRegistersGolden reads values that a Linux target returned and a Linux host wrote.
func TestRegistersGolden(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range capsules(t) {
		if c.cmd.Opcode() != OpFabrics || c.cmd.FCType() == FCConnect {
			continue
		}
		seen[c.cmd.Name(0)] = true
		switch c.cmd.FCType() {
		case FCPropertyGet:
			checkPropertyGet(t, c)
		case FCPropertySet:
			cc := CC(c.cmd.PropertyValue())
			if c.cmd.Property() != PropCC || c.cmd.PropertySize() != 4 || cc.IOSQES() != 6 || cc.IOCQES() != 4 || cc&CCCSSMask != CCCSSAll {
				t.Errorf("%s: set %v to %#x", c.origin, c.cmd.Property(), cc)
			}
			if cc.Shutdown() == CCSHNNormal && c.origin != "tcp-15-disconnect" && c.origin != "tcp-01-discover" {
				t.Errorf("%s: shutdown in CC %#x", c.origin, cc)
			}
		}
	}
	for _, n := range []string{"Property Get (CAP)", "Property Get (VS)", "Property Get (CSTS)", "Property Set (CC)"} {
		if !seen[n] {
			t.Errorf("no %s among the samples", n)
		}
	}
}

func checkPropertyGet(t *testing.T, c capsule) {
	p := c.cmd.Property()
	if p.Size() != 0 && c.cmd.PropertySize() != p.Size() {
		t.Errorf("%s: %v asked with size %d", c.origin, p, c.cmd.PropertySize())
	}
	switch p {
	case PropCAP:
		cp := CAP(c.cqe.Result())
		if cp.MQES() != 1024 || cp.Timeout() != 7500*time.Millisecond || cp.MPSMIN() != 0 || cp&(CAPNVM|CAPIOCS) != CAPNVM|CAPIOCS {
			t.Errorf("CAP %#x: MQES %d, TO %v", uint64(cp), cp.MQES(), cp.Timeout())
		}
		// CQR is mandatory on Fabrics; Linux leaves it out.
		if built := NewCAP(1024, 7500*time.Millisecond, CAPNVM|CAPIOCS); built != cp|CAPCQR {
			t.Errorf("NewCAP gives %#x, Linux %#x", uint64(built), uint64(cp))
		}
	case PropVS:
		if v := Version(c.cqe.DW0()); v != Version1_3 || v.String() != "1.3" {
			t.Errorf("VS %v", v)
		}
	case PropCSTS:
		if s := CSTS(c.cqe.DW0()); !s.Ready() && s.Shutdown() != CSTSShutdownComplete || s.Fatal() {
			t.Errorf("CSTS %#x", s)
		}
	default: // nvme-cli's show-regs also reads 0Ch, which doesn't exist on Fabrics
		if c.cqe.Status().Code() != StatusInvalidField {
			t.Errorf("%s: %v gave %v", c.origin, p, c.cqe.Status())
		}
	}
}

func TestNewCAPTimeout(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: 500 * time.Millisecond, 500 * time.Millisecond: 500 * time.Millisecond, time.Hour: 127500 * time.Millisecond,
	} {
		if got := NewCAP(128, in, CAPNVM).Timeout(); got != want {
			t.Errorf("TO of %v is %v, want %v", in, got, want)
		}
	}
	if v := Version1_2_1.String(); v != "1.2.1" {
		t.Errorf("version %s", v)
	}
}
