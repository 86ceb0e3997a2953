// Package inuse counts who uses something, so that whoever closes it can wait for them. Its methods may be called by
// any goroutine.
package inuse

import "sync"

// Count is of those who use something. The zero value counts nobody and is open.
type Count struct {
	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// Begin counts one more until End; false after Close, which doesn't wait for it then.
func (c *Count) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.users.Add(1)
	}
	return !c.closed
}

// End is for each Begin that returned true.
func (c *Count) End() { c.users.Done() }

// Close counts nobody any more, and waits until all have ended.
func (c *Count) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.users.Wait()
}

// Closed says whether Close was called.
func (c *Count) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}
