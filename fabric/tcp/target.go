package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/internal/listen"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Listener serves NVMe/TCP connections to a target.
type Listener struct {
	cfg      TargetConfig
	t        *target.Target
	listener socket.Listener
	memory   *mem.Arena
	buffers  *target.Buffers // memory, as registered with volumes
	pool     *mem.Pool[*request]
	counters Counters

	stop    sync.Once
	stopped chan struct{} // closed when no more connections are accepted
	left    chan struct{} // of capacity 1: a connection has ended

	mu     sync.Mutex
	conns  map[*targetConn]struct{}
	peers  map[netip.Addr]int // conns by address
	closed bool
	ended  sync.WaitGroup // one for each of conns, and one for accept
	free   sync.Once      // frees the memory that all of them used
}

const (
	// acceptPause is how long a listener waits after it could not accept for lack of resources, and the longest
	// that it waits for connections that give way to others.
	acceptPause = 50 * time.Millisecond
	// acceptTries is how many parts the latter wait is divided into: a standstill of the machine, however long,
	// uses up only one.
	acceptTries = 10
)

// ListenTarget accepts connections to addr and hands their commands to t, until Close. 0.0.0.0 is every IPv4 address
// and [::] every IPv6 address; the zero Addr is both. Port 0 picks a free port, which Addr returns. The error is ErrConfig,
// target.ErrClosed, or the system's.
func ListenTarget(addr netip.AddrPort, t *target.Target, cfg TargetConfig) (*Listener, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if t == nil {
		return nil, badConfig("no Target: want that of target.New")
	}
	cfg.fill()
	cfg.Log = limitlog.New(cfg.Log)
	buffers, err := t.NewBuffers(nil)
	if err != nil {
		return nil, fmt.Errorf("nvme/tcp listen: %w", err)
	}
	listener, err := cfg.Network.Listen(addr)
	if err != nil {
		buffers.Close()
		return nil, fmt.Errorf("nvme/tcp listen: %w", err)
	}
	l := &Listener{cfg: cfg, t: t, listener: listener, buffers: buffers, peers: make(map[netip.Addr]int),
		stopped: make(chan struct{}), left: make(chan struct{}, 1), conns: make(map[*targetConn]struct{})}
	l.memory, err = mem.New(l.memoryConfig())
	if err != nil {
		_ = listener.Close()
		buffers.Close()
		return nil, fmt.Errorf("nvme/tcp memory for data: %w", err)
	}
	l.pool = mem.NewPool(l.memory, cfg.PeerMemory, granted)
	l.ended.Go(l.accept)
	return l, nil
}

func (l *Listener) memoryConfig() mem.Config {
	return mem.Config{Max: l.cfg.Memory, Largest: l.cfg.MaxTransfer, OnGrow: l.grown, OnFail: l.short}
}

// grown tells volumes of new memory for connections.
func (l *Listener) grown(_ int, chunk []byte) error {
	l.buffers.Add(chunk)
	return nil
}

// short logs that there is no memory that Memory allows.
func (l *Listener) short(err error) {
	l.cfg.Log.Warn("tcp: no memory for more data: commands wait until there is", "transport", "tcp", "local", l.Addr(), "err", err)
}

// Addr returns the address that the listener listens on.
func (l *Listener) Addr() netip.AddrPort { return l.listener.Addr() }

// Counters returns the counts of all connections so far. They may be read at any time.
func (l *Listener) Counters() *Counters { return &l.counters }

// Close stops listening, disconnects every host and returns when all memory is free again; another call waits for the
// same. It doesn't change what discovery reports: remove the port that was added for the listener (DiscoveryPort) by
// [target.Target.RemovePort], best before Close.
func (l *Listener) Close() error {
	l.Stop()
	l.ended.Wait()
	l.free.Do(func() {
		l.buffers.Close()
		l.memory.Close()
	})
	return nil
}

// Stop is the part of Close that doesn't wait: it stops listening, and disconnects every host. Close, which must follow,
// waits for the requests that volumes still have, even those of a volume that hangs.
func (l *Listener) Stop() { l.stop.Do(l.disconnect) }

// disconnect closes the socket and ends every connection.
func (l *Listener) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	close(l.stopped)
	_ = l.listener.Close()
	// All are asked before any ends: a host that finds one closed closes the others.
	var asked []*targetConn
	for c := range l.conns {
		if c.ask(target.ErrEndpointClosed) {
			asked = append(asked, c)
		}
	}
	for _, c := range asked {
		c.rouse()
	}
}

// accept accepts connections until Close. When it can't, it reports that once, until it can again.
func (l *Listener) accept() {
	for failing := false; ; {
		conn, err := l.listener.Accept()
		switch {
		case err == nil:
			failing = false
			l.start(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Most likely out of descriptors or memory: connections that end will free some.
			if !failing {
				l.report(netip.AddrPort{}, &ConnError{Stage: stageAccept, Err: explained(err)})
			}
			failing = true
			select {
			case <-time.After(acceptPause):
			case <-l.stopped:
			}
		}
	}
}

// explained adds to err what helps against it, if that is known.
func explained(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: hosts wait until other connections end; raise the limit of open files (ulimit -n, or LimitNOFILE= of systemd)", err)
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: hosts wait until something here closes files; raise the system's limit (sysctl fs.file-max)", err)
	case listen.Unwatched(err):
		return fmt.Errorf("%w: hosts wait until other sockets of this user are closed; raise the limit of what the system watches for it (sysctl fs.epoll.max_user_watches)", err)
	}
	return err
}

