package roce

import "github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"

// cq is a completion queue: a ring guarded by the device's lock, which grows with the number of completions in it.
type cq struct {
	d       *Device
	handler func(verbs.CQ)
	ring    []verbs.WC
	head    int // index of the oldest
	count   int
	limit   int // maximum number of entries
	armed   bool
	fired   bool // in Device.calls
	called  bool // the handler is running
	refs    int  // queue pairs
	freed   bool
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(cqe int, handler func(verbs.CQ)) (verbs.CQ, error) {
	if cqe < 1 || cqe > maxCQE {
		return nil, d.failf("create CQ", verbs.ErrInvalid, "%d entries: want 1 to %d", cqe, maxCQE)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.fail("create CQ", verbs.ErrClosed)
	}
	return &cq{d: d, handler: handler, ring: make([]verbs.WC, min(cqe, fewEntries)), limit: cqe}, nil
}

// Poll removes completions and stores them in wc.
func (c *cq) Poll(wc []verbs.WC) int {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	n := min(len(wc), c.count)
	for i := range n {
		wc[i] = c.ring[c.head]
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	if c.count -= n; c.count == 0 {
		c.head = 0 // the most recently used entries are in the caches
	}
	return n
}

// ReqNotify arms the queue.
func (c *cq) ReqNotify() (missed bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.armed = true
	return c.count > 0
}

// Destroy frees the queue. A handler that is running may still be running when it returns; no new call begins.
func (c *cq) Destroy() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	switch {
	case c.freed || c.d.closed:
		return c.d.fail("destroy CQ", verbs.ErrClosed)
	case c.refs > 0:
		return c.d.failf("destroy CQ", verbs.ErrBusy, "%d queue pairs use it", c.refs)
	}
	c.freed = true
	return nil
}

// push adds a completion and reports whether there was room. The device's lock is held.
func (c *cq) push(wc *verbs.WC) bool {
	if c.count == c.limit {
		c.d.counters.inc(CQOverrun)
		return false
	}
	if c.count == len(c.ring) {
		c.grow()
	}
	i := c.head + c.count
	if i >= len(c.ring) {
		i -= len(c.ring)
	}
	c.ring[i] = *wc
	c.count++
	if c.armed && c.handler != nil {
		c.armed = false
		if !c.fired {
			c.fired = true
			c.d.calls = append(c.d.calls, call{cq: c})
		}
	}
	return true
}

// fewEntries is the initial size of a ring.
const fewEntries = 64

// grow doubles the size of a full ring.
func (c *cq) grow() {
	ring := make([]verbs.WC, min(2*len(c.ring), c.limit))
	n := copy(ring, c.ring[c.head:])
	copy(ring[n:], c.ring[:c.head])
	c.ring, c.head = ring, 0
}

// clean removes the completions of a queue pair that is destroyed.
func (c *cq) clean(qpn uint32) {
	kept := 0
	for i := range c.count {
		wc := &c.ring[(c.head+i)%len(c.ring)]
		if wc.QPNum != qpn {
			c.ring[(c.head+kept)%len(c.ring)] = *wc
			kept++
		}
	}
	c.count = kept
}
