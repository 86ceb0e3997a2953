package nvme

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// rebuild makes command c again with this package's builders; it returns false if c has no
// builder. CID and SGL belong to the transport and are copied.
func rebuild(c *Command) (Command, bool) {
	var r Command
	switch op := c.Opcode(); op {
	case OpFabrics:
		switch c.FCType() {
		case FCConnect:
			r.SetConnect(c.ConnectQID(), c.ConnectSQSIZE(), c.ConnectCATTR(), c.ConnectKATO())
		case FCPropertyGet:
			r.SetPropertyGet(c.Property())
		case FCPropertySet:
			r.SetPropertySet(c.Property(), c.PropertyValue())
		default:
			return r, false
		}
	case OpIdentify:
		r.SetIdentify(c.CNS(), c.NSID(), c.CNTID(), c.IdentifyCSI())
	case OpGetLogPage:
		r.SetGetLogPage(GetLogPage{LID: c.LID(), NSID: c.NSID(), LSP: c.LogLSP(), RAE: c.LogRAE(),
			Length: uint32(c.LogLength()), Offset: c.LogOffset(), CSI: c.LogCSI()})
	case OpSetFeatures:
		r.SetSetFeatures(c.FID(), c.FeatureSave(), c.NSID(), c.CDW(11))
	case OpGetFeatures:
		r.SetGetFeatures(c.FID(), c.FeatureSEL(), c.NSID(), c.CDW(11))
	case OpAsyncEvent:
		r.SetAsyncEvent()
	case OpKeepAlive:
		r.SetKeepAlive()
	default:
		return r, false
	}
	return r, true
}

func rebuildIO(c *Command) (Command, bool) {
	var r Command
	switch op := c.Opcode(); op {
	case OpRead, OpWrite, OpCompare, OpWriteZeroes, OpVerify:
		r.SetIO(op, c.NSID(), c.SLBA(), c.Blocks(), c.IOControl())
	case OpFlush:
		r.SetFlush(c.NSID())
	case OpDSM:
		r.SetDSM(c.NSID(), c.DSMRanges(), c.DSMAttributes())
	default:
		return r, false
	}
	return r, true
}

// TestCommandsGolden reads every captured command through the accessors and builds it again:
// the bytes must be the same as the Linux host's.
func TestCommandsGolden(t *testing.T) {
	built := map[string]int{}
	for _, c := range capsules(t) {
		// The I/O queue's captures have SQID 1 in the completion.
		io := c.cqe != nil && c.cqe.SQID() == 1 && c.cmd.Opcode() != OpFabrics
		var got Command
		var ok bool
		if io {
			got, ok = rebuildIO(c.cmd)
		} else {
			got, ok = rebuild(c.cmd)
		}
		if !ok {
			continue
		}
		got.SetCID(c.cmd.CID())
		*got.SGL1() = *c.cmd.SGL1()
		if got != *c.cmd {
			t.Errorf("%s: %s\n got %x\nwant %x", c.origin, c.cmd.Name(0), got, *c.cmd)
		}
		if c.cmd.PSDT() != 1 {
			t.Errorf("%s: PSDT %d", c.origin, c.cmd.PSDT())
		}
		if c.cqe != nil && c.cqe.CID() != c.cmd.CID() {
			t.Errorf("%s: completion of CID %#x for %#x", c.origin, c.cqe.CID(), c.cmd.CID())
		}
		q := uint16(0)
		if io {
			q = 1
		}
		built[c.cmd.Name(q)]++
	}
	for _, n := range []string{"Connect", "Identify (CNS 01h)", "Get Log Page (Discovery)", "Get Log Page (SMART / Health Information)",
		"Set Features (Number of Queues)", "Asynchronous Event Request", "Keep Alive", "Read", "Write", "Flush", "Write Zeroes",
		"Compare", "Dataset Management"} {
		if built[n] == 0 {
			t.Errorf("no %s among the samples; there are %v", n, built)
		}
	}
}

func TestLogLength(t *testing.T) {
	for _, n := range []uint32{4, 512, 4096, 1 << 18, 1<<18 + 4, 1<<32 - 4} {
		var c Command
		c.SetGetLogPage(GetLogPage{LID: LogANA, Length: n, Offset: 1 << 40})
		if c.LogLength() != uint64(n) || c.LogOffset() != 1<<40 {
			t.Errorf("length %d became %d at %d", n, c.LogLength(), c.LogOffset())
		}
	}
	var c Command
	c.SetGetLogPage(GetLogPage{Length: 17, RAE: true, LSP: 1, LSI: 0x0203, UUIDIndex: 0x7f, CSI: 4})
	if c.LogLength() != 20 || !c.LogRAE() || c.LogLSP() != 1 {
		t.Error("17 bytes are five dwords")
	}
	if c.CDW(11) != 0x02030000 || c.CDW(14) != 0x0400007f {
		t.Errorf("dwords 11 and 14 are %#x and %#x", c.CDW(11), c.CDW(14))
	}
}

func TestBlockCount(t *testing.T) {
	for _, n := range []uint32{1, 8, MaxBlocks} {
		var c Command
		c.SetIO(OpRead, 1, 1<<40, n, ControlFUA)
		if c.Blocks() != n || c.SLBA() != 1<<40 || !c.FUA() || c.Direction() != CtrlToHost {
			t.Errorf("%d blocks became %d at %d", n, c.Blocks(), c.SLBA())
		}
	}
}

func TestAbort(t *testing.T) {
	var c Command
	c.SetAbort(3, 0xf01e)
	if c.AbortSQID() != 3 || c.AbortCID() != 0xf01e {
		t.Errorf("abort of %d/%#x", c.AbortSQID(), c.AbortCID())
	}
}

func TestDSMGolden(t *testing.T) {
	b := golden(t, "dsm-ranges")
	want := []DSMRange{{Blocks: 8, SLBA: 256}, {Blocks: 16, SLBA: 512}}
	var out []byte
	for i, w := range want {
		var r DSMRange
		if err := r.Parse(b[i*DSMRangeSize:]); err != nil || r != w {
			t.Errorf("range %d: %+v, %v", i, r, err)
		}
		out = r.AppendTo(out)
	}
	if string(out) != string(b) {
		t.Errorf("append gives % x", out)
	}
	if err := new(DSMRange).Parse(b[:15]); err == nil {
		t.Error("15 bytes parsed as a range")
	}
}

func FuzzDSMRange(f *testing.F) { fuzzValue[DSMRange](f, "dsm-ranges") }

// fuzzValue checks parse → append equality for types without reserved bytes.
func fuzzValue[T interface {
	comparable
	AppendTo([]byte) []byte
}, P interface {
	*T
	Parse([]byte) error
}](tf *testing.F, seed string) {
	f := fuzzing.New(tf)
	f.Add(golden(f, seed))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v, w T
		if P(&v).Parse(b) != nil {
			return
		}
		if err := P(&w).Parse(v.AppendTo(nil)); err != nil || v != w {
			t.Fatalf("%+v became %+v, %v", v, w, err)
		}
	})
}

// FuzzCommand reads arbitrary commands through every accessor and the builders.
func FuzzCommand(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, c := range capsules(f) {
		f.Add(c.cmd[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < CommandSize {
			return
		}
		c := CommandAt(b)
		_ = c.Name(0) + c.Name(1)
		for _, build := range []func(*Command) (Command, bool){rebuild, rebuildIO} {
			once, ok := build(c)
			if !ok {
				continue
			}
			if twice, _ := build(&once); once != twice {
				t.Fatalf("not stable:\n%x\n%x", once, twice)
			}
		}
	})
}
