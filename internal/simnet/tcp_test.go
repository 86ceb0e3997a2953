package simnet

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

// tcpPair is both ends of a connection.
type tcpPair struct {
	t                 *testing.T
	network           socket.Network
	listener          socket.Listener
	addr              netip.AddrPort // of listener
	dialled, accepted socket.Conn
}

// onKernelToo runs f with a connection of the simulated TCP and with one of the kernel's: both do what it expects.
func onKernelToo(t *testing.T, f func(t *testing.T, p *tcpPair)) {
	t.Run("kernel", func(t *testing.T) {
		f(t, connect(t, socket.System, netip.MustParseAddrPort("127.0.0.1:0")))
	})
	t.Run("simulated", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New(SeedFor(t))
			n.SetDefault(Link{Latency: time.Millisecond})
			f(t, connect(t, n.TCP(), netip.MustParseAddrPort("10.0.0.1:0")))
		})
	})
}

func connect(t *testing.T, n socket.Network, at netip.AddrPort) *tcpPair {
	t.Helper()
	l, err := n.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	p := &tcpPair{t: t, network: n, listener: l, addr: l.Addr()}
	if p.dialled, err = n.Dial(t.Context(), netip.Addr{}, p.addr); err != nil {
		t.Fatal(err)
	}
	if p.accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = p.dialled.Close(), p.accepted.Close(), l.Close() })
	return p
}

// vectors returns b in several pieces.
func vectors(b []byte) (v []unix.Iovec) {
	for len(b) > 0 {
		n := min(len(b), 1+rand.IntN(5000))
		v = append(v, unix.Iovec{Base: &b[0]})
		v[len(v)-1].SetLen(n)
		b = b[n:]
	}
	return v
}

