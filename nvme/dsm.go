package nvme

import "encoding/binary"

// Dataset Management (NVM command set, section "Dataset Management command").
const (
	DSMRangeSize = 16
	MaxDSMRanges = 256
	// DSMDataSize is the size of MaxDSMRanges ranges in bytes, which Linux transfers whatever NR says.
	DSMDataSize = MaxDSMRanges * DSMRangeSize
)

// DSMAttributes is dword 11 of Dataset Management.
type DSMAttributes uint32

// Bits of DSMAttributes.
const (
	DSMIntegralRead  DSMAttributes = 1 << 0
	DSMIntegralWrite DSMAttributes = 1 << 1
	DSMDeallocate    DSMAttributes = 1 << 2
)

// SetDSM makes c a Dataset Management command of n ranges, 1 to MaxDSMRanges.
func (c *Command) SetDSM(nsid uint32, n int, a DSMAttributes) {
	c.start(OpDSM, nsid)
	c.SetCDW(10, uint32(uint8(n-1)))
	c.SetCDW(11, uint32(a))
}

// DSMRanges is the number of ranges: NR + 1.
func (c *Command) DSMRanges() int { return int(c[offCDW10]) + 1 }

// DSMAttributes is dword 11.
func (c *Command) DSMAttributes() DSMAttributes { return DSMAttributes(c.CDW(11)) }

// DSMRange is one range of Dataset Management.
type DSMRange struct {
	Attributes uint32 // context attributes, a hint
	Blocks     uint32 // not 0-based
	SLBA       uint64
}

// AppendTo appends the 16 bytes.
func (r DSMRange) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Attributes)
	b = binary.LittleEndian.AppendUint32(b, r.Blocks)
	return binary.LittleEndian.AppendUint64(b, r.SLBA)
}

// Parse reads the range at the front of b.
func (r *DSMRange) Parse(b []byte) error {
	if len(b) < DSMRangeSize {
		return shortError("Dataset Management range", len(b), DSMRangeSize)
	}
	r.Attributes = binary.LittleEndian.Uint32(b)
	r.Blocks = binary.LittleEndian.Uint32(b[4:])
	r.SLBA = binary.LittleEndian.Uint64(b[8:])
	return nil
}
