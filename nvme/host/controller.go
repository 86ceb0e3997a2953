package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Controller is a connection to one controller of a subsystem: its admin queue, its I/O queues and the negotiated
// limits. All methods may be called from any goroutine.
type Controller struct {
	cfg      Config
	cntlid   uint16
	cap      nvme.CAP
	version  nvme.Version
	identity nvme.IdentifyController
	nvm      nvme.IdentifyControllerNVM
	limits   Limits

	admin    *Queue
	io       []*Queue
	counters Counters
	aborter  aborter
	alive    keepAlive
	auth     atomic.Pointer[Authentication] // in effect; cfg has that of Connect
	authTurn chan struct{}                  // has an element while Authenticate runs
	events   events
	// transfers pools the state of synchronous transfers.
	transfers sync.Pool

	live atomic.Bool // set-up is complete: commands may be aborted
	done chan struct{}
	torn chan struct{} // closed when every queue is gone and every goroutine has ended
	work sync.WaitGroup

	mu      sync.Mutex
	queues  []*Queue // all that were dialled, for tearDown
	err     error    // why done is closed
	closing bool     // Close is in progress
	cut     error    // what ended the controller during Close, if anything did
}

// Limits holds what host and controller agreed on.
type Limits struct {
	Queues      int // I/O queues
	QueueSize   int // entries of each; one stays free
	MaxTransfer int // bytes that one command of this host transfers
	InCapsule   int // bytes of data that an I/O command capsule carries
	KATO        time.Duration
}

// Config returns the configuration in effect, with every default filled in.
func (c *Controller) Config() Config {
	cfg := c.cfg
	cfg.Authentication = c.auth.Load()
	return cfg
}

// CNTLID is the controller's identifier in its subsystem.
func (c *Controller) CNTLID() uint16 { return c.cntlid }

// Version is the version of the specification that the controller follows.
func (c *Controller) Version() nvme.Version { return c.version }

// Identify is the Identify Controller page as read when the connection was made. It must not be modified.
func (c *Controller) Identify() *nvme.IdentifyController { return &c.identity }

// Limits returns what host and controller agreed on.
func (c *Controller) Limits() Limits { return c.limits }

// Remote is the controller's address.
func (c *Controller) Remote() netip.AddrPort { return c.cfg.Remote }

// Admin is the admin queue.
func (c *Controller) Admin() *Queue { return c.admin }

// Queues returns the I/O queues; the first has ID 1. The slice must not be modified, but may be appended to.
func (c *Controller) Queues() []*Queue { return slices.Clip(c.io) }

// Counters returns the controller's counters. Each queue has its own.
func (c *Controller) Counters() *Counters { return &c.counters }

// Errors returns the number of commands of all queues that were answered with an error.
func (c *Controller) Errors() uint64 {
	n := c.admin.Counters().Errors()
	for _, q := range c.io {
		n += q.Counters().Errors()
	}
	return n
}

// Alloc returns n bytes of memory that the transport transfers at the least cost, aligned as [Transport] says.
func (c *Controller) Alloc(n int) ([]byte, error) { return c.cfg.Transport.Alloc(n) }

// Free releases memory from Alloc.
func (c *Controller) Free(b []byte) { c.cfg.Transport.Free(b) }

// Done is closed when the controller was lost or closed; Err then says why.
func (c *Controller) Done() <-chan struct{} { return c.done }

// Err is nil while the controller is usable; afterwards it is an error that matches ErrLost or ErrClosed.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// lost returns the error for a loss because of cause.
func (c *Controller) lost(cause error) error {
	return &LostError{Peer: c.cfg.Remote, SubNQN: c.cfg.SubNQN, Cause: cause}
}

// logKeys returns the log attributes that identify the controller, followed by more. The target uses the same keys.
func (c *Controller) logKeys(more ...any) []any {
	keys := []any{"transport", c.cfg.Transport.Type().String(), "remote", c.cfg.Remote, "subsystem", c.cfg.SubNQN}
	if c.live.Load() { // before that, the identifier may just be arriving
		keys = append(keys, "cntlid", c.cntlid)
	}
	return append(keys, more...)
}

