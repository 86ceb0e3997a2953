package simnet

import (
	"net"
	"os"
	"sync"
	"time"
)

// gate is what a goroutine waits at for events, or a deadline.
type gate struct {
	event   chan struct{} // of capacity 1: something has happened
	changed chan struct{} // of capacity 1: the deadline has
	closed  chan struct{}

	mu       sync.Mutex
	deadline time.Time
}

func newGate() gate {
	return gate{event: make(chan struct{}, 1), changed: make(chan struct{}, 1), closed: make(chan struct{})}
}

// when calls f, and again after each event, until f returns true. It forgets an event from before, as Go's poller does.
func (g *gate) when(f func() bool) error {
	if err := g.over(); err != nil {
		return err
	}
	select {
	case <-g.event:
	default:
	}
	for !f() {
		if err := g.wait(); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for an event.
func (g *gate) wait() error {
	for {
		if err := g.over(); err != nil {
			return err
		}
		var late <-chan time.Time
		if at := g.until(); !at.IsZero() {
			late = time.After(time.Until(at))
		}
		select {
		case <-g.event:
			return nil
		case <-g.changed:
		case <-late:
		case <-g.closed:
		}
	}
}

// over returns why nothing is waited for any more, or nil.
func (g *gate) over() error {
	select {
	case <-g.closed:
		return net.ErrClosed
	default:
	}
	if at := g.until(); !at.IsZero() && !time.Now().Before(at) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (g *gate) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deadline
}

func (g *gate) setDeadline(t time.Time) error {
	g.mu.Lock()
	g.deadline = t
	g.mu.Unlock()
	notify(g.changed)
	return nil
}

func (g *gate) signal() { notify(g.event) }

func (g *gate) close() { close(g.closed) }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
