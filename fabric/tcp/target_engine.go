package tcp

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Attr implements target.Conn.
func (c *targetConn) Attr() target.ConnAttr { return c.attr }

// MapSGL implements target.Conn.
func (c *targetConn) MapSGL(tr *target.Request) (int, nvme.Status) {
	return tr.Transport.(*request).mapSGL()
}

// Alloc implements target.Conn.
func (c *targetConn) Alloc(tr *target.Request, n int) bool {
	r := tr.Transport.(*request)
	switch {
	case r.memory != nil: // granted before it was resumed
	case c.ending.Load():
		// Nothing will be sent or received any more: the engine only needs some memory to continue
		// with, and the pool is for live connections.
		tr.Data = append(tr.Data[:0], segment(make([]byte, n)))
		return true
	default:
		b := c.share.Alloc(n, r)
		if b == nil {
			c.l.counters.MemoryWaits.Add(1)
			if c.ending.Load() { // perhaps since before r waited
				c.stopWaiting()
			}
			return false // granted may have resumed r already
		}
		r.memory = b
	}
	tr.Data = append(tr.Data[:0], segment(r.memory[:n]))
	return true
}

// Pull implements target.Conn: it sends one R2T for all the data.
func (c *targetConn) Pull(tr *target.Request) {
	r := tr.Transport.(*request)
	r.total, r.received, r.seg, r.off = tr.Len(), 0, 0, 0
	r.checks.Store(0)
	r.pulling.Store(pullPosted)
	c.asksFor()
	if c.ending.Load() {
		c.failPull(r)
		return
	}
	c.w.post((*readyToTransfer)(r), 0)
}

// failPull ends a Pull whose data will not come.
func (c *targetConn) failPull(r *request) {
	if r.pulling.Swap(pullNone) != pullNone {
		c.pulls.Add(-1)
		r.Pulled(ErrClosed)
	}
}

// BeginRow implements target.Gatherer.
func (c *targetConn) BeginRow() bool { return c.w.beginRow() }

// EndRow implements target.Gatherer.
func (c *targetConn) EndRow() { c.w.endRow() }

// Respond implements target.Conn.
func (c *targetConn) Respond(tr *target.Request) {
	r := tr.Transport.(*request)
	c.responding.Add(1)
	if !c.connected.Load() {
		c.learn(r)
	}
	size := 0
	if tr.SendData {
		size = tr.Len()
	}
	c.w.post((*response)(r), size)
}

// sqhdWithoutFlow is SQHD if SQ flow control is disabled: that is how the controller grants what CATTR asks for.
const sqhdWithoutFlow = 0xffff

// learn records what a Connect says about the queue, and whether it succeeded.
func (c *targetConn) learn(r *request) {
	if r.Cmd.Opcode() != nvme.OpFabrics || r.Cmd.FCType() != nvme.FCConnect {
		return
	}
	if r.CQE.Status() != nvme.StatusSuccess {
		c.refused.Store(true)
		return
	}
	c.ioQueue = r.Cmd.ConnectQID() != 0
	c.noFlow = r.CQE.SQHD() == sqhdWithoutFlow
	c.connected.Store(true)
}

// segment describes memory that belongs to no volume.
func segment(b []byte) blockdev.Segment { return blockdev.Segment{Bytes: b} }
