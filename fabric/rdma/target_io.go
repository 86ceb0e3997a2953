package rdma

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// expect prefetches what a command will access while the commands before it are handled.
func (c *targetConn) expect(wc *verbs.WC) {
	kind, index := splitWRID(wc.WRID)
	if kind == kindRecv && wc.Status == verbs.WCSuccess {
		c.queue.Expect(nvme.CommandAt(c.commands[index*nvme.CommandSize:]))
	}
}

// completed handles a completion that was polled at now.
func (c *targetConn) completed(wc *verbs.WC, now int64) {
	kind, index := splitWRID(wc.WRID)
	if wc.Status != verbs.WCSuccess {
		if wc.Status != verbs.WCWRFlushErr {
			c.fail(c.connError("completion", &CompletionError{What: kindText[kind], Status: wc.Status}))
		}
		return // reap gives the request back
	}
	switch kind {
	case kindRecv:
		c.received(capsule{index, int(wc.ByteLen), now})
	case kindPull:
		if r := c.take(index, reqPulling, reqEngine); r != nil {
			r.Pulled(nil)
		}
	case kindResponse:
		if r := c.take(index, reqSending, reqSending); r != nil {
			c.finish(r)
		}
	case kindProbe:
		c.probed()
	}
}

// take moves a request whose work request completed to its next state. It returns nil if reap was faster, or if data
// arrived too late, when the connection is already ending.
func (c *targetConn) take(index, from, to int) *targetRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[index]
	if r.state != from || c.reaped || c.dead != nil && from == reqPulling {
		return nil // reap gives it back
	}
	c.sqUsed -= r.posted
	r.posted = 0
	r.state = to
	return r
}

// received starts a command.
func (c *targetConn) received(in capsule) {
	if in.bytes < nvme.CommandSize {
		c.fail(c.connError("receive", fmt.Errorf("%w: capsule of %d bytes, want at least %d",
			ErrProtocol, in.bytes, nvme.CommandSize)))
		return
	}
	c.mu.Lock()
	if c.dead != nil {
		c.mu.Unlock()
		return
	}
	if c.probing == probeSilent {
		c.probing = probeHeard
	}
	r := c.idleRequest()
	if r == nil {
		c.parked = append(c.parked, in)
		c.mu.Unlock()
		return
	}
	r.state = reqEngine
	c.inUse++
	c.mu.Unlock()
	c.begin(r, in)
}

func (c *targetConn) begin(r *targetRequest, in capsule) {
	c.l.counters.Capsules.Add(1)
	r.Cmd = *nvme.CommandAt(c.commands[in.index*nvme.CommandSize:])
	r.inline = nil
	if n := in.bytes - nvme.CommandSize; n > 0 {
		r.inline = c.inline[in.index*c.inCapsule:][:n]
	}
	r.recv, r.Arrived = in.index, in.arrived
	r.key, r.addr, r.invalidate = 0, 0, false
	c.queue.Submit(&r.Request)
}

// MapSGL interprets SGL1 (NVMe/RDMA, section "SGL mapping"): a keyed data block, or an offset into the capsule.
func (c *targetConn) MapSGL(tr *target.Request) (int, nvme.Status) {
	r := tr.Transport.(*targetRequest)
	sgl := r.Cmd.SGL1()
	switch sgl.Type() {
	case nvme.SGLKeyed, nvme.SGLKeyedInvalidate:
		n := int(sgl.KeyedLength())
		r.addr, r.key = sgl.Address(), sgl.Key()
		r.invalidate = sgl.Type() == nvme.SGLKeyedInvalidate && n > 0
		return n, nvme.StatusSuccess
	case nvme.SGLInCapsule:
		if r.Cmd.Direction() != nvme.HostToCtrl {
			return 0, nvme.StatusInvalidField | nvme.StatusDNR
		}
		data := r.inline
		off, n := sgl.Address(), uint64(sgl.Length())
		if off > uint64(len(data)) || n > uint64(len(data))-off {
			return 0, nvme.StatusSGLOffsetInvalid | nvme.StatusDNR
		}
		c.l.counters.InCapsule.Add(1)
		r.InCapsule = data[off : off+n]
		return int(n), nvme.StatusSuccess
	}
	return 0, nvme.StatusSGLTypeInvalid | nvme.StatusDNR
}

// Alloc gives the request data memory, or returns false and calls Resume later.
func (c *targetConn) Alloc(tr *target.Request, n int) bool {
	r := tr.Transport.(*targetRequest)
	if r.buf != nil {
		return true // granted
	}
	if b := c.share.Alloc(n, r); b != nil {
		r.setBuffer(b)
		return true
	}
	c.l.counters.MemoryWaits.Add(1)
	c.mu.Lock()
	reaped := c.reaped
	c.mu.Unlock()
	if reaped { // perhaps before r started to wait
		c.stopWaiting()
	}
	return false // r may have resumed already
}

// stopWaiting resumes the requests that wait for memory without any: the connection has ended, as the engine knows.
func (c *targetConn) stopWaiting() {
	for _, r := range c.share.Drop(func(r *targetRequest) bool { return r.conn == c }) {
		r.Resume()
	}
}

// granted resumes a request that has waited for memory.
func granted(r *targetRequest, b []byte) {
	r.setBuffer(b)
	r.Resume()
}

func (r *targetRequest) setBuffer(b []byte) {
	r.buf = b
	r.Data = append(r.Data[:0], blockdev.Segment{Bytes: b})
}

// Pull posts RDMA READs of the host's data.
func (c *targetConn) Pull(tr *target.Request) {
	r := tr.Transport.(*targetRequest)
	if !c.enqueue(r, reqPulling) {
		r.Pulled(ErrClosed)
	}
}

// Respond posts the response, after RDMA WRITEs of the data if there is any.
func (c *targetConn) Respond(tr *target.Request) {
	r := tr.Transport.(*targetRequest)
	if r.Cmd.Opcode() == nvme.OpFabrics && c.queue.Proved() {
		c.l.budget.proved(c)
	}
	if !c.enqueue(r, reqSending) {
		c.finish(r)
	}
}

// finish ends a command, of which nothing is needed any more.
func (c *targetConn) finish(r *targetRequest) {
	r.Sent()
	if r.buf != nil {
		b := r.buf
		r.buf = nil
		c.share.Free(b)
	}
	c.mu.Lock()
	r.Data = r.Data[:0]
	r.state = reqFree
	if len(c.parked) > 0 && c.dead == nil {
		in := c.parked[0]
		c.parked = c.parked[:copy(c.parked, c.parked[1:])]
		r.state = reqEngine
		c.mu.Unlock()
		c.begin(r, in)
		return
	}
	c.free = append(c.free, r)
	c.releaseLocked()
}
