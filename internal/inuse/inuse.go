// Package inuse counts the users of something, so that its owner can wait for them when closing it. Its methods may be
// called from any goroutine.
package inuse

import "sync"

// Count counts users. The zero value has none and is open.
type Count struct {
	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// Begin adds a user until End. After Close it returns false, and adds none.
func (c *Count) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.users.Add(1)
	}
	return !c.closed
}

// End must be called once for each Begin that returned true.
func (c *Count) End() { c.users.Done() }

// Close stops counting new users, and waits until all have ended.
func (c *Count) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.users.Wait()
}

// Closed reports whether Close was called.
func (c *Count) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}
