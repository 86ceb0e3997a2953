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

// Fuse is the part that the command has in a fused operation.
func (c *Command) Fuse() Fuse { return Fuse(c[offFlags] & fuseMask) }

// SetFuse sets the part that the command has in a fused operation.
func (c *Command) SetFuse(f Fuse) { c[offFlags] = c[offFlags]&^fuseMask | byte(f) }

// FUSESCompareWrite is bit 0 of FUSES of Identify Controller: Compare and Write may be fused.
const FUSESCompareWrite = 1 << 0
