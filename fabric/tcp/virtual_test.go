package tcp

import (
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// virtually runs f in virtual time. Its connections must be of n, and not poll.
func virtually(t *testing.T, f func(t *testing.T, n socket.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.SeedFor(t))
		n.SetDefault(simnet.Link{Latency: 50 * time.Microsecond})
		f(t, n.TCP())
	})
}

// peer is a connection whose calls wait, as a raw peer uses it.
type peer interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
}

// peerOf returns the peer that uses c.
func peerOf(c socket.Conn) peer {
	if t, ok := c.(*socket.TCP); ok {
		return t.TCPConn
	}
	return &simulatedPeer{Conn: c}
}

// simulatedPeer is a peer on the simulated network.
type simulatedPeer struct {
	socket.Conn
	aborts bool
}

func (p *simulatedPeer) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(p.Conn.LocalAddr()) }
func (p *simulatedPeer) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.Conn.RemoteAddr()) }

func (p *simulatedPeer) Read(b []byte) (n int, err error) {
	var v [1]unix.Iovec
	setIov(&v[0], b)
	var errno unix.Errno
	err = p.WhenReadable(func() bool {
		n, _, errno = p.Recv(v[:], false)
		return errno != unix.EAGAIN
	})
	switch {
	case err != nil:
		return n, err
	case errno != 0:
		return n, os.NewSyscallError("recv", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (p *simulatedPeer) Write(b []byte) (n int, err error) {
	var errno unix.Errno
	err = p.WhenWritable(func() bool {
		for n < len(b) {
			var v [1]unix.Iovec
			setIov(&v[0], b[n:])
			var k int
			if k, errno = p.Send(v[:], false, false); errno != 0 {
				return errno != unix.EAGAIN
			}
			n += k
		}
		return true
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("send", errno)
	}
	return n, err
}

func (p *simulatedPeer) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

func (p *simulatedPeer) SetLinger(sec int) error {
	p.aborts = sec == 0
	return nil
}

func (p *simulatedPeer) Close() error {
	if p.aborts {
		return p.Abort()
	}
	return p.Conn.Close()
}