// write sends all of b, and waits for room.
func write(c socket.Conn, b []byte) error {
	var errno unix.Errno
	err := c.WhenWritable(func() bool {
		for len(b) > 0 {
			var n int
			if n, errno = c.Send(vectors(b[:min(len(b), 100000)]), false, false); errno != 0 {
				return errno != unix.EAGAIN
			}
			b = b[n:]
		}
		return true
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// read waits, and returns what has arrived, and what is left.
func read(c socket.Conn, most int) (b []byte, left int, err error) {
	b = make([]byte, most)
	var n int
	var errno unix.Errno
	err = c.WhenReadable(func() bool {
		n, left, errno = c.Recv(vectors(b), false)
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return b[:n], left, err
}

// readAll reads until the end of the stream.
func readAll(c socket.Conn) (all []byte, err error) {
	for {
		b, _, err := read(c, 1+rand.IntN(40000))
		if err != nil || len(b) == 0 {
			return all, err
		}
		all = append(all, b...)
	}
}

func (p *tcpPair) mustWrite(c socket.Conn, b []byte) {
	p.t.Helper()
	if err := write(c, b); err != nil {
		p.t.Fatal(err)
	}
}

// mustRead expects n bytes.
func (p *tcpPair) mustRead(c socket.Conn, n int) {
	p.t.Helper()
	for n > 0 {
		b, _, err := read(c, n)
		if err != nil || len(b) == 0 {
			p.t.Fatalf("%d bytes, %v", len(b), err)
		}
		n -= len(b)
	}
}

// ended expects the end of the stream.
func (p *tcpPair) ended(c socket.Conn) {
	p.t.Helper()
	if b, _, err := read(c, 10); len(b) > 0 || err != nil {
		p.t.Fatalf("%d bytes, %v instead of the end", len(b), err)
	}
}

// fails expects an error.
func (p *tcpPair) fails(err error, want unix.Errno) {
	p.t.Helper()
	if !errors.Is(err, want) {
		p.t.Fatalf("%v, want %v", err, want)
	}
}

// waitEnded waits until the end of the connection has arrived at c.
func waitEnded(c socket.Conn) {
	for !c.Ended() {
		time.Sleep(time.Millisecond)
	}
}

// stream returns n random bytes.
func stream(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// exchange sends a stream each way at once, and expects them to arrive.
func (p *tcpPair) exchange(size int) {
	p.t.Helper()
	done := make(chan error, 4)
	for _, way := range [][2]socket.Conn{{p.dialled, p.accepted}, {p.accepted, p.dialled}} {
		sent := stream(size)
		go func() { done <- errors.Join(write(way[0], sent), way[0].CloseWrite()) }()
		go func() {
			got, err := readAll(way[1])
			if err == nil && !bytes.Equal(got, sent) {
				err = errors.New("other bytes arrived")
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	}
}

// TestTCPStreams: what is sent arrives, each way, whatever the buffers.
func TestTCPStreams(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) { p.exchange(4 << 20) })
}

// TestTCPHalfClosed: after the end of one stream the other goes on.
func TestTCPHalfClosed(t *testing.T) {
	onKernelToo(t, func(t *testing.T, p *tcpPair) {
		p.mustWrite(p.dialled, stream(100))
		_ = p.dialled.CloseWrite()
		p.mustRead(p.accepted, 100)
		p.ended(p.accepted)
		p.mustWrite(p.accepted, stream(100))
		p.mustRead(p.dialled, 100)
		p.fails(write(p.dialled, []byte{1}), unix.EPIPE)
		if !p.dialled.Ended() || !p.accepted.Ended() {
			t.Error("neither end is told that the connection ends")
		}
	})
}

// TestTCPLeft: a receive call says whether something is left, bytes or the end of the stream.
func TestTCPLeft(t *testing.T) {
	onKernelToo(t, func(t *testing.T, p *tcpPair) {
		p.mustWrite(p.dialled, stream(100))
		if b, left, err := read(p.accepted, 60); len(b) != 60 || left != 40 || err != nil {
			t.Errorf("%d bytes, %d left, %v", len(b), left, err)
		}
		if b, left, err := read(p.accepted, 60); len(b) != 40 || left != 0 || err != nil {
			t.Errorf("%d bytes, %d left, %v", len(b), left, err)
		}
		p.mustWrite(p.dialled, stream(10))
		_ = p.dialled.CloseWrite()
		waitEnded(p.accepted)
		if b, left, err := read(p.accepted, 60); len(b) != 10 || left == 0 || err != nil {
			t.Errorf("%d bytes, %d left, %v", len(b), left, err)
		}
		p.ended(p.accepted)
	})
}

// TestTCPAborted: after a reset what had arrived can be received, then the error, once, and then the end.
func TestTCPAborted(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		p.mustWrite(p.dialled, stream(100))
		p.mustRead(p.accepted, 50)
		_ = p.dialled.Abort()
		waitEnded(p.accepted)
		p.mustRead(p.accepted, 50)
		_, _, err := read(p.accepted, 10)
		p.fails(err, unix.ECONNRESET)
		p.ended(p.accepted)
		p.fails(write(p.accepted, []byte{1}), unix.EPIPE)
	})
}

// TestTCPErrorOnce: if a send call is told of a reset, nothing but the end is left for the receive calls.
func TestTCPErrorOnce(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		_ = p.dialled.Abort()
		waitEnded(p.accepted)
		p.fails(write(p.accepted, []byte{1}), unix.ECONNRESET)
		p.ended(p.accepted)
	})
}

// TestTCPClosedUnread: closing a connection resets it if something is unread.
func TestTCPClosedUnread(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		p.mustWrite(p.dialled, stream(100))
		p.mustRead(p.accepted, 50)
		_ = p.accepted.Close()
		waitEnded(p.dialled)
		_, _, err := read(p.dialled, 10)
		p.fails(err, unix.ECONNRESET)
	})
}

// TestTCPSentAfterClose: a peer that sends to a closed connection is answered with a reset.
func TestTCPSentAfterClose(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		_ = p.accepted.Close()
		p.ended(p.dialled)
		p.mustWrite(p.dialled, []byte{1})
		var err error
		for err == nil {
			time.Sleep(time.Millisecond)
			err = write(p.dialled, []byte{1})
		}
		p.fails(err, unix.EPIPE)
	})
}

