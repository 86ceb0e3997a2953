package nvme

// Fuse is bits 1:0 of the flags byte: whether a command is part of a fused operation.
type Fuse byte

// Values of Fuse.
const (
	FuseNone   Fuse = 0
	FuseFirst  Fuse = 1
	FuseSecond Fuse = 2
	fuseMask        = 3
)

// Fuse says whether the command is the first or second of a fused operation, or neither.
func (c *Command) Fuse() Fuse { return Fuse(c[offFlags] & fuseMask) }

// SetFuse makes the command the first or second of a fused operation, or neither.
func (c *Command) SetFuse(f Fuse) { c[offFlags] = c[offFlags]&^fuseMask | byte(f) }

// FUSESCompareWrite is bit 0 of FUSES of Identify Controller: Compare and Write may be fused.
const FUSESCompareWrite = 1 << 0
