package udp

import (
	"errors"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// conn is a blocking, unconnected UDP socket.
type conn struct {
	fd    int
	local netip.AddrPort
	scope uint32 // interface index of a link-local address, else 0
	mtu   int
	cfg   Config

	rcvbuf   int
	segments atomic.Bool // UDP_SEGMENT may be used …
	refused  refusals    // … except to these

	// uses counts the calls that are inside the kernel with fd. Close adds closing to it, and
	// the call that brings it to exactly closing closes the descriptor, so that its number
	// can't be reused while another call is using it.
	uses      atomic.Int64
	closeOnce atomic.Bool
	fdOnce    atomic.Bool
	done      chan struct{}
	closeErr  error

	counters Counters
	rx       receiver
	poll     time.Duration // the longest to poll before sleeping; 0 never polls
	poller   busypoll.Poller
	waited   time.Time // when the last Recv returned
	tx       sender

	attendant *duty.Attendant // stands for the caller of Recv; may be nil
	near      *neighbors      // nil where memory isn't shared
}

const closing = math.MinInt64 / 2

var (
	_ Conn    = (*conn)(nil)
	_ Counted = (*conn)(nil)

	_ Attended = (*conn)(nil)
	_ Sharing  = (*conn)(nil)
)

// Listen opens a socket on addr, which must be a single address of this host; port 0 lets the
// kernel choose. Errors are of type *OpError; errors.Is matches ErrInUse and ErrNotLocal.
func Listen(addr netip.AddrPort, cfg Config) (Conn, error) {
	c, err := newConn(addr, cfg, false)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// newConn is Listen. A shared socket lets others of this user, if they are shared too, have the same port.
func newConn(addr netip.AddrPort, cfg Config, shared bool) (*conn, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if err := cfg.Validate(); err != nil {
		return nil, &OpError{Op: "listen", Addr: addr, Err: err}
	}
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() || addr.Addr().IsMulticast() {
		return nil, &OpError{Op: "listen", Addr: addr, Kind: ErrNotLocal,
			Remedy: "name one address of this host: it is part of every packet's checksum"}
	}
	scope, err := scopeOf(addr.Addr().Zone())
	var errno unix.Errno
	switch {
	case errors.As(err, &errno): // there may be such an interface
		return nil, interfaceError(addr.Addr(), err)
	case err != nil:
		return nil, &OpError{Op: "listen", Addr: addr, Kind: ErrNotLocal, Err: err,
			Remedy: "what follows % must be the name or number of an interface that `ip link` shows"}
	}
	c := &conn{fd: -1, scope: scope, cfg: cfg, poll: busypoll.Longest(cfg.BusyPoll), done: make(chan struct{})}
	if err := c.open(addr, shared); err != nil {
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
		return nil, listenError(addr, err)
	}
	c.rx.init()
	if cfg.ShareMemory {
		if c.near, err = newNeighbors(c.local, c.scope); err != nil {
			unix.Close(c.fd)
			return nil, shareError(c.local, err)
		}
	}
	standstill.Enter()
	return c, nil
}

func (c *conn) LocalAddr() netip.AddrPort { return c.local }
func (c *conn) MTU() int                  { return c.mtu }
func (c *conn) RecvBuffer() int           { return c.rcvbuf }
func (c *conn) Segmentation() bool        { return c.segments.Load() }
func (c *conn) Counters() *Counters       { return &c.counters }

func (c *conn) Segments(dst netip.AddrPort) bool {
	return c.segments.Load() && (!c.refused.some.Load() || !c.refused.has(dst, time.Now()))
}

// Close wakes a blocked Recv, waits until no call uses the socket any more, and frees the port.
// Calling it again does nothing.
func (c *conn) Close() error {
	if !c.closeOnce.CompareAndSwap(false, true) {
		<-c.done
		return nil
	}
	c.uses.Add(closing + 1) // it uses fd itself
	// An unconnected socket answers ENOTCONN, but its receivers wake nevertheless.
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	c.leave()
	<-c.done
	return c.closeErr
}

// enter keeps the descriptor open until leave. It fails after Close.
func (c *conn) enter() bool {
	if c.uses.Add(1) > 0 {
		return true
	}
	c.leave()
	return false
}

func (c *conn) leave() {
	if c.uses.Add(-1) == closing {
		c.closeFD()
	}
}

func (c *conn) isClosed() bool { return c.uses.Load() < 0 }

func (c *conn) closeFD() {
	if !c.fdOnce.CompareAndSwap(false, true) {
		return
	}
	standstill.Leave()
	var err error
	if c.near != nil { // first, so that the next program to open the port finds its name free
		err = c.near.table.Close()
	}
	if err = errors.Join(err, unix.Close(c.fd)); err != nil {
		c.closeErr = &OpError{Op: "close", Addr: c.local, Err: err}
	}
	close(c.done)
}
