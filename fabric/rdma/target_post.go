package rdma

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// groupBytes bounds the WRITEs that are sent before the SENDs of their responses: long enough for four full trains of
// packets, each of 15 × 4 KiB, short enough that the first host of a batch isn't kept waiting.
const groupBytes = 4 * 15 * 4096

// enqueue adds r to the work to be posted, and posts it unless another goroutine is posting. It returns false if the
// connection has been reaped; then r still belongs to the caller.
func (c *targetConn) enqueue(r *targetRequest, state int) bool {
	c.mu.Lock()
	if c.reaped {
		c.mu.Unlock()
		return false
	}
	r.state = state
	c.ready = append(c.ready, r)
	if state == reqSending && r.recv >= 0 {
		c.recvs = append(c.recvs, r.recv)
		r.recv = -1
	}
	c.post()
	return true
}

// BeginRow makes the caller the one that posts, once for a row of answers; it returns false if somebody already does,
// or is about to.
func (c *targetConn) BeginRow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.mayPost()
	c.posting = c.posting || mine
	return mine
}

// EndRow posts what the row has collected.
func (c *targetConn) EndRow() {
	c.mu.Lock()
	c.postAll(&c.own)
}

// takeReady moves as much as the send queue has room for into the batch: READs and WRITEs in order, then the responses
// that don't follow their data directly. It reports whether there is anything to post. Called with mu held.
func (c *targetConn) takeReady() bool {
	c.batch.reset()
	c.takeRecvs()
	c.takeProbe()
	n, bytes := 0, 0
	for _, r := range c.ready {
		need := c.workRequests(r)
		if c.sqUsed+need > c.sqSize || bytes >= groupBytes {
			break
		}
		c.sqUsed += need
		r.posted = need
		if r.state == reqPulling {
			c.addReads(r)
		} else {
			bytes += c.addResponse(r)
		}
		n++
	}
	c.ready = c.ready[:copy(c.ready, c.ready[n:])]
	return len(c.batch.send)+len(c.batch.tail)+len(c.batch.recv) > 0
}

func (c *targetConn) takeRecvs() {
	for _, i := range c.recvs {
		first := len(c.batch.sges)
		c.batch.sges = append(c.batch.sges, partOf(c.commandSGE, i, nvme.CommandSize))
		if c.inCapsule > 0 {
			c.batch.sges = append(c.batch.sges, partOf(c.inlineSGE, i, c.inCapsule))
		}
		c.batch.recv = append(c.batch.recv, verbs.RecvWR{WRID: wrID(kindRecv, i), SGList: c.batch.since(first)})
	}
	c.recvs = c.recvs[:0]
}

// workRequests returns how many entries of the send queue r takes.
func (c *targetConn) workRequests(r *targetRequest) int {
	switch {
	case r.state == reqPulling:
		return (len(r.Data) + c.maxSGERd - 1) / c.maxSGERd
	case r.SendData:
		return (len(r.Data)+c.maxSGE-1)/c.maxSGE + 1
	}
	return 1
}

func (c *targetConn) addReads(r *targetRequest) {
	c.l.counters.Reads.Add(1)
	c.addData(r, verbs.WRRDMARead, c.maxSGERd)
	last := &c.batch.send[len(c.batch.send)-1]
	last.WRID = wrID(kindPull, r.index)
	last.Flags = verbs.SendSignaled
}

// addResponse adds the WRITEs of r's data and the SEND of its response to the batch: the SEND directly after the WRITEs
// if they can share a packet, else in the batch's tail. It returns the number of bytes of data.
func (c *targetConn) addResponse(r *targetRequest) (bytes int) {
	if r.SendData {
		c.l.counters.Writes.Add(1)
		bytes = c.addData(r, verbs.WRRDMAWrite, c.maxSGE)
	}
	copy(c.cqes[r.index*nvme.CompletionSize:], r.CQE[:])
	wr := verbs.SendWR{
		WRID:   wrID(kindResponse, r.index),
		Opcode: verbs.WRSend,
		Flags:  verbs.SendSignaled,
		SGList: c.batch.sge(partOf(c.cqeSGE, r.index, nvme.CompletionSize)),
	}
	if r.invalidate {
		c.l.counters.Invalidates.Add(1)
		wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, r.key
	}
	if bytes > 0 && bytes <= c.together {
		c.batch.send = append(c.batch.send, wr)
	} else {
		c.batch.tail = append(c.batch.tail, wr)
	}
	return bytes
}

// addData adds the work requests that move r.Data to or from the host's memory, each with at most maxSGE pieces of it.
func (c *targetConn) addData(r *targetRequest, op verbs.WROpcode, maxSGE int) (bytes int) {
	for segs := r.Data; len(segs) > 0; {
		n := min(len(segs), maxSGE)
		first := len(c.batch.sges)
		wr := verbs.SendWR{Opcode: op, RemoteAddr: r.addr + uint64(bytes), RKey: r.key}
		for i := range segs[:n] {
			c.batch.sges = append(c.batch.sges, c.segmentSGE(&segs[i]))
			bytes += len(segs[i].Bytes)
		}
		wr.SGList = c.batch.since(first)
		c.batch.send = append(c.batch.send, wr)
		segs = segs[n:]
	}
	return bytes
}

// segmentSGE describes a piece of payload. A piece that is not registered anywhere gets its length and no L_Key, which
// causes a local protection error: without the length it would be a transfer of nothing, which succeeds.
func (c *targetConn) segmentSGE(s *blockdev.Segment) verbs.SGE {
	nowhere := verbs.SGE{Length: uint32(len(s.Bytes))}
	if s.Region == nil {
		e, _, ok := c.l.memory.sge(c.dom, s.Bytes)
		if !ok {
			c.l.cfg.Log.Error("rdma: a volume shows memory that is in none of its regions")
			return nowhere
		}
		return e
	}
	mr, err := c.dom.region(s.Region)
	if err != nil {
		c.l.cfg.Log.Error("rdma: a volume's memory can't be registered", "err", err)
		return nowhere
	}
	return verbs.SGE{Addr: mr.Addr() + offsetIn(s.Region.Mem, s.Bytes), Length: uint32(len(s.Bytes)), LKey: mr.LKey()}
}
