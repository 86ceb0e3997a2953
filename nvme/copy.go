package nvme

import "encoding/binary"

// Copy (NVM command set, section "Copy command"), with source ranges of format 0.
const (
	CopyRangeSize = 32
	MaxCopyRanges = 256
	CopyFormat0   = 0
)

// Byte offsets of fields of Copy in the command, by which errors name them.
const (
	CopyOffSDLBA  = 40
	CopyOffNR     = 48
	CopyOffFormat = 49
)

// SetCopy makes c a Copy of n source ranges, 1 to MaxCopyRanges, to the blocks that start at sdlba.
func (c *Command) SetCopy(nsid uint32, sdlba uint64, n int, ctl IOControl) {
	c.start(OpCopy, nsid)
	c.SetCDW64(10, sdlba)
	c.SetCDW(12, uint32(uint8(n-1))|uint32(ctl)<<16)
}

// CopyRanges is the number of source ranges: NR + 1.
func (c *Command) CopyRanges() int { return int(c[CopyOffNR]) + 1 }

// CopyFormat is the descriptor format of the source ranges.
func (c *Command) CopyFormat() uint8 { return c[CopyOffFormat] & 0xf }

// CopyRange is a source range of format 0, without protection information.
type CopyRange struct {
	SLBA   uint64
	Blocks uint32 // 1 to MaxBlocks
}

// AppendTo appends the 32 bytes.
func (r CopyRange) AppendTo(b []byte) []byte {
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint64(b, r.SLBA)
	b = binary.LittleEndian.AppendUint16(b, uint16(r.Blocks-1))
	return append(b, make([]byte, CopyRangeSize-18)...)
}

// Parse reads the range at the front of b.
func (r *CopyRange) Parse(b []byte) error {
	if len(b) < CopyRangeSize {
		return shortError("Copy source range", len(b), CopyRangeSize)
	}
	r.SLBA = binary.LittleEndian.Uint64(b[8:])
	r.Blocks = uint32(binary.LittleEndian.Uint16(b[16:])) + 1
	return nil
}
