package nvme

import (
	"encoding/binary"
	"fmt"
)

// IOControl is bytes 50 and 51 of Read, Write, Compare, Write Zeroes and Verify: bits 31:16 of
// dword 12.
type IOControl uint16

// Bits of IOControl.
const (
	ControlDEAC   IOControl = 1 << 9    // Write Zeroes: deallocate
	ControlPRINFO IOControl = 0xf << 10 // protection information
	ControlPRACT  IOControl = 1 << 13   // in PRINFO: what is done with it
	ControlFUA    IOControl = 1 << 14   // force unit access
	ControlLR     IOControl = 1 << 15   // limited retry
)

// MaxBlocks is the most blocks that one command can name: NLB is 0-based with 16 bits.
const MaxBlocks = 1 << 16

// SetIO makes c a Read, Write, Compare, Write Zeroes, Verify or Write Uncorrectable of a number
// of blocks (1 to MaxBlocks) that start at slba. All other bytes of c become zero.
func (c *Command) SetIO(op Opcode, nsid uint32, slba uint64, blocks uint32, ctl IOControl) {
	c.start(op, nsid)
	c.SetCDW64(10, slba)
	c.SetCDW(12, uint32(uint16(blocks-1))|uint32(ctl)<<16)
}

// SetFlush makes c a Flush of one namespace, or of all with NSIDAll.
func (c *Command) SetFlush(nsid uint32) { c.start(OpFlush, nsid) }

// SLBA is the starting block.
func (c *Command) SLBA() uint64 { return c.CDW64(10) }

// Blocks is the number of blocks: NLB + 1.
func (c *Command) Blocks() uint32 { return uint32(binary.LittleEndian.Uint16(c[48:])) + 1 }

// BlockRange is a range of blocks of a namespace; the zero value is empty.
type BlockRange struct {
	SLBA   uint64
	Blocks uint32
}

// String returns the range in words: "block 7", "blocks 8 to 15".
func (r BlockRange) String() string {
	switch r.Blocks {
	case 0:
		return "no blocks"
	case 1:
		return fmt.Sprintf("block %d", r.SLBA)
	}
	return fmt.Sprintf("blocks %d to %d", r.SLBA, r.SLBA+uint64(r.Blocks)-1)
}

// Contains reports whether the block lba is in the range.
func (r BlockRange) Contains(lba uint64) bool { return lba >= r.SLBA && lba-r.SLBA < uint64(r.Blocks) }

// BlockRange is the range of blocks that an I/O command names by SLBA and NLB. It is empty for a command whose ranges are
// in its data, such as Dataset Management or Copy, or that names no blocks.
func (c *Command) BlockRange() BlockRange {
	switch c.Opcode() {
	case OpRead, OpWrite, OpCompare, OpWriteZeroes, OpVerify, OpWriteUncorrectable:
		return BlockRange{c.SLBA(), c.Blocks()}
	}
	return BlockRange{}
}

// IOControl returns the control bits of an I/O command.
func (c *Command) IOControl() IOControl { return IOControl(binary.LittleEndian.Uint16(c[50:])) }

// FUA is Force Unit Access.
func (c *Command) FUA() bool { return c.IOControl()&ControlFUA != 0 }
