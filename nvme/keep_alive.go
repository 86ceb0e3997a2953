package nvme

// SetKeepAlive makes c a Keep Alive.
func (c *Command) SetKeepAlive() { c.start(OpKeepAlive, 0) }
