package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Connect connects to a controller and makes it ready: the admin queue, enabling, Identify, asynchronous events,
// the I/O queues and keep alive. The error is a *ConnectError that names the stage, or that of Config.Validate.
func Connect(ctx context.Context, cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.ConnectTimeout,
		fmt.Errorf("%w: not connected after %v", ErrTimeout, cfg.ConnectTimeout))
	defer cancel()
	c := &Controller{
		cfg:       cfg,
		cntlid:    nvme.CNTLIDDynamic,
		done:      make(chan struct{}),
		torn:      make(chan struct{}),
		authTurn:  make(chan struct{}, 1),
		events:    events{ended: make(chan struct{})},
		transfers: sync.Pool{New: newTransfer},
	}
	c.auth.Store(cfg.Authentication)
	if err := c.setUp(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err.Err, cause) {
			err.Err = fmt.Errorf("%w (%w)", err.Err, cause)
		}
		c.fail(errClosed)
		<-c.torn
		return nil, err
	}
	return c, nil
}

// stage is one step of the set-up.
type stage struct {
	name string
	run  func(*Controller, context.Context) error
}

// The order is Linux's, with which every target is tested.
var stages = []stage{
	{"connection", (*Controller).connectAdmin},
	{"enabling", (*Controller).enable},
	{"Identify Controller", (*Controller).identify},
	{"keep alive", (*Controller).startKeepAlive},
	{"timestamp", (*Controller).setTimestamp},
	{"host behavior", (*Controller).setBehavior},
	{"I/O queues", (*Controller).connectIO},
	{"asynchronous events", (*Controller).startEvents},
}

func (c *Controller) setUp(ctx context.Context) *ConnectError {
	for _, s := range stages {
		err := s.run(c, ctx)
		if err == nil {
			err = c.Err() // it may have ended although its last command succeeded
		}
		if err != nil {
			return c.connectError(s.name, 0, err)
		}
	}
	c.live.Store(true)
	return nil
}

// connectError wraps err, unless a nested stage has already done so.
func (c *Controller) connectError(stage string, qid uint16, err error) *ConnectError {
	var e *ConnectError
	if errors.As(err, &e) {
		return e
	}
	return &ConnectError{Stage: stage, Transport: c.cfg.Transport.Type(), Peer: c.cfg.Remote,
		SubNQN: c.cfg.SubNQN, QID: qid, Err: err}
}

func (c *Controller) connectAdmin(ctx context.Context) error {
	q, err := c.dial(ctx, 0, nvme.AdminQueueSize, 0, adminTimeout)
	if err != nil {
		return err
	}
	c.admin = q
	res, err := c.connectQueue(ctx, q)
	if err != nil {
		return err
	}
	c.cntlid = res.CNTLID()
	return nil
}

// dial makes the connection of one queue.
func (c *Controller) dial(ctx context.Context, qid uint16, size, inCapsule int, timeout time.Duration) (*Queue, error) {
	attr := QueueAttr{Remote: c.cfg.Remote, Local: c.cfg.Local, QID: qid, Size: size, InCapsule: inCapsule}
	if qid != 0 {
		attr.CNTLID = c.cntlid
	}
	q := newQueue(attr, timeout, c)
	q.attr.Sink = (*sink)(q)
	var err error
	if q.tq, err = c.cfg.Transport.Dial(ctx, q.attr); err != nil {
		return nil, c.connectError("connection", qid, err)
	}
	if n := q.tq.Size(); n < size {
		q.resize(max(n, minQueueSize))
	}
	if err := c.adopt(q); err != nil {
		q.close(err)
		return nil, c.connectError("connection", qid, err)
	}
	return q, nil
}

// connectQueue runs the Connect command on a new queue, and authenticates the host on it.
func (c *Controller) connectQueue(ctx context.Context, q *Queue) (nvme.ConnectResult, error) {
	fail := func(err error) (nvme.ConnectResult, error) {
		return 0, c.connectError("Connect", q.attr.QID, err)
	}
	data := nvme.ConnectData{HostID: c.cfg.HostID, CNTLID: c.cntlid, SubNQN: c.cfg.SubNQN, HostNQN: c.cfg.HostNQN}
	page, err := data.AppendTo(nil)
	if err != nil {
		return fail(err)
	}
	var attr nvme.CATTR
	if c.cfg.DisableSQFlow {
		attr |= nvme.CATTRNoSQFlowControl
	}
	var kato uint32
	if q.attr.QID == 0 {
		kato = uint32(c.cfg.KATO.Milliseconds())
	}
	var cmd nvme.Command
	cmd.SetConnect(q.attr.QID, uint16(q.attr.Size-1), attr, kato)
	cqe, err := c.commandOn(ctx, q, &cmd, page)
	if err != nil {
		return fail(err)
	}
	res := nvme.ConnectResult(cqe.DW0())
	switch {
	case res&nvme.ConnectASCR != 0:
		return fail(ErrSecureChannel)
	case q.attr.QID != 0 && res.CNTLID() != c.cntlid:
		return fail(fmt.Errorf("%w: it answers as controller %d, the admin queue as %d", ErrController, res.CNTLID(), c.cntlid))
	}
	if err := c.authenticateNew(ctx, q, res&nvme.ConnectATR != 0); err != nil {
		return 0, c.connectError("authentication", q.attr.QID, err)
	}
	return res, nil
}

// connectIO agrees on the number of I/O queues and connects them.
func (c *Controller) connectIO(ctx context.Context) error {
	if c.withoutIO() {
		return nil
	}
	n := c.cfg.Queues
	res, err := c.SetFeature(ctx, nvme.FeatNumberOfQueues, 0, uint32(nvme.NewQueueCounts(n, n)), nil)
	if err != nil {
		return err
	}
	granted := nvme.QueueCounts(res)
	n = min(n, granted.SQ(), granted.CQ())
	for i := range n {
		q, err := c.dial(ctx, uint16(i+1), c.limits.QueueSize, c.limits.InCapsule, c.cfg.IOTimeout)
		if err != nil {
			return err
		}
		if _, err := c.connectQueue(ctx, q); err != nil {
			return err
		}
		c.io = append(c.io, q)
	}
	c.limits.Queues = n
	return nil
}

// withoutIO reports whether the controller has no I/O queues: then it is for administration, or for discovery.
func (c *Controller) withoutIO() bool {
	return c.identity.CNTRLTYPE == nvme.ControllerAdmin || c.discovery()
}

// discovery reports whether this is a discovery controller.
func (c *Controller) discovery() bool {
	return c.cfg.SubNQN == nvme.DiscoveryNQN || c.identity.CNTRLTYPE == nvme.ControllerDiscovery
}
