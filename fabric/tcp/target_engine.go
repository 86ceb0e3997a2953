package tcp

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Attr is target.Conn's.
func (c *targetConn) Attr() target.ConnAttr { return c.attr }

// MapSGL is target.Conn's.
func (c *targetConn) MapSGL(tr *target.Request) (int, nvme.Status) {
	return tr.Transport.(*request).mapSGL()
}

// Alloc is target.Conn's.
func (c *targetConn) Alloc(tr *target.Request, n int) bool {
	r := tr.Transport.(*request)
	switch {
	case r.memory != nil: // Resume brought it
	case c.ending.Load():
		// Nothing will be sent or received any more; the engine just needs somewhere to go on
		// with, and the pool is for connections that live.
		tr.Data = append(tr.Data[:0], segment(make([]byte, n)))
		return true
	default:
		b := c.share.Alloc(n, r)
		if b == nil {
			c.l.counters.MemoryWaits.Add(1)
			if c.ending.Load() { // perhaps before r waited
				c.stopWaiting()
			}
			return false // granted may have gone on with it already
		}
		r.memory = b
	}
	tr.Data = append(tr.Data[:0], segment(r.memory[:n]))
	return true
}

// Pull is target.Conn's: one R2T for all the data.
func (c *targetConn) Pull(tr *target.Request) {
	r := tr.Transport.(*request)
	r.total, r.received, r.seg, r.off = tr.Len(), 0, 0, 0
	r.checks.Store(0)
	r.pulling.Store(true)
	c.asksFor()
	if c.ending.Load() {
		c.failPull(r)
		return
	}
	c.w.post((*readyToTransfer)(r), 0)
}

// failPull ends a Pull whose data will not come.
func (c *targetConn) failPull(r *request) {
	if r.pulling.CompareAndSwap(true, false) {
		c.pulls.Add(-1)
		r.Pulled(ErrClosed)
	}
}

// BeginRow is target.Gatherer's.
func (c *targetConn) BeginRow() bool { return c.w.beginRow() }

// EndRow is target.Gatherer's.
func (c *targetConn) EndRow() { c.w.endRow() }

// Respond is target.Conn's.
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

// sqhdWithoutFlow is SQHD where SQ flow control is disabled: how the controller grants it.
const sqhdWithoutFlow = 0xffff

// learn notes what a successful Connect says about the queue.
func (c *targetConn) learn(r *request) {
	if r.Cmd.Opcode() != nvme.OpFabrics || r.Cmd.FCType() != nvme.FCConnect ||
		r.CQE.Status() != nvme.StatusSuccess {
		return
	}
	c.ioQueue = r.Cmd.ConnectQID() != 0
	c.noFlow = r.Cmd.ConnectCATTR()&nvme.CATTRNoSQFlowControl != 0 && r.CQE.SQHD() == sqhdWithoutFlow
	c.connected.Store(true)
	_ = c.tcp.SetReadDeadline(time.Time{})
}
