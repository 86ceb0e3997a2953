package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Listener serves NVMe/TCP connections to a target.
type Listener struct {
	cfg      TargetConfig
	t        *target.Target
	tcp      *net.TCPListener
	memory   *mem.Arena
	buffers  *target.Buffers // memory, as volumes know it
	pool     *mem.Pool[*request]
	counters Counters

	stopped chan struct{} // closed when no more connections are taken

	mu     sync.Mutex
	conns  map[*targetConn]struct{}
	peers  map[netip.Addr]int // of conns
	closed bool
	ended  sync.WaitGroup // one for each of conns
}

// acceptPause is how long a listener waits that could not accept for want of resources.
const acceptPause = 50 * time.Millisecond

// Listen opens addr ("host:port") for hosts of t. Connections are taken by Serve.
func Listen(addr string, t *target.Target, cfg TargetConfig) (*Listener, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.fill()
	tcp, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("nvme/tcp listen: %w", err)
	}
	l := &Listener{cfg: cfg, t: t, tcp: tcp.(*net.TCPListener), peers: make(map[netip.Addr]int),
		stopped: make(chan struct{}), conns: make(map[*targetConn]struct{})}
	l.memory, err = mem.New(mem.Config{Max: cfg.Memory, OnGrow: l.grown})
	if err != nil {
		_ = tcp.Close()
		return nil, fmt.Errorf("nvme/tcp memory for data: %w", err)
	}
	l.pool = mem.NewPool(l.memory, cfg.PeerMemory, granted)
	return l, nil
}

// grown tells volumes of memory for connections, which there are only in Serve.
func (l *Listener) grown(_ int, chunk []byte) error {
	l.buffers.Add(chunk)
	return nil
}

// Addr is the address that is listened on.
func (l *Listener) Addr() netip.AddrPort { return addrPort(l.tcp.Addr()) }

// Counters are the counts of all connections so far. They may be read at any time.
func (l *Listener) Counters() *Counters { return &l.counters }

// Serve takes connections until ctx ends or Close is called; then it ends them all, waits for
// them, frees the listener, and returns nil. Any other error is why no more can be taken. It is
// called once.
func (l *Listener) Serve(ctx context.Context) error {
	l.buffers = l.t.NewBuffers()
	stop := context.AfterFunc(ctx, l.stop)
	err := l.accept()
	stop()
	l.stop()
	l.ended.Wait()
	l.buffers.Close()
	l.memory.Close()
	return err
}

// Close makes Serve end. A Listener whose Serve was never called is freed by Close alone.
func (l *Listener) Close() error {
	l.stop()
	return nil
}

// stop closes the socket and ends every connection.
func (l *Listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.stopped)
	_ = l.tcp.Close()
	for c := range l.conns {
		c.Disconnect(nil)
	}
}

func (l *Listener) accept() error {
	for {
		conn, err := l.tcp.AcceptTCP()
		switch {
		case err == nil:
			l.start(conn)
		case errors.Is(err, net.ErrClosed):
			return nil
		case isTransient(err):
			// Out of descriptors or of memory: connections that end will free some.
			l.report(&ConnError{Stage: "accept", Peer: l.Addr(), Err: err})
			select {
			case <-time.After(acceptPause):
			case <-l.stopped:
			}
		default:
			return &ConnError{Stage: "accept", Peer: l.Addr(), Err: err}
		}
	}
}

// start begins a connection, or closes it at once.
func (l *Listener) start(conn *net.TCPConn) {
	c, err := l.newConn(conn)
	if err != nil {
		l.counters.Refused.Add(1)
		_ = conn.Close()
		l.report(&ConnError{Stage: "accept", Peer: addrPort(conn.RemoteAddr()), Err: err})
		return
	}
	l.counters.Accepted.Add(1)
	l.counters.Open.Add(1)
	go c.serve()
}

// newConn makes a connection and enters it, within the limit. One that is too many costs no memory.
func (l *Listener) newConn(conn *net.TCPConn) (*targetConn, error) {
	peer := addrPort(conn.RemoteAddr()).Addr()
	if err := l.admit(peer); err != nil {
		return nil, err
	}
	c, err := newTargetConn(l, conn)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.discard()
		return nil, ErrClosed
	}
	l.conns[c] = struct{}{}
	l.peers[peer]++
	c.share = l.pool.Join(peer)
	l.ended.Add(1)
	return c, nil
}

// admit says why there can't be one more connection of peer. Nobody else makes some meanwhile.
func (l *Listener) admit(peer netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case len(l.conns) >= l.cfg.MaxConns:
		return fmt.Errorf("%w: %d are open", ErrTooMany, len(l.conns))
	case l.peers[peer] >= l.cfg.MaxPeerConns:
		return fmt.Errorf("%w: %d of this host are open", ErrTooMany, l.peers[peer])
	}
	return nil
}

// gone forgets an ended connection.
func (l *Listener) gone(c *targetConn) {
	l.mu.Lock()
	delete(l.conns, c)
	peer := c.attr.Remote.Addr()
	if l.peers[peer]--; l.peers[peer] == 0 {
		delete(l.peers, peer)
	}
	l.mu.Unlock()
	c.share.Leave()
	l.counters.Open.Add(-1)
	l.ended.Done()
}

func (l *Listener) report(err error) {
	if l.cfg.OnError != nil {
		l.cfg.OnError(err)
	}
}