// TestTCPReadShut: CloseRead wakes a receiver, who still receives what had arrived.
func TestTCPReadShut(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		p.mustWrite(p.dialled, stream(100))
		p.mustRead(p.accepted, 50)
		_ = p.accepted.CloseRead()
		p.mustRead(p.accepted, 50)
		p.ended(p.accepted)
		woken := make(chan error)
		go func() {
			_, err := readAll(p.dialled)
			woken <- err
		}()
		_ = p.dialled.CloseRead()
		if err := <-woken; err != nil {
			p.t.Error(err)
		}
	})
}

// TestTCPBothShut: data for an end that wants neither to receive nor to send resets the connection.
func TestTCPBothShut(t *testing.T) {
	onKernelToo(t, func(t *testing.T, p *tcpPair) {
		_ = p.accepted.CloseRead()
		_ = p.accepted.CloseWrite()
		p.ended(p.dialled)
		var err error
		for began := time.Now(); err == nil && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			err = write(p.dialled, []byte{1})
		}
		p.fails(err, unix.EPIPE)
		_, _, err = read(p.accepted, 10)
		p.fails(err, unix.ECONNRESET)
	})
}

// TestTCPOver: what has ended in both directions can't be shut any more.
func TestTCPOver(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		_ = p.dialled.CloseWrite()
		p.ended(p.accepted)
		_ = p.accepted.CloseWrite()
		p.ended(p.dialled)
		for _, c := range []socket.Conn{p.dialled, p.accepted} {
			var err error
			for began := time.Now(); err == nil && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
				err = c.CloseWrite() // until the peer has acknowledged the end
			}
			p.fails(err, unix.ENOTCONN)
			p.fails(c.CloseRead(), unix.ENOTCONN)
		}
	})
}

// TestTCPDeadlines: waiting ends at a deadline, even one that is set meanwhile, and with Close. After another deadline is
// set it goes on.
func TestTCPDeadlines(t *testing.T) {
	onKernelToo(t, func(t *testing.T, p *tcpPair) {
		late := make(chan error)
		go func() {
			_, _, err := read(p.dialled, 10)
			late <- err
		}()
		_ = p.dialled.SetReadDeadline(time.Unix(1, 0))
		if err := <-late; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		p.mustWrite(p.accepted, stream(10))
		if _, _, err := read(p.dialled, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("what has arrived is received after the deadline: %v", err)
		}
		_ = p.dialled.SetReadDeadline(time.Time{})
		p.mustRead(p.dialled, 10)
		_ = p.accepted.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if err := write(p.accepted, make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("nobody receives: %v", err)
		}
		waits := make(chan struct{})
		go func() {
			late <- p.accepted.WhenReadable(func() bool {
				close(waits)
				return false
			})
		}()
		<-waits // Recv must not be called after Close
		_ = p.accepted.Close()
		if err := <-late; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestTCPRefused: where nobody listens, or nobody does any more, connections are refused.
func TestTCPRefused(t *testing.T) {
	onKernelToo(t, func(t *testing.T, p *tcpPair) {
		waiting := make(chan error)
		go func() {
			_, err := p.listener.Accept()
			waiting <- err
		}()
		_ = p.listener.Close()
		if err := <-waiting; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_, err := p.network.Dial(t.Context(), netip.Addr{}, p.addr)
		p.fails(err, unix.ECONNREFUSED)
	})
}

// TestTCPListenTwice: one address has one listener.
func TestTCPListenTwice(t *testing.T) {
	onKernelToo(t, func(_ *testing.T, p *tcpPair) {
		_, err := p.network.Listen(p.addr)
		p.fails(err, unix.EADDRINUSE)
	})
}

// simulated runs f in virtual time with a connection from one simulated address to another.
func simulated(t *testing.T, link Link, f func(n *Network, p *tcpPair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := New(SeedFor(t))
		n.SetDefault(link)
		f(n, connect(t, n.TCP(), netip.AddrPortFrom(hostA, 4420)))
	})
}

var hostA, hostB = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

// TestTCPBadLink: what is sent arrives, whatever the network does to segments.
func TestTCPBadLink(t *testing.T) {
	for name, l := range map[string]Link{
		"loss":      {Latency: time.Millisecond, Loss: 0.1},
		"bursts":    {Latency: time.Millisecond, Burst: Burst{Enter: 0.02, Leave: 0.5}},
		"jitter":    {Latency: time.Millisecond, Jitter: 5 * time.Millisecond},
		"duplicate": {Latency: time.Millisecond, Duplicate: 0.3, Jitter: time.Millisecond},
		"corrupt":   {Latency: time.Millisecond, Corrupt: 0.1},
		"all":       {Latency: time.Millisecond, Loss: 0.05, Jitter: time.Millisecond, Duplicate: 0.1, Corrupt: 0.05, Reorder: 0.1, Bandwidth: 1e8},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, l, func(_ *Network, p *tcpPair) { p.exchange(1 << 20) })
		})
	}
}

