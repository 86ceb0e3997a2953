package tests

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// cutter forwards TCP connections to a target, until it cuts them, as a broken path does.
type cutter struct {
	addr    netip.AddrPort
	mu      sync.Mutex
	open    map[net.Conn]bool
	running sync.WaitGroup
}

// newCutter listens on a port of its own, until the test ends.
func newCutter(t testing.TB, to netip.AddrPort) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().(*net.TCPAddr).AddrPort(), open: map[net.Conn]bool{}}
	c.running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			on, err := net.Dial("tcp", to.String())
			if err != nil {
				from.Close()
				continue
			}
			c.join(from, on)
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.cut()
		c.running.Wait()
	})
	return c
}

// join forwards what either side sends, until one ends.
func (c *cutter) join(a, b net.Conn) {
	c.mu.Lock()
	c.open[a], c.open[b] = true, true
	c.mu.Unlock()
	end := sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, x := range []net.Conn{a, b} {
			delete(c.open, x)
			x.Close()
		}
	})
	for _, x := range [][2]net.Conn{{a, b}, {b, a}} {
		c.running.Go(func() {
			_, _ = io.Copy(x[0], x[1])
			end()
		})
	}
}

// cut closes every connection.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.open {
		x.Close()
	}
}