// fail ends the controller because of err; only the first call has an effect. An error during Close is not a loss:
// only Close reports it. fail doesn't block: the queues are torn down in the background.
func (c *Controller) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if c.closing && !errors.Is(err, ErrClosed) {
		c.cut, err = err, errClosed
	}
	c.err = err
	queues := c.queues
	c.mu.Unlock()
	close(c.done)
	if !errors.Is(err, ErrClosed) {
		c.cfg.Log.Warn("controller lost", c.logKeys("err", err)...)
	}
	for _, q := range queues {
		q.refuse(err, true)
	}
	go c.tearDown(queues, err)
}

// tearDown closes every queue, the I/O queues first, and waits for the goroutines.
func (c *Controller) tearDown(queues []*Queue, err error) {
	var closing sync.WaitGroup
	for _, q := range slices.Backward(queues) {
		closing.Go(func() { q.close(err) })
	}
	closing.Wait()
	c.work.Wait()
	close(c.torn)
}

// shuttingDown reports whether Shutdown was called and nothing else has ended the controller.
func (c *Controller) shuttingDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing && c.err == nil
}

// adopt registers a queue that was dialled. It fails if the controller has already ended.
func (c *Controller) adopt(q *Queue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.queues = append(c.queues, q)
	return nil
}

// run starts a goroutine that ends when done is closed, and that tearDown waits for. It does nothing if the controller
// has already ended.
func (c *Controller) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.work.Go(f)
	}
}

// queueClosed implements queueOwner. The loss of one queue is the loss of the controller, except for an I/O queue
// of a controller that is shutting down: SPDK's target closes its I/O queues before it reports that it has shut
// down.
func (c *Controller) queueClosed(q *Queue, err error) error {
	if q.attr.QID != 0 && c.shuttingDown() {
		return errClosed
	}
	c.fail(c.lost(err))
	return c.Err()
}

// giveUp implements queueOwner.
func (c *Controller) giveUp(q *Queue, err error) { c.fail(c.lost(err)) }

// expired implements queueOwner.
func (c *Controller) expired(q *Queue, cid uint16, again bool) {
	if again || !c.live.Load() {
		c.fail(c.lost(fmt.Errorf("%w: queue %d, command %#04x", ErrTimeout, q.attr.QID, cid)))
		return
	}
	c.cfg.Log.Warn("command timeout", c.logKeys("qid", q.attr.QID, "cid", cid)...)
	c.abort(q, cid)
}

// abort implements queueOwner.
func (c *Controller) abort(q *Queue, cid uint16) {
	if c.shuttingDown() {
		return // the command ends with the controller, which should still shut down in an orderly way
	}
	if !c.live.Load() {
		c.fail(c.lost(errCancelledEarly))
		return
	}
	c.aborter.abort(c, victim{q, cid})
}

// command runs one admin command. data is sent or filled, depending on the direction of the command, by way of the
// transport's memory.
func (c *Controller) command(ctx context.Context, cmd *nvme.Command, data []byte) (nvme.Completion, error) {
	return c.commandOn(ctx, c.admin, cmd, data)
}

func (c *Controller) commandOn(ctx context.Context, q *Queue, cmd *nvme.Command, data []byte) (nvme.Completion, error) {
	return command(ctx, q, c, q.attr.QID, cmd, data)
}

// memory allocates memory that transfers at the least cost.
type memory interface {
	Alloc(n int) ([]byte, error)
	Free(b []byte)
}

// ioQueue stands for the identifier of any I/O queue: on the admin queue the opcodes name other commands.
const ioQueue = 1

func command(ctx context.Context, s sender, m memory, qid uint16, cmd *nvme.Command, data []byte) (nvme.Completion, error) {
	r := &Request{Cmd: *cmd}
	if len(data) > 0 {
		if b, err := m.Alloc(len(data)); err == nil {
			defer m.Free(b)
			r.Data = b[:len(data)]
		} else {
			r.Data = make([]byte, len(data))
		}
		if cmd.Direction() == nvme.HostToCtrl {
			copy(r.Data, data)
		}
	}
	if err := do(ctx, s, r, qid); err != nil {
		return r.CQE, err
	}
	if cmd.Direction() == nvme.CtrlToHost {
		copy(data, r.Data)
	}
	return r.CQE, nil
}