var goodTCPLink = Link{Latency: time.Millisecond}

// between makes the connection of p one from hostB.
func (p *tcpPair) between() {
	p.t.Helper()
	var err error
	if p.dialled, err = p.network.Dial(p.t.Context(), hostB, p.addr); err != nil {
		p.t.Fatal(err)
	}
	if p.accepted, err = p.listener.Accept(); err != nil {
		p.t.Fatal(err)
	}
}

// TestTCPCut: what is sent while the network is cut, in either direction, arrives when it is restored.
func TestTCPCut(t *testing.T) {
	for _, c := range []struct {
		from, to netip.Addr
		late     bool // what hostB sends
	}{
		{hostB, hostA, true},
		{hostA, hostB, false},
		{hostA, netip.Addr{}, false},
		{netip.Addr{}, hostA, true},
	} {
		simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
			p.between()
			n.Cut(c.from, c.to)
			p.mustWrite(p.dialled, stream(3000))
			began := time.Now()
			time.AfterFunc(10*time.Second, func() { n.Restore(c.from, c.to) })
			p.mustRead(p.accepted, 3000)
			if took := time.Since(began); took >= 10*time.Second != c.late {
				t.Errorf("cut from %v to %v: it arrived after %v", c.from, c.to, took)
			}
			p.exchange(1 << 16)
		})
	}
}

// TestTCPTimesOut: a network that stays cut ends the connection of who sends.
func TestTCPTimesOut(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		p.between()
		n.Cut(hostA, netip.Addr{})
		p.mustWrite(p.dialled, stream(10))
		_, _, err := read(p.dialled, 10)
		p.fails(err, unix.ETIMEDOUT)
	})
}

// TestTCPResetLost: a reset that is lost is sent again when the peer sends.
func TestTCPResetLost(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		p.between()
		n.Cut(hostB, hostA)
		p.mustWrite(p.dialled, stream(10))
		_ = p.dialled.Abort()
		time.Sleep(time.Minute)
		n.Restore(hostB, hostA)
		time.Sleep(time.Minute)
		if p.accepted.Ended() {
			t.Fatal("the reset arrived nevertheless")
		}
		p.mustWrite(p.accepted, stream(10))
		_, _, err := read(p.accepted, 10)
		p.fails(err, unix.ECONNRESET) // and not a byte of what was sent
	})
}

// TestTCPResetOvertakes: a reset that overtakes data doesn't make later data of it.
func TestTCPResetOvertakes(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		p.between()
		n.SetFilter(func(d *Datagram) Action {
			if len(d.Payload) > 0 {
				return Action{Delay: time.Second}
			}
			return Action{}
		})
		p.mustWrite(p.dialled, stream(10))
		_ = p.dialled.Abort()
		_, _, err := read(p.accepted, 10)
		p.fails(err, unix.ECONNRESET)
	})
}

