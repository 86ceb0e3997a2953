package tcp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// growRequests is how many slots a connection makes at a time.
const growRequests = 8

// targetConn is one connection of a host. It implements target.Conn for the engine, and
// pduHandler for its reader.
type targetConn struct {
	l     *Listener
	share *mem.Share[*request] // the host's share of the data memory
	conn  socket.Conn
	attr  target.ConnAttr
	queue *target.Queue
	r     *reader
	w     *writer

	// Agreed with ICReq; constant afterwards.
	format pdu.Format // of the PDUs that we send

	refused atomic.Bool // Connect was answered with an error, and may come again

	// Learned from a successful Connect.
	connected atomic.Bool
	ioQueue   bool // read after connected
	noFlow    bool // SQ flow control is disabled; read after connected

	// These belong to the reader.
	inBatch bool
	inline  *request // request whose capsule is arriving
	pull    *request // request whose H2CData is arriving
	capsule []byte   // mapping that the slots' in-capsule buffers are cut from
	slots   []*request
	last    int64 // when the last command or its data had arrived, by Target.Now

	mu         sync.Mutex
	free       []*request // a stack: the memory of the slot used last is in the cache
	busy       int        // slots that aren't free
	freed      sync.Cond
	responding atomic.Int32 // slots that Respond was called for and that aren't free yet

	// The watch over hosts that don't send the data that they were asked for.
	pulls    atomic.Int32 // requests whose data was asked for and isn't there
	progress atomic.Int64 // changes when data is asked for or arrives
	watching atomic.Bool  // the watch is running
	watch    *time.Timer
	before   int64 // progress at the last check; belongs to the watch

	ending atomic.Bool           // no more data will move
	asked  atomic.Pointer[error] // Disconnect was called, with this error
}

func newTargetConn(l *Listener, conn socket.Conn) *targetConn {
	c := &targetConn{l: l, conn: conn, attr: target.ConnAttr{
		Transport: nvme.TransportTCP,
		Local:     conn.LocalAddr(), Remote: conn.RemoteAddr(),
		SGLS:        nvme.SGLSSupported | nvme.SGLSInCapsuleOffs | nvme.SGLSTransport,
		InCapsule:   l.cfg.InCapsule,
		MaxTransfer: l.cfg.MaxTransfer,
		QueueDepth:  l.cfg.QueueDepth,
		QID:         -1, CNTLID: -1,
	}}
	c.freed.L = &c.mu
	c.watch = time.AfterFunc(time.Hour, c.checkProgress)
	c.watch.Stop()
	return c
}

// open makes what serve needs.
func (c *targetConn) open() (err error) {
	l := c.l
	c.r = newReader(c.conn, c, pdu.Controller, l.cfg.BusyPoll)
	c.w = newWriter(c.conn, &l.counters.Out)
	size := c.bufferSize() * l.cfg.QueueDepth
	// Mapped but not touched: a slot that never carries data uses no memory.
	c.capsule, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("%d bytes for data in capsules: %w", size, err)
	}
	return nil
}

// bufferSize returns the size of one slot's in-capsule memory in bytes: whole pages, for direct I/O.
func (c *targetConn) bufferSize() int {
	n := max(fabricsInCapsule, c.l.cfg.InCapsule)
	return (n + 4095) &^ 4095
}

// serve runs the connection from ICReq to its end.
func (c *targetConn) serve() {
	attachTap(c.l.cfg.Tap, c.conn, c.r, c.w)
	go c.w.serve()
	c.r.expect = c.queue.Expect
	c.r.attendant = duty.NewAttendant(func() { go c.read() })
	c.read()
}

// read receives until the connection ends, and ends it.
func (c *targetConn) read() {
	err := c.r.run()
	if errors.Is(err, errReplaced) {
		return
	}
	c.r.attendant.Close()
	c.end(err)
}

// batch implements pduHandler.
func (c *targetConn) batch() {
	c.inBatch = true
	c.w.hold()
}

