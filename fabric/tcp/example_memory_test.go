package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// memoryNetwork is a socket.Network within one program. It has a single listener.
type memoryNetwork struct{ accept chan *memoryConn }

var memoryAddr = netip.MustParseAddrPort("192.0.2.1:4420")

func (n *memoryNetwork) Listen(netip.AddrPort) (socket.Listener, error) {
	n.accept = make(chan *memoryConn, 16)
	return n, nil
}

func (n *memoryNetwork) Dial(context.Context, netip.Addr, netip.AddrPort) (socket.Conn, error) {
	up, down := newPipe(), newPipe()
	select {
	case n.accept <- &memoryConn{in: up, out: down}:
		return &memoryConn{in: down, out: up}, nil
	default:
		return nil, syscall.ECONNREFUSED
	}
}

func (n *memoryNetwork) Accept() (socket.Conn, error) {
	if c, ok := <-n.accept; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (n *memoryNetwork) Addr() netip.AddrPort { return memoryAddr }
func (n *memoryNetwork) Close() error         { close(n.accept); return nil }

// pipe is one direction of a connection, and what its two ends wait for.
type pipe struct {
	mu           sync.Mutex
	changed      *sync.Cond
	version      int
	data         []byte
	ended, reset bool
	stop         [2]error // why an end doesn't wait any more
	timer        [2]*time.Timer
}

// The ends of a pipe.
const (
	reader = iota
	writer
)

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) change(f func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.version++
	p.changed.Broadcast()
	return nil
}

// when calls f after each change until it returns true.
func (p *pipe) when(end int, f func() bool) error {
	for {
		p.mu.Lock()
		seen, err := p.version, p.stop[end]
		p.mu.Unlock()
		if err != nil || f() {
			return err
		}
		p.mu.Lock()
		for p.version == seen {
			p.changed.Wait()
		}
		p.mu.Unlock()
	}
}

func (p *pipe) deadline(end int, t time.Time) error {
	return p.change(func() {
		if p.timer[end] != nil {
			p.timer[end].Stop()
		}
		if errors.Is(p.stop[end], os.ErrDeadlineExceeded) {
			p.stop[end] = nil
		}
		if !t.IsZero() {
			p.timer[end] = time.AfterFunc(time.Until(t), func() { _ = p.close(end, os.ErrDeadlineExceeded) })
		}
	})
}

// close stops an end because of err, unless it has stopped.
func (p *pipe) close(end int, err error) error {
	return p.change(func() {
		if p.stop[end] == nil {
			p.stop[end] = err
		}
		p.ended = p.ended || errors.Is(err, net.ErrClosed)
	})
}

// memoryConn is one end of a connection.
type memoryConn struct{ in, out *pipe }

func (c *memoryConn) LocalAddr() netip.AddrPort          { return memoryAddr }
func (c *memoryConn) RemoteAddr() netip.AddrPort         { return memoryAddr }
func (c *memoryConn) RTT() time.Duration                 { return 0 }
func (c *memoryConn) WhenReadable(f func() bool) error   { return c.in.when(reader, f) }
func (c *memoryConn) WhenWritable(f func() bool) error   { return c.out.when(writer, f) }
func (c *memoryConn) SetReadDeadline(t time.Time) error  { return c.in.deadline(reader, t) }
func (c *memoryConn) SetWriteDeadline(t time.Time) error { return c.out.deadline(writer, t) }
func (c *memoryConn) CloseRead() error                   { return c.in.change(func() { c.in.ended = true }) }
func (c *memoryConn) CloseWrite() error                  { return c.out.change(func() { c.out.ended = true }) }

func (c *memoryConn) Close() error {
	_ = c.out.close(writer, net.ErrClosed)
	return c.in.close(reader, net.ErrClosed)
}

func (c *memoryConn) Abort() error {
	_ = c.out.change(func() { c.out.reset = true })
	_ = c.in.change(func() { c.in.reset = true })
	return c.Close()
}

func (c *memoryConn) Ended() bool {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.in.ended || c.in.reset
}

// Recv doesn't say what is left.
func (c *memoryConn) Recv(parts []unix.Iovec, _ bool) (n, left int, errno unix.Errno) {
	p := c.in
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range parts {
		m := copy(unsafe.Slice(v.Base, v.Len), p.data)
		p.data = p.data[m:]
		n += m
	}
	switch {
	case n > 0:
		p.version++ // there is room
		p.changed.Broadcast()
	case p.reset:
		errno = unix.ECONNRESET
	case !p.ended:
		errno = unix.EAGAIN
	}
	return n, -1, errno
}

// Send takes what fits within 256 KiB.
func (c *memoryConn) Send(parts []unix.Iovec, _, _ bool) (n int, errno unix.Errno) {
	p := c.out
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.reset {
		return 0, unix.EPIPE
	}
	for _, v := range parts {
		b := unsafe.Slice(v.Base, v.Len)
		b = b[:min(len(b), 256<<10-len(p.data))]
		p.data = append(p.data, b...)
		n += len(b)
	}
	if n == 0 {
		return 0, unix.EAGAIN
	}
	p.version++
	p.changed.Broadcast()
	return n, 0
}

// useMemoryNetwork writes to a namespace, leaves it alone for some time and reads.
func useMemoryNetwork(ctx context.Context, idle time.Duration) error {
	tgt, volume := exportMemory()
	network := &memoryNetwork{}
	listener, err := tcp.ListenTarget(memoryAddr, tgt, tcp.TargetConfig{Network: network})
	if err != nil {
		return err
	}
	transport, err := tcp.NewTransport(tcp.HostConfig{Network: network})
	if err != nil {
		return err
	}
	ctrl, err := host.Connect(ctx, host.Config{Transport: transport, Remote: listener.Addr(), SubNQN: exampleNQN})
	if err != nil {
		return err
	}
	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		return err
	}
	buf := make([]byte, ns.Size())
	if _, err := ns.WriteAt(ctx, buf, 0); err != nil {
		return err
	}
	time.Sleep(idle)
	if _, err := ns.ReadAt(ctx, buf, 0); err != nil {
		return err
	}
	return errors.Join(ctrl.Close(), transport.Close(), listener.Close(), tgt.Close(ctx), volume.Close())
}

// Target and host in one program, without sockets: a program's own tests can use them inside synctest.Test, in virtual
// time, and let an hour pass.
func Example_memory() {
	fmt.Println(useMemoryNetwork(context.Background(), 0))
	// Output: <nil>
}
