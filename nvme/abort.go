package nvme

// SetAbort makes c an Abort of command cid on submission queue sqid.
func (c *Command) SetAbort(sqid, cid uint16) {
	c.start(OpAbort, 0)
	c.SetCDW(10, uint32(sqid)|uint32(cid)<<16)
}

// AbortSQID is the submission queue of the command to abort.
func (c *Command) AbortSQID() uint16 { return uint16(c.CDW10()) }

// AbortCID is the identifier of the command to abort.
func (c *Command) AbortCID() uint16 { return uint16(c.CDW10() >> 16) }

// AbortNotDone is bit 0 of the result of Abort: the command was not aborted.
const AbortNotDone = 1 << 0
