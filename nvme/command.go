package nvme

import "encoding/binary"

// Sizes fixed by the NVMe base specification, section 3.3.3 (queue entries) and NVMe over
// Fabrics (capsules).
const (
	CommandSize    = 64 // one submission queue entry (SQE)
	CompletionSize = 16 // one completion queue entry (CQE)
)

// Command is one submission queue entry as it lies on the wire, little-endian.
// It is a view with named fields, so that a capsule can be parsed in the receive buffer
// and built in the send buffer without a copy.
//
// Accessors have the names of their fields. Flags is byte 1, with FUSE in bits 1:0 and PSDT in 7:6; FCType is that of a
// Fabrics command, which has it in the place of the first byte of NSID; CDW(n) is dword n, 0 to 15.
type Command [CommandSize]byte

// Byte offsets of the fields that all commands share (NVMe base, figure "Common Command Format").
const (
	offOpcode = 0
	offFlags  = 1
	offCID    = 2
	offNSID   = 4
	offFCType = 4
	offSGL1   = 24
	offCDW10  = 40
)

// CommandAt views the first CommandSize bytes of b as a Command; b must be at least that long.
func CommandAt(b []byte) *Command { return (*Command)(b) }

func (c *Command) Opcode() Opcode     { return Opcode(c[offOpcode]) }
func (c *Command) SetOpcode(o Opcode) { c[offOpcode] = byte(o) }
func (c *Command) Flags() byte        { return c[offFlags] }
func (c *Command) SetFlags(f byte)    { c[offFlags] = f }
func (c *Command) CID() uint16        { return binary.LittleEndian.Uint16(c[offCID:]) }
func (c *Command) SetCID(v uint16)    { binary.LittleEndian.PutUint16(c[offCID:], v) }
func (c *Command) NSID() uint32       { return binary.LittleEndian.Uint32(c[offNSID:]) }
func (c *Command) SetNSID(v uint32)   { binary.LittleEndian.PutUint32(c[offNSID:], v) }
func (c *Command) FCType() FCType     { return FCType(c[offFCType]) }
func (c *Command) SetFCType(t FCType) { c[offFCType] = byte(t) }
func (c *Command) SGL1() *SGL         { return (*SGL)(c[offSGL1:]) }
func (c *Command) CDW10() uint32      { return c.CDW(10) }
func (c *Command) CDW(n int) uint32   { return binary.LittleEndian.Uint32(c[4*n:]) }
func (c *Command) SetCDW(n int, v uint32) {
	binary.LittleEndian.PutUint32(c[4*n:], v)
}

// CDW64 reads dwords n and n+1 as one 64-bit field (SLBA is CDW64(10)).
func (c *Command) CDW64(n int) uint64 { return binary.LittleEndian.Uint64(c[4*n:]) }

// SetCDW64 writes dwords n and n+1 as one 64-bit field.
func (c *Command) SetCDW64(n int, v uint64) { binary.LittleEndian.PutUint64(c[4*n:], v) }

// Reset zeroes every field.
func (c *Command) Reset() { *c = Command{} }

// start zeroes c and sets what all commands of this package share.
func (c *Command) start(op Opcode, nsid uint32) {
	c.Reset()
	c.SetOpcode(op)
	c.SetFlags(FlagsSGL)
	c.SetNSID(nsid)
}

// startFabrics is start for a Fabrics command.
func (c *Command) startFabrics(t FCType) {
	c.start(OpFabrics, 0)
	c.SetFCType(t)
}

// PSDT is flags bits 7:6: PRP or SGL for Data Transfer.
func (c *Command) PSDT() byte { return c[offFlags] >> 6 }

// FlagsSGL is the value of the flags byte that Fabrics requires: PSDT 01b, not fused.
const FlagsSGL = 0x40

// NSID values with a special meaning.
const (
	NSIDNone uint32 = 0
	NSIDAll  uint32 = 0xffffffff // broadcast
)

// Direction says which way the data of a command moves.
type Direction byte

// Directions, in the encoding of opcode bits 1:0.
const (
	NoData     Direction = 0
	HostToCtrl Direction = 1
	CtrlToHost Direction = 2
	BothWays   Direction = 3
)

// Direction reads bits 1:0 of the opcode, or of the Fabrics command type.
func (c *Command) Direction() Direction {
	if c.Opcode() == OpFabrics {
		return Direction(c[offFCType] & 3)
	}
	return Direction(c[offOpcode] & 3)
}
