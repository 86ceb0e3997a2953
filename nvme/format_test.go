package nvme

import (
	"bytes"
	"testing"
)

// TestFormat: fields lie where the specification has them (NVMe base 2.0, figure "Format NVM –
// Command Dword 10").
func TestFormat(t *testing.T) {
	var c Command
	c.SetFormat(5, 0x25, EraseUser)
	if want := unhex(t, "80400000"+"05000000"); !bytes.Equal(c[:8], want) {
		t.Errorf("dwords 0 and 1 %x, want %x", c[:8], want)
	}
	if want := unhex(t, "05220000"); !bytes.Equal(c[40:44], want) {
		t.Errorf("dword 10 %x, want %x", c[40:44], want)
	}
	if c.FormatLBAF() != 0x25 || c.FormatSES() != EraseUser || c.FormatPI() != 0 {
		t.Errorf("LBAF %#x, SES %d, PI %d", c.FormatLBAF(), c.FormatSES(), c.FormatPI())
	}
	c.SetCDW(10, 3<<5)
	if c.FormatPI() != 3 {
		t.Errorf("PI %d", c.FormatPI())
	}
}
