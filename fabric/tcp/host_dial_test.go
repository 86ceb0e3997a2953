package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestHostHandshake refuses controllers whose ICResp is wrong or missing, and says why.
func TestHostHandshake(t *testing.T) {
	for _, c := range []struct {
		name string
		resp []byte
		fes  pdu.FES // 0: no terminate request
		fei  uint32
	}{
		{"PFV", pdu.ICResp{PFV: 1, MAXH2CDATA: 4096}.Append(nil), pdu.FESUnsupportedParm, offPFV},
		{"CPDA", pdu.ICResp{CPDA: 32, MAXH2CDATA: 4096}.Append(nil), pdu.FESInvalidHeader, offAlign},
		{"digests unasked", pdu.ICResp{Digests: pdu.DigestData, MAXH2CDATA: 4096}.Append(nil), pdu.FESInvalidHeader, offDigest},
		{"MAXH2CDATA small", pdu.ICResp{MAXH2CDATA: 4092}.Append(nil), pdu.FESInvalidHeader, offLimit},
		{"MAXH2CDATA odd", pdu.ICResp{MAXH2CDATA: 4098}.Append(nil), pdu.FESInvalidHeader, offLimit},
		{"a response first", (&pdu.CapsuleResp{Header: pdu.Format{}.Header(pdu.TypeCapsuleResp, 0)}).Append(nil), pdu.FESSequence, 0},
		{"another protocol", []byte("SSH-2.0-OpenSSH_9.2\r\n"), pdu.FESInvalidHeader, offType},
		{"C2HTermReq", pdu.TermReq{Type: pdu.TypeC2HTermReq, FES: pdu.FESUnsupportedParm, FEI: 8}.Append(nil), 0, 0},
		{"end", nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := NewTransport(HostConfig{})
			if err != nil {
				t.Fatal(err)
			}
			addr, accept := listenRaw(t, socket.System)
			done := make(chan struct{})
			go func() {
				defer close(done)
				p := accept()
				p.expect(pdu.TypeICReq)
				p.send(c.resp)
				if c.fes != 0 {
					p.terminated(c.fes, c.fei, c.resp)
				} else {
					_ = p.CloseWrite()
					p.closed()
				}
				_ = p.Close()
			}()
			_, err = tr.Dial(context.Background(), host.QueueAttr{Remote: addr, Size: 32, Sink: newClient(t, 1)})
			why := ErrProtocol
			switch {
			case c.resp == nil:
				why = ErrPeerClosed
			case c.fes == 0:
				why = ErrTerminated
			}
			if !errors.Is(err, ErrHandshake) || !errors.Is(err, why) {
				t.Errorf("Dial: %v, want %v", err, why)
			}
			<-done
		})
	}
}

// TestHostSilentController: Dial fails when a controller hasn't sent ICResp within the time limit.
func TestHostSilentController(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const limit = 10 * time.Second
		l, err := n.Listen(anyPort)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		tr, err := NewTransport(HostConfig{ConnectTimeout: limit, BusyPoll: NoBusyPoll, Network: n})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = tr.Dial(t.Context(), host.QueueAttr{Remote: l.Addr(), Size: 32, Sink: newClient(t, 1)})
		if took := time.Since(began); took < limit || took > limit+time.Second {
			t.Errorf("it failed after %v", took)
		}
		var ce *ConnError
		if !errors.As(err, &ce) || ce.Stage != "initialize" || ce.Peer != l.Addr() {
			t.Error(err)
		}
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v isn't a timeout", err)
		}
		if err := tr.Close(); err != nil { // it would wait for queues
			t.Error(err)
		}
	})
}

// TestHostDialFails covers other ways in which Dial fails.
func TestHostDialFails(t *testing.T) {
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a := host.QueueAttr{Size: 32, Sink: newClient(t, 1)}
	var ce *ConnError
	addr, accept := listenRaw(t, socket.System)
	a.Remote = addr
	slow, _ := NewTransport(HostConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p := accept()
		p.expect(pdu.TypeICReq)
		cancel()
		p.closed()
	}()
	if _, err := slow.Dial(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	a.Remote = netip.AddrPortFrom(addr.Addr(), 1)
	if _, err := tr.Dial(context.Background(), a); !errors.As(err, &ce) || ce.Stage != "connect" {
		t.Errorf("nobody listens: %v", err)
	}
	for _, a.Size = range []int{1, 1<<16 + 1} {
		if _, err := tr.Dial(context.Background(), a); err == nil || errors.As(err, &ce) {
			t.Errorf("a queue of %d entries: %v", a.Size, err)
		}
	}
	for _, tr := range []*Transport{tr, slow} {
		if err := tr.Close(); err != nil { // it would wait for queues
			t.Error(err)
		}
	}
	for _, c := range []HostConfig{{ConnectTimeout: -1}, {Memory: -1}} {
		if _, err := NewTransport(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestHostLocal: a connection is made from the address that the caller names.
func TestHostLocal(t *testing.T) {
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	local := netip.MustParseAddr("127.0.0.2")
	addr, accept := listenRaw(t, socket.System)
	from := make(chan netip.AddrPort, 1)
	go func() {
		p := accept()
		p.expect(pdu.TypeICReq)
		p.send(goodResp.Append(nil))
		from <- p.RemoteAddr().(*net.TCPAddr).AddrPort()
	}()
	q, err := tr.Dial(context.Background(), host.QueueAttr{Local: local, Remote: addr, Size: 32, Sink: newClient(t, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-from; got.Addr() != local || q.Local() != got {
		t.Errorf("from %v, and the host says %v", got, q.Local())
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// lateContext has a deadline that it doesn't keep: it is done when done is closed.
type lateContext struct {
	context.Context
	at   time.Time
	done chan struct{}
}

func (c *lateContext) Deadline() (time.Time, bool) { return c.at, true }
func (c *lateContext) Done() <-chan struct{}       { return c.done }
func (c *lateContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestHostDialDeadline: if the deadline of the context ends the attempt, the error says so, even if package net
// notices before the context does.
func TestHostDialDeadline(t *testing.T) {
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ctx := &lateContext{t.Context(), time.Now().Add(50 * time.Millisecond), make(chan struct{})}
	time.AfterFunc(time.Second, func() { close(ctx.done) })
	_, err = tr.Dial(ctx, host.QueueAttr{Remote: fullListener(t), Size: 2})
	var at *ConnError
	if !errors.As(err, &at) || at.Stage != "connect" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says %v", err)
	}
}

// fullListener returns the address of a listener that takes no connection, as its queue is full.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*unix.SockaddrInet4).Port))
	c, err := net.Dial("tcp", addr.String()) // a queue of length 0 has room for one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return addr
}

// TestHostDialGivesUp: if Dial fails although ICResp has arrived, the Sink is told nothing of the connection.
func TestHostDialGivesUp(t *testing.T) {
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	accepted := 0
	for range 20 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ctrl := newRaw(t, c)
		ctrl.send(goodResp.Append(nil))
		sink := newClient(t, 32)
		tr.queues.Begin()
		s := socketOf(t, conn)
		q := newHostQueue(tr, s, host.QueueAttr{Remote: s.RemoteAddr(), Size: 32, Sink: sink})
		if err := q.initialize(ctx); err == nil {
			if err := q.Close(); err != nil { // it was there before Dial looked
				t.Fatal(err)
			}
			continue
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		select {
		case <-q.ready:
			accepted++
		default:
		}
		select {
		case <-sink.gone:
			t.Fatal("Dial failed, and the Sink was told of the end")
		default:
		}
	}
	t.Logf("%d of 20 had accepted ICResp", accepted)
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