// TestTCPWriteShut: CloseWrite wakes a sender that waits for room, as Linux's does.
func TestTCPWriteShut(t *testing.T) {
	simulated(t, goodTCPLink, func(_ *Network, p *tcpPair) {
		time.AfterFunc(time.Minute, func() { _ = p.dialled.CloseWrite() })
		_ = p.dialled.SetWriteDeadline(time.Now().Add(time.Hour))
		p.fails(write(p.dialled, make([]byte, 1<<20)), unix.EPIPE)
	})
}

// TestTCPNoAnswer: Dial ends with its context if nobody answers.
func TestTCPNoAnswer(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		n.Cut(hostA, hostB)
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		defer cancel()
		if _, err := n.TCP().Dial(ctx, hostB, p.addr); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_, err := n.TCP().Dial(p.t.Context(), hostB, p.addr)
		p.fails(err, unix.ETIMEDOUT)
	})
}

// TestTCPFreeEnds: a connection gets no port that the other end still takes for that of an earlier one, or that is the
// other end's own.
func TestTCPFreeEnds(t *testing.T) {
	tcp, remote := New(SeedFor(t)).TCP(), netip.AddrPortFrom(hostA, firstFreePort+1)
	for port := firstFreePort + 2; port < 1<<16; port++ {
		at := ends{remote, netip.AddrPortFrom(hostA, uint16(port))}
		tcp.conns[at] = &tcpConn{tcp: tcp, at: at}
	}
	for range 20 { // ports are drawn
		if got := tcp.freeEnds(hostA, remote); got.local.Port() != firstFreePort {
			t.Errorf("%v", got)
		}
	}
}

// TestTCPBacklog: a listener that doesn't accept has room for some connections, and takes others when there is room.
func TestTCPBacklog(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		const more = 3
		made := make(chan error)
		for range backlog + more {
			go func() {
				_, err := n.TCP().Dial(p.t.Context(), hostB, p.addr)
				made <- err
			}()
		}
		for range backlog {
			if err := <-made; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Second)
		select {
		case err := <-made:
			t.Errorf("more than %d connections wait: %v", backlog, err)
		default:
		}
		for range backlog + more {
			if _, err := p.listener.Accept(); err != nil {
				t.Error(err)
			}
		}
		for range more {
			if err := <-made; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestTCPListenerClosedWhileOpening: who connects while a listener is closed may find the connection made, but then it
// is reset, as nobody will ever accept it.
func TestTCPListenerClosedWhileOpening(t *testing.T) {
	simulated(t, goodTCPLink, func(_ *Network, p *tcpPair) {
		time.AfterFunc(goodTCPLink.Latency*3/2, func() { _ = p.listener.Close() }) // between the SYN and its ACK
		c, err := p.network.Dial(p.t.Context(), hostB, p.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, _, err = read(c, 10)
		p.fails(err, unix.ECONNRESET)
		_ = c.Close()
	})
}

// TestTCPStalled: what arrives at an address that stands still is taken afterwards: data can be received, although the
// connection has ended by a reset that came later.
func TestTCPStalled(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		p.between()
		n.TCP().Stall(hostA, time.Second)
		began := time.Now()
		p.mustWrite(p.dialled, stream(10))
		time.Sleep(500 * time.Millisecond)
		_ = p.dialled.Abort()
		p.mustRead(p.accepted, 10)
		if took := time.Since(began); took != time.Second || !p.accepted.Ended() {
			t.Errorf("after %v, ended %v", took, p.accepted.Ended())
		}
	})
}

// TestTCPFilterUnnoticed: what a filter changes arrives.
func TestTCPFilterUnnoticed(t *testing.T) {
	simulated(t, goodTCPLink, func(n *Network, p *tcpPair) {
		n.SetFilter(func(d *Datagram) Action {
			if d.TCP() && len(d.Payload) > 0 {
				d.Payload[0]++
			}
			return Action{}
		})
		p.mustWrite(p.dialled, []byte{1})
		if b, _, err := read(p.accepted, 10); !bytes.Equal(b, []byte{2}) || err != nil {
			t.Errorf("%x, %v", b, err)
		}
	})
}
