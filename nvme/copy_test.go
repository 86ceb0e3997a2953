package nvme

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// TestCopyGolden: the fields of the command and its source ranges lie where the specification has them (NVM
// command set 1.0, figures "Copy – Command Dword 10" to "12" and "Copy – Source Range Entries
// Descriptor Format 0h").
func TestCopyGolden(t *testing.T) {
	var c Command
	c.SetCopy(3, 0x1122334455667788, 4, ControlFUA)
	want := unhex(t, "19400000"+"03000000"+"0000000000000000"+"0000000000000000"+"00000000000000000000000000000000"+
		"8877665544332211"+"03000040"+"000000000000000000000000")
	if !bytes.Equal(c[:], want) {
		t.Errorf("Copy is\n%x, want\n%x", c[:], want)
	}
	if c.CopyRanges() != 4 || c.CopyFormat() != 0 || !c.FUA() || c.SLBA() != 0x1122334455667788 {
		t.Errorf("%d ranges, format %d, FUA %v", c.CopyRanges(), c.CopyFormat(), c.FUA())
	}
	c[CopyOffFormat] = 0xf3
	if c.CopyFormat() != 3 {
		t.Errorf("format %d, want 3", c.CopyFormat())
	}
	b := CopyRange{SLBA: 0x0102030405060708, Blocks: 0x10000}.AppendTo(nil)
	if got, want := hex.EncodeToString(b), "0000000000000000"+"0807060504030201"+"ffff"+"0000000000000000000000000000"; got != want {
		t.Errorf("range %s, want %s", got, want)
	}
	var r CopyRange
	if err := r.Parse(b); err != nil || r.SLBA != 0x0102030405060708 || r.Blocks != 0x10000 {
		t.Errorf("range %+v, %v", r, err)
	}
	if r.Parse(b[:31]) == nil {
		t.Error("a short range was parsed")
	}
}

func TestFuse(t *testing.T) {
	var c Command
	c.SetIO(OpCompare, 1, 0, 1, 0)
	c.SetFuse(FuseFirst)
	if c.Flags() != 0x41 || c.Fuse() != FuseFirst {
		t.Errorf("flags %#x", c.Flags())
	}
	c.SetFuse(FuseSecond)
	if c.Flags() != 0x42 || c.Fuse() != FuseSecond {
		t.Errorf("flags %#x", c.Flags())
	}
}

func FuzzCopyRange(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(CopyRange{SLBA: 5, Blocks: 7}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again CopyRange
		if r.Parse(b) != nil {
			return
		}
		if err := again.Parse(r.AppendTo(nil)); err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}