// start begins a connection, or closes it at once.
func (l *Listener) start(conn socket.Conn) {
	c, err := l.newConn(conn)
	for tries := acceptTries; errors.Is(err, target.ErrMakingRoom) && tries > 0; tries-- {
		select {
		case <-l.left:
		case <-time.After(acceptPause / acceptTries):
		case <-l.stopped:
		}
		c, err = l.newConn(conn)
	}
	if err != nil {
		l.counters.Rejected.Add(1)
		if errors.Is(err, ErrTooMany) || errors.Is(err, target.ErrLimit) {
			l.counters.Limited.Add(1)
		}
		_ = conn.Close()
		peer := conn.RemoteAddr()
		l.report(peer, &ConnError{Stage: stageAccept, Peer: peer, Err: err})
		return
	}
	l.counters.Accepted.Add(1)
	l.counters.Connections.Add(1)
	go c.serve()
}

// newConn makes a connection and enters it in conns, within the limits. A connection beyond a limit costs no memory. The
// engine learns of a connection first, and ends it if it makes no progress while others arrive.
func (l *Listener) newConn(conn socket.Conn) (*targetConn, error) {
	c := newTargetConn(l, conn)
	peer := c.attr.Remote.Addr()
	if err := l.admit(peer); err != nil {
		return nil, err
	}
	var err error
	if c.queue, err = l.t.NewQueue(c); err != nil {
		return nil, err
	}
	if err = l.room(); err == nil {
		err = c.open()
	}
	if err == nil {
		err = l.enter(c)
	}
	if err != nil {
		c.queue.Closed(err)
		return nil, err
	}
	return c, nil
}

// admit returns an error if peer can't have another connection. No other goroutine enters one meanwhile.
func (l *Listener) admit(peer netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.peers[peer]; n >= l.cfg.MaxPeerConns {
		return fmt.Errorf("%w: %d of this host are open", ErrTooMany, n)
	}
	return nil
}

// room returns an error if there can't be another connection of any peer.
func (l *Listener) room() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.conns); n >= l.cfg.MaxConns {
		return fmt.Errorf("%w: %d are open", ErrTooMany, n)
	}
	return nil
}

// enter adds a connection to conns; if the listener was closed meanwhile it frees the connection's memory instead.
func (l *Listener) enter(c *targetConn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = unix.Munmap(c.capsule)
		return ErrClosed
	}
	peer := c.attr.Remote.Addr()
	l.conns[c] = struct{}{}
	l.peers[peer]++
	c.share = l.pool.Join(peer)
	l.ended.Add(1)
	return nil
}

// forget removes a connection from conns, before the engine forgets it.
func (l *Listener) forget(c *targetConn) {
	l.mu.Lock()
	delete(l.conns, c)
	peer := c.attr.Remote.Addr()
	if l.peers[peer]--; l.peers[peer] == 0 {
		delete(l.peers, peer)
	}
	l.mu.Unlock()
	c.share.Leave()
}

// gone records that nothing is left of a connection.
func (l *Listener) gone() {
	l.counters.Connections.Add(-1)
	select {
	case l.left <- struct{}{}:
	default:
	}
	l.ended.Done()
}

// report logs why the connection of a peer ended, or wasn't accepted; peer is invalid if nothing could be accepted. It
// logs at debug level only for connections that the engine ended, which logs that itself, and for those not accepted
// after Close, which is nothing to warn of. Nor is a peer that goes before Connect: something may have probed whether
// the port is open.
func (l *Listener) report(peer netip.AddrPort, err error) {
	level := slog.LevelWarn
	if errors.Is(err, ErrPeerClosed) {
		level = slog.LevelInfo
	}
	for _, own := range []error{
		target.ErrKeepAlive, target.ErrConnectTimeout, target.ErrAuthentication, target.ErrControllerGone, target.ErrReset,
		target.ErrRemoved, target.ErrNotAllowed, target.ErrPreempted, target.ErrGaveWay, target.ErrClosed, target.ErrDraining,
		target.ErrEndpointClosed, ErrClosed,
	} {
		if errors.Is(err, own) {
			level = slog.LevelDebug
		}
	}
	what := "tcp: connection ended"
	var at *ConnError
	if errors.As(err, &at) && at.Stage == stageAccept {
		what = "tcp: connection not accepted"
	}
	where := slog.Any("local", l.Addr())
	if peer.IsValid() {
		where = slog.Any("remote", peer)
	}
	l.cfg.Log.LogAttrs(context.Background(), level, what, slog.String("transport", "tcp"), where, slog.Any("err", err))
}