// flush implements pduHandler.
func (c *targetConn) flush() (sent bool, err error) {
	if c.inBatch {
		c.inBatch = false
		sent = c.w.release()
		c.r.tally.publish(&c.l.counters.In)
	}
	if c.asked.Load() != nil {
		return sent, ErrClosed
	}
	return sent, nil
}

// interrupted implements pduHandler. A target sets no deadline: the engine ends a connection that doesn't connect.
func (c *targetConn) interrupted() error { return os.ErrDeadlineExceeded }

// header implements pduHandler.
func (c *targetConn) header(h pdu.Header, b []byte) error {
	switch h.Type {
	case pdu.TypeCapsuleCmd:
		return c.command(h, b)
	case pdu.TypeH2CData:
		return c.hostData(b)
	case pdu.TypeICReq:
		return c.initialize(b)
	}
	return terminatedBy(c.attr.Remote, b)
}

// data implements pduHandler.
func (c *targetConn) data(h pdu.Header, ok bool) error {
	if !ok {
		c.l.counters.DataDigestErrors.Add(1)
	}
	if c.inline != nil {
		return c.begin(ok)
	}
	r := c.pull
	c.pull = nil
	r.badData = r.badData || !ok
	if r.received < r.total {
		return nil
	}
	_, err := c.arrived()
	if err == nil { // otherwise abandon tells the engine
		c.pulled(r)
	}
	return err
}

// begin hands the command that has just arrived to the engine. ok says whether the digest of its data was right.
func (c *targetConn) begin(ok bool) error {
	now, err := c.arrived()
	if err != nil {
		return err // abandon frees the slot
	}
	r := c.inline
	c.inline = nil
	r.badData, r.Arrived = !ok, now
	c.queue.Submit(&r.Request)
	return nil
}

// standstill is how long nothing must have arrived before arrived checks whether the host has given up the connection.
const standstill = 100 * time.Millisecond

// arrived returns the time at which a command and its data are there. It fails if the host has given up the connection
// before the command could be handled, because this program or its machine stood still: the host may have written the
// same blocks by another path meanwhile, and the command would overwrite them with older data.
func (c *targetConn) arrived() (now int64, err error) {
	now = c.l.t.Now()
	since := now - c.last
	c.last = now
	if since > int64(standstill) && c.conn.Ended() {
		return 0, unix.ECONNRESET
	}
	return now, nil
}

// initialize answers an ICReq.
func (c *targetConn) initialize(b []byte) error {
	p, err := pdu.ParseICReq(b)
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	// Linux hosts want exactly the digests they asked for, and CPDA 0.
	digests := p.Digests & (pdu.DigestHeader | pdu.DigestData)
	c.format = pdu.Format{Digests: digests, PDA: p.HPDA}
	c.r.rules.Ready = true
	c.r.rules.Format = pdu.Format{Digests: digests}
	c.w.post(newPlain(pdu.ICResp{Digests: digests, MAXH2CDATA: uint32(c.l.cfg.MaxH2CData)}.Append(nil)), 0)
	return nil
}

// command handles a CapsuleCmd. Its data, if any, goes to the slot's buffer first.
func (c *targetConn) command(h pdu.Header, b []byte) error {
	cmd := nvme.CommandAt(b[pdu.HeaderSize:])
	n := h.DataLen()
	if n > c.inlineLimit(cmd) {
		return pdu.Invalid(pdu.OffPLEN, "PLEN: in-capsule data")
	}
	r := c.acquire()
	if r == nil {
		return &pdu.FieldError{FES: pdu.FESSequence, Field: "more commands than the queue holds"}
	}
	r.Cmd = *cmd
	r.direct = c.connected.Load() && c.noFlow
	r.inline = n
	c.inline = r
	if n == 0 {
		return c.begin(true)
	}
	c.r.place(r.buf[:n])
	return nil
}

