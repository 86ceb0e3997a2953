package rdma

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/crowd"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// targetConn is one queue pair of a host: target.Conn over an RC queue pair.
//
// Completions are handled in the provider's context (completions); the engine may also answer from other goroutines. A
// goroutine that finds no other one posting posts for all until nothing is left; but while completions are being
// delivered it leaves that to the goroutine that delivers them, so that the work of a batch is posted at once.
type targetConn struct {
	l     *Listener
	id    verbs.CMID
	dom   *domain
	share *mem.Share[*targetRequest] // the host's, of the data memory
	cq    *completions
	attr  target.ConnAttr
	queue *target.Queue

	depth    int
	budget   int64                      // its part of the listener's budget, in bytes
	newcomer *crowd.Member[*targetConn] // in the listener's budget
	maxSGE   int                        // pieces of memory in a WRITE
	maxSGERd int                        // the same in a READ
	sqSize   int

	// Each of the depth receive buffers has two pieces: commands lie side by side, because they arrive one after the
	// other and the processor prefetches; in-capsule data is aligned.
	commands   []byte
	commandSGE verbs.SGE
	inCapsule  int    // bytes of data that may come with a command
	inline     []byte // nil if that is 0
	inlineSGE  verbs.SGE
	cqes       []byte // a response per request
	cqeSGE     verbs.SGE

	poster                    // its mu guards the rest
	ready    []*targetRequest // to be posted, oldest first
	recvs    []int            // receive buffers to be posted
	free     []*targetRequest
	parked   []capsule // arrived while no request was free
	requests []*targetRequest
	inUse    int // requests that aren't free, and one for the live queue pair
	sqUsed   int
	probing  probeState
	together int   // bytes of data that can share a packet with the response that follows
	live     bool  // accepted: end takes it down
	dead     error // why the connection ends
}

type capsule struct {
	index, bytes int
	arrived      int64
}

// The states of a request.
const (
	reqFree = iota
	reqEngine
	reqPulling // READs are posted, or waiting to be
	reqSending // the response is posted, or waiting to be
)

// targetRequest is a command and the transport's state of it.
type targetRequest struct {
	target.Request
	conn  *targetConn
	index int

	state  int    // under conn.mu
	posted int    // work requests on the send queue
	recv   int    // receive buffer, -1 if it was given back
	inline []byte // the data that came with the command
	buf    []byte // from Alloc

	key        uint32
	addr       uint64
	invalidate bool
}

func (l *Listener) newConn(id verbs.CMID, req connectRequest, depth int) (*targetConn, error) {
	dom, err := l.memory.on(id.Device())
	if err != nil {
		return nil, err
	}
	dev := id.Device().Attr()
	c := &targetConn{
		l: l, id: id, dom: dom, depth: depth,
		maxSGE:   min(maxSGE, dev.MaxSGE),
		maxSGERd: min(maxSGE, dev.MaxSGE, dev.MaxSGERd),
		share:    l.pool.Join(id.RemoteAddr().Addr()),
		inUse:    1,
	}
	c.sqSize = max(min(4*depth, dev.MaxQPWR), mostWorkRequests(c.maxSGERd))
	if req.QID != 0 {
		c.inCapsule = l.cfg.InCapsule
	}
	c.attr = target.ConnAttr{
		Transport:   nvme.TransportRDMA,
		Local:       id.LocalAddr(),
		Remote:      id.RemoteAddr(),
		SGLS:        nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSInCapsuleOffs,
		InCapsule:   l.cfg.InCapsule,
		MaxTransfer: l.cfg.MaxTransfer,
		QueueDepth:  l.cfg.QueueDepth,
		QID:         int(req.QID),
		CNTLID:      -1,
	}
	if req.CNTLID != 0 {
		c.attr.CNTLID = int(req.CNTLID)
	}
	c.conn = c
	if err := c.setUp(); err != nil {
		c.tearDown()
		return nil, err
	}
	return c, nil
}

// mostWorkRequests is how many entries of the send queue one command can take: its data may lie in many pieces, and the
// response follows. A shorter queue could never send it.
func mostWorkRequests(maxSGE int) int {
	return (blockdev.MaxSegments+maxSGE-1)/maxSGE + 1
}

// setUp makes buffers, requests, completion queue and queue pair, posts every receive, and creates the engine's queue.
func (c *targetConn) setUp() error {
	if err := c.makeBuffers(); err != nil {
		return err
	}
	var err error
	if c.cq, err = c.dom.completions(c.depth + c.sqSize); err != nil {
		return err
	}
	c.qp, err = c.id.CreateQP(c.dom.pd, verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: c.cq.cq, RecvCQ: c.cq.cq,
		MaxSendWR: c.sqSize, MaxRecvWR: c.depth,
		MaxSendSGE: c.maxSGE, MaxRecvSGE: 2,
		EventHandler: c.qpEvent,
	})
	if err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	c.cq.join(c.qp, c)
	for i := range c.depth {
		c.recvs = append(c.recvs, i)
	}
	c.batch = new(batch)
	c.takeRecvs()
	if err := c.batch.post(c.qp); err != nil {
		return fmt.Errorf("posting receives: %w", err)
	}
	c.queue, err = c.l.target.NewQueue(c)
	return err
}

