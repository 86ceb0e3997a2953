package nvme

// OFCSDisconnect is the bit of Identify Controller OFCS that says Disconnect is supported.
const OFCSDisconnect = 1 << 0

// SetDisconnect makes c a Disconnect, which ends the I/O queue that carries it.
func (c *Command) SetDisconnect() { c.startFabrics(FCDisconnect) }