// inlineLimit returns how many bytes of data the capsule of cmd may carry.
func (c *targetConn) inlineLimit(cmd *nvme.Command) int {
	if cmd.Opcode() != nvme.OpFabrics && c.connected.Load() && c.ioQueue {
		return c.l.cfg.InCapsule
	}
	return fabricsInCapsule
}

// hostData handles the header of an H2CData PDU: data that an R2T asked for, in order.
func (c *targetConn) hostData(b []byte) error {
	p, err := pdu.ParseData(b)
	if err != nil {
		return err
	}
	if int(p.TTAG) >= len(c.slots) || c.slots[p.TTAG].pulling.Load() != pullAsked {
		return pdu.Invalid(pdu.OffTTAG, "TTAG")
	}
	r := c.slots[p.TTAG]
	if p.CCCID != r.Cmd.CID() {
		return pdu.Invalid(pdu.OffCCCID, "CCCID")
	}
	if err := p.Check(); err != nil {
		return err
	}
	n := int(p.DATAL)
	if n > c.l.cfg.MaxH2CData {
		return &pdu.FieldError{FES: pdu.FESLimitExceeded, Field: "DATAL"}
	}
	if err := p.CheckRange(r.received, r.total); err != nil {
		return err
	}
	if (p.Flags&pdu.FlagLast != 0) != (n == r.total-r.received) {
		return pdu.Invalid(pdu.OffFlags, "LAST_PDU")
	}
	r.received += n
	c.progress.Add(1)
	r.place(c.r, n)
	c.pull = r
	return nil
}

// pulled tells the engine that the data of r is there.
func (c *targetConn) pulled(r *request) {
	r.pulling.Store(pullNone)
	c.pulls.Add(-1)
	if r.badData {
		r.Pulled(errTransfer)
		return
	}
	r.Pulled(nil)
}

// acquire takes a free slot. It returns nil if the host sent more commands than there can be slots.
func (c *targetConn) acquire() *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.free) > 0:
	case len(c.slots) < c.l.cfg.QueueDepth:
		c.grow()
	case !c.awaitFree():
		return nil
	}
	r := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.busy++
	r.send = sendState{}
	return r
}

// awaitFree waits for a free slot: a host that has our response may send its next command before the slot is marked
// free by the goroutine that is sending. It returns false if no response is on its way. Answers aren't held meanwhile,
// since the reader, which would send them, may wait for those. Called with mu held, which it releases meanwhile.
func (c *targetConn) awaitFree() bool {
	c.mu.Unlock()
	c.w.release()
	defer func() {
		c.mu.Unlock()
		c.w.hold()
		c.mu.Lock()
	}()
	c.mu.Lock()
	for len(c.free) == 0 {
		if c.responding.Load() == 0 || c.asked.Load() != nil {
			return false
		}
		if c.r.onDuty { // off duty until it receives again: that may take long, and others would rely on it
			c.mu.Unlock()
			c.r.leave()
			c.mu.Lock()
			continue
		}
		c.freed.Wait()
	}
	return true
}

// grow makes more slots.
func (c *targetConn) grow() {
	size := c.bufferSize()
	n := min(growRequests, c.l.cfg.QueueDepth-len(c.slots))
	made := make([]request, n)
	for i := range made {
		r := &made[i]
		r.conn, r.tag = c, uint16(len(c.slots))
		r.buf = c.capsule[int(r.tag)*size:][:size:size]
		r.Transport = r
		c.slots = append(c.slots, r)
		c.free = append(c.free, r)
	}
}

// release frees a slot after its response.
func (c *targetConn) release(r *request) {
	if r.memory != nil {
		b := r.memory
		r.memory = nil
		c.share.Free(b)
	}
	c.mu.Lock()
	c.free = append(c.free, r)
	c.busy--
	c.responding.Add(-1)
	c.freed.Signal()
	c.mu.Unlock()
}

// granted resumes a command that has waited for memory.
func granted(r *request, b []byte) {
	r.memory = b
	r.Resume()
}
