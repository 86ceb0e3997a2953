package tcp

import (
	"context"
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/inuse"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Transport makes NVMe/TCP connections for a host. It implements host.Transport.
type Transport struct {
	cfg      HostConfig
	memory   *mem.Arena
	counters Counters

	queues inuse.Count // queues that exist or are being dialled
}

var _ host.Transport = (*Transport)(nil)

// NewTransport returns a Transport.
func NewTransport(cfg HostConfig) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.fill()
	memory, err := mem.New(mem.Config{Max: cfg.Memory})
	if err != nil {
		return nil, fmt.Errorf("nvme/tcp memory for data: %w", err)
	}
	return &Transport{cfg: cfg, memory: memory}, nil
}

// Close prevents further queues from being dialled, waits until all queues are closed, which is up to their users, and
// frees the memory that Alloc handed out. It may be called again.
func (t *Transport) Close() error {
	t.queues.Close()
	t.memory.Close()
	return nil
}

// Type implements host.Transport.
func (t *Transport) Type() nvme.TransportType { return nvme.TransportTCP }

// Counters returns the counts of all connections so far. They may be read at any time.
func (t *Transport) Counters() *Counters { return &t.counters }

// Alloc implements host.Transport. Requests may use any other memory as well; this lies in large pages if there are any.
// After Close the error is ErrClosed.
func (t *Transport) Alloc(n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("nvme/tcp: %w: %d bytes of memory: want at least 1", host.ErrRange, n)
	}
	b := t.memory.Alloc(n)
	if b == nil && t.queues.Closed() {
		return nil, fmt.Errorf("nvme/tcp: %w", errTransportClosed)
	}
	if b == nil {
		return nil, fmt.Errorf("nvme/tcp: %w: %d bytes (HostConfig.Memory is %d): %w", host.ErrNoMemory, n, t.cfg.Memory, t.memory.Err())
	}
	return b, nil
}

// Free implements host.Transport.
func (t *Transport) Free(b []byte) { t.memory.Free(b) }

// Dial implements host.Transport: it makes the TCP connection and exchanges ICReq and ICResp. After Close it fails with
// ErrClosed.
func (t *Transport) Dial(ctx context.Context, a host.QueueAttr) (host.TransportQueue, error) {
	if a.Size < 2 || a.Size > 1<<16 {
		return nil, fmt.Errorf("nvme/tcp: queue of %d entries is not within 2 to 65536", a.Size)
	}
	if !t.queues.Begin() {
		return nil, &ConnError{Stage: "connect", Peer: a.Remote, Err: errTransportClosed}
	}
	conn, err := t.connect(ctx, a)
	if err != nil {
		t.queues.End()
		return nil, &ConnError{Stage: "connect", Peer: a.Remote, Err: err}
	}
	q := newHostQueue(t, conn, a)
	if err := q.initialize(ctx); err != nil {
		return nil, err
	}
	return q, nil
}

func (t *Transport) connect(ctx context.Context, a host.QueueAttr) (socket.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, t.cfg.ConnectTimeout)
	defer cancel()
	c, err := t.cfg.Network.Dial(limited, a.Local, a.Remote)
	if err == nil {
		return c, nil
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		<-ctx.Done() // net has a timer of its own for ctx's deadline, which may be first
		return nil, ctx.Err()
	}
	return nil, err
}

// initialize exchanges ICReq and ICResp. On failure the connection is gone when it returns.
func (q *hostQueue) initialize(ctx context.Context) error {
	_ = q.conn.SetReadDeadline(time.Now().Add(q.t.cfg.ConnectTimeout))
	attachTap(q.t.cfg.Tap, q.conn, q.r, q.w)
	go q.w.serve()
	go q.serve()
	q.w.post(newPlain(pdu.ICReq{Digests: q.digests}.Append(nil)), 0)
	select {
	case <-q.ready:
		if q.decided.CompareAndSwap(false, true) {
			return nil
		}
		<-q.ended
	case <-q.ended:
	case <-ctx.Done():
		q.shut()
		<-q.ended
	}
	err := q.err
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &ConnError{Stage: "initialize", Peer: q.attr.Remote, Err: fmt.Errorf("%w: %w", ErrHandshake, err)}
}