func (c *targetConn) makeBuffers() error {
	m := c.l.memory
	// When the host's next command arrives, the response before it may not be acknowledged yet, so there are twice as
	// many requests as the queue has entries.
	n := 2 * c.depth
	bytes := int64(c.depth*(nvme.CommandSize+c.inCapsule) + n*nvme.CompletionSize)
	leave, ok := c.l.budget.take(c, bytes)
	for _, other := range leave {
		other.giveWay()
	}
	if !ok {
		return fmt.Errorf("no memory is left for the buffers of a queue of %d: %w", c.depth, errShare)
	}
	c.commands = m.arena.Alloc(c.depth * nvme.CommandSize)
	c.cqes = m.arena.Alloc(n * nvme.CompletionSize)
	if c.inCapsule > 0 {
		c.inline = m.arena.AllocSparse(c.depth * c.inCapsule)
	}
	if c.commands == nil || c.cqes == nil || c.inCapsule > 0 && c.inline == nil {
		return m.none(c.depth)
	}
	c.commandSGE, _, _ = m.sge(c.dom, c.commands)
	if c.inline != nil {
		c.inlineSGE, _, _ = m.sge(c.dom, c.inline)
	}
	c.cqeSGE, _, _ = m.sge(c.dom, c.cqes)
	c.requests = make([]*targetRequest, 0, n)
	return nil
}

// idleRequest returns a request that isn't in use, or nil if all are. Requests are made when that many are needed at
// once for the first time. Called with mu held.
func (c *targetConn) idleRequest() *targetRequest {
	if n := len(c.free); n > 0 {
		r := c.free[n-1]
		c.free = c.free[:n-1]
		return r
	}
	if len(c.requests) == cap(c.requests) {
		return nil
	}
	r := &targetRequest{conn: c, index: len(c.requests), recv: -1}
	r.Transport = r
	c.requests = append(c.requests, r)
	return r
}

// accept answers the connection request of a host that serves reads READs at once; the connection is live from here on.
func (c *targetConn) accept(reads uint8) error {
	c.id.SetHandler(c.cmEvent)
	c.l.mu.Lock()
	if c.l.closed {
		c.l.mu.Unlock()
		c.abandon()
		return ErrClosed
	}
	c.l.conns[c] = struct{}{}
	if len(c.l.conns) == 1 {
		c.l.watch()
	}
	c.l.done.Add(1)
	c.l.mu.Unlock()
	err := c.id.Accept(verbs.ConnParam{
		PrivateData:    connectAccept{CRQSize: uint16(c.depth)}.bytes(),
		InitiatorDepth: uint8(min(c.id.Device().Attr().MaxQPInitAtom, int(reads))),
		RetryCount:     7,
		RNRRetryCount:  7,
	})
	if err != nil {
		c.l.forget(c)
		c.abandon()
		return fmt.Errorf("accept: %w", err)
	}
	c.l.counters.Accepted.Add(1)
	c.l.counters.Connections.Add(1)
	c.l.cfg.Log.Debug("rdma: connected", "transport", "rdma", "remote", c.attr.Remote, "qid", c.attr.QID, "depth", c.depth)
	c.mu.Lock()
	c.live = true
	c.together = c.qp.Query().WriteSendMTU
	dead := c.dead != nil
	c.mu.Unlock()
	if dead {
		go c.end()
	}
	return nil
}

// abandon undoes newConn for a connection that was never accepted.
func (c *targetConn) abandon() {
	c.queue.Closed(ErrClosed)
	c.queue = nil
	c.tearDown()
}

// tearDown frees what setUp made. The queue pair is destroyed, or was never used.
func (c *targetConn) tearDown() {
	if c.qp != nil {
		_ = c.qp.Destroy()
	}
	if c.cq != nil {
		c.cq.leave(c.qp, c, c.depth+c.sqSize)
	}
	for _, b := range [][]byte{c.commands, c.inline, c.cqes} {
		if b != nil {
			c.l.memory.arena.Free(b)
		}
	}
	c.commands, c.inline, c.cqes = nil, nil, nil
	if c.budget > 0 {
		c.l.budget.giveBack(c)
	}
	c.l.pool.Serve()
	c.share.Leave()
}

// Attr describes the connection to the engine.
func (c *targetConn) Attr() target.ConnAttr { return c.attr }

func (c *targetConn) connError(stage string, err error) error {
	return &ConnError{Stage: stage, Peer: c.attr.Remote, QID: uint16(c.attr.QID), Err: err}
}

var _ target.Gatherer = (*targetConn)(nil)
