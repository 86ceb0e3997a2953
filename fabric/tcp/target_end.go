package tcp

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Disconnect implements target.Conn.
func (c *targetConn) Disconnect(err error) {
	if err == nil { // the engine gives back what the host has sent after its Disconnect command
		c.w.kill(ErrClosed)
	}
	if c.ask(err) {
		c.rouse()
	}
}

// ask makes the connection end because of err, once its reader is roused. It returns false if it was asked before.
func (c *targetConn) ask(err error) bool { return c.asked.CompareAndSwap(nil, &err) }

// rouse wakes the reader, which does the rest, even if it waits for a free slot.
func (c *targetConn) rouse() {
	_ = c.conn.CloseRead()
	c.mu.Lock()
	c.freed.Broadcast()
	c.mu.Unlock()
}

// end takes the connection down because of err, in the reader's goroutine.
func (c *targetConn) end(err error) {
	c.r.tally.publish(&c.l.counters.In)
	fault, err := c.reason(err)
	switch {
	case fault != nil:
		c.w.limit(lingerTime)
		c.w.seal(newPlain(c.r.termReq(fault)))
	case errors.Is(err, target.ErrEndpointClosed): // queued responses still go out
		c.w.limit(lingerTime)
	default:
		c.w.kill(ErrClosed)
		c.w.limit(0)
	}
	c.ending.Store(true)
	c.watch.Stop()
	c.queue.Closing(err)
	c.abandon()
	c.w.settle()
	if fault != nil {
		linger(c.conn)
	}
	c.w.kill(ErrClosed)
	_ = c.conn.CloseWrite()
	_ = c.conn.CloseRead()
	c.mu.Lock()
	for c.busy > 0 {
		c.freed.Wait()
	}
	c.mu.Unlock()
	c.w.settle()
	c.w.close()
	_ = c.conn.Close()
	_ = unix.Munmap(c.capsule)
	c.l.forget(c)
	c.report(err)
	c.l.gone()
}

// reason converts the error that ended the reader to the one that the engine and the user see, which
// is nil after an orderly end. It also returns the fault of the peer, if that is what ended the
// connection and the peer is to be told.
func (c *targetConn) reason(err error) (*pdu.FieldError, error) {
	peer := c.attr.Remote
	var fault *pdu.FieldError
	if asked := c.asked.Load(); asked != nil {
		return nil, *asked
	}
	switch {
	case errors.As(err, &fault):
		return c.r.protocolError(fault, peer, &c.l.counters)
	case errors.Is(err, io.EOF):
		if c.w.sendError() == nil && (c.connected.Load() || c.refused.Load()) {
			return nil, nil
		}
		err = ErrPeerClosed
	}
	if we := c.w.sendError(); we != nil {
		return nil, &ConnError{Stage: "send", Peer: peer, Err: we}
	}
	if errors.Is(err, ErrTerminated) {
		return nil, err
	}
	return nil, &ConnError{Stage: "receive", Peer: peer, Err: err}
}

// abandon returns to the engine the requests that wait for data or memory.
func (c *targetConn) abandon() {
	for _, r := range c.slots {
		c.failPull(r)
	}
	if r := c.inline; r != nil { // the engine never saw it
		c.inline = nil
		c.responding.Add(1)
		c.release(r)
	}
	c.stopWaiting()
}

// stopWaiting makes the requests that wait for memory continue without memory of the pool.
func (c *targetConn) stopWaiting() {
	for _, r := range c.share.Drop(func(r *request) bool { return r.conn == c }) {
		r.Resume()
	}
}

// report tells the engine and the listener's owner.
func (c *targetConn) report(err error) {
	if !c.r.rules.Ready {
		c.l.counters.Rejected.Add(1)
	}
	c.queue.Closed(err)
	if err != nil {
		c.l.report(c.attr.Remote, err)
	}
}
