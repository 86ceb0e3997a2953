package rdma

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func (c *targetConn) cmEvent(ev verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMDisconnected:
		c.fail(ErrDisconnected)
	case verbs.CMDeviceRemoval:
		c.fail(errUnplugged)
	case verbs.CMConnectError, verbs.CMUnreachable, verbs.CMRejected:
		c.fail(cmp.Or(ev.Err, ErrDisconnected))
	}
}

func (c *targetConn) qpEvent(ev verbs.AsyncEvent) {
	if ev.Type == verbs.EventQPFatal || ev.Type == verbs.EventQPAccess {
		c.fail(fmt.Errorf("%w: the queue pair went to the error state", ErrProtocol))
	}
}

// Disconnect implements target.Conn. Without an error the host has ended its queue, by a Disconnect command.
func (c *targetConn) Disconnect(err error) { c.fail(cmp.Or(err, ErrDisconnected)) }

// fail ends the connection because of err; only the first call counts. It may be called from anywhere, even while the
// connection is being set up: then accept sees it.
func (c *targetConn) fail(err error) {
	if c.doom(err) {
		go c.end()
	}
}

// doom records why the connection ends, the first time, and reports whether the caller has to end it.
func (c *targetConn) doom(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return false
	}
	c.dead = err
	c.stopped = c.stopped || errors.Is(err, ErrDisconnected) // the host wouldn't take it
	return c.live
}

// giveWay ends the connection of a host that has proved nothing.
func (c *targetConn) giveWay() {
	c.l.counters.GaveWay.Add(1)
	c.l.cfg.Log.Warn("rdma: connection closed: the host has proved nothing, and others need the memory of its buffers",
		"transport", "rdma", "remote", c.attr.Remote, "qid", c.attr.QID)
	c.fail(target.ErrGaveWay)
}

// reason returns why the connection ends, as the engine sees it: nil if either side closed it deliberately.
func (c *targetConn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(c.dead, target.ErrEndpointClosed):
		return target.ErrEndpointClosed
	case errors.Is(c.dead, ErrDisconnected), errors.Is(c.dead, ErrClosed):
		return nil
	}
	return c.dead
}

// end takes the connection down: the DREQ, which is up to the connection manager, destruction of the queue pair, after
// which none of our memory is accessed, and then the return of every request.
func (c *targetConn) end() {
	dead := fallen(c.dead, c.id, c.qp) // which nobody else changes any more
	c.mu.Lock()
	c.dead = dead
	c.mu.Unlock()
	c.queue.Closing(c.reason())
	_ = c.id.Disconnect()
	_ = c.id.Destroy()
	c.mu.Lock()
	c.ended = true
	c.unlock()
}

// reap gives back the requests that the queue pair had, or that wait for memory.
func (c *targetConn) reap() {
	c.mu.Lock()
	var pulling, sending []*targetRequest
	for _, r := range c.requests {
		switch r.state {
		case reqPulling:
			r.state = reqEngine
			pulling = append(pulling, r)
		case reqSending:
			sending = append(sending, r)
		}
	}
	c.ready = nil
	dead := c.dead
	c.mu.Unlock()
	for _, r := range pulling {
		r.Pulled(dead)
	}
	for _, r := range sending {
		c.finish(r)
	}
	c.stopWaiting()
	c.release()
}

// release drops one use; the last one closes the engine's queue and frees the buffers.
func (c *targetConn) release() {
	c.mu.Lock()
	c.releaseLocked()
}

// releaseLocked is release for a caller that holds mu, which it releases.
func (c *targetConn) releaseLocked() {
	c.inUse--
	last := c.inUse == 0
	dead := c.dead
	c.mu.Unlock()
	if !last {
		return
	}
	c.queue.Closed(c.reason())
	c.tearDown()
	c.l.counters.Connections.Add(-1)
	if !undisturbed(dead) && !target.Orderly(dead) {
		c.l.counters.Failed.Add(1)
	}
	c.l.cfg.Log.Debug("rdma: disconnected", "transport", "rdma", "remote", c.attr.Remote, "qid", c.attr.QID, "reason", dead)
	c.l.forget(c)
}
