package nvme

import "encoding/binary"

// Completion is one completion queue entry as it lies on the wire, little-endian.
//
// Accessors have the names of their fields. Result is dwords 0 and 1, and DW0 the first of them. Fabrics doesn't use the
// SQ Identifier, which some targets set nevertheless, nor the Phase Tag, which Status excludes and SetStatus clears.
type Completion [CompletionSize]byte

// CompletionAt views the first CompletionSize bytes of b as a Completion.
func CompletionAt(b []byte) *Completion { return (*Completion)(b) }

func (c *Completion) Result() uint64     { return binary.LittleEndian.Uint64(c[0:]) }
func (c *Completion) SetResult(v uint64) { binary.LittleEndian.PutUint64(c[0:], v) }
func (c *Completion) DW0() uint32        { return binary.LittleEndian.Uint32(c[0:]) }
func (c *Completion) SetDW0(v uint32)    { binary.LittleEndian.PutUint32(c[0:], v) }
func (c *Completion) SQHD() uint16       { return binary.LittleEndian.Uint16(c[8:]) }
func (c *Completion) SetSQHD(v uint16)   { binary.LittleEndian.PutUint16(c[8:], v) }
func (c *Completion) SQID() uint16       { return binary.LittleEndian.Uint16(c[10:]) }
func (c *Completion) CID() uint16        { return binary.LittleEndian.Uint16(c[12:]) }
func (c *Completion) SetCID(v uint16)    { binary.LittleEndian.PutUint16(c[12:], v) }
func (c *Completion) Status() Status     { return Status(binary.LittleEndian.Uint16(c[14:]) >> 1) }
func (c *Completion) SetStatus(s Status) { binary.LittleEndian.PutUint16(c[14:], uint16(s)<<1) }

// Reset zeroes every field.
func (c *Completion) Reset() { *c = Completion{} }
