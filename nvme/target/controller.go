package target

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// controller is one controller, I/O or discovery. It is made by Connect on an admin queue, and ends with that queue.
type controller struct {
	t       *Target
	sub     *Subsystem
	id      uint16
	hostNQN string
	hostID  nvme.HostID
	admin   *Queue
	attr    ConnAttr // of the admin queue
	since   time.Time

	ana atomic.Pointer[anaStates] // of its port; nil: all are optimized
	// detached are the namespaces that are not attached; nil if there are none, which costs reads and writes nothing.
	detached atomic.Pointer[nsSet]
	live     atomic.Bool // enabled and ready: commands are executed
	errors   errorLog
	// noCache: the host was told that no write can be lost, so it sends no Flush.
	noCache atomic.Bool

	mu        sync.Mutex
	dead      bool
	flushing  bool      // flushCaches is running
	again     bool      // and has to run again: the controller was shut down once more
	looks     looks     // for commands that have to end before CSTS changes, since the change became due
	left      leftovers // commands of its host
	cc        nvme.CC
	csts      nvme.CSTS
	queues    map[uint16]*Queue // I/O queues
	retired   *IOStats          // of those that are gone; nil if none is
	features  features
	events    events
	anaCounts anaCounts
	kato      time.Duration
	timer     *time.Timer   // keep-alive; nil if there is none
	due       time.Duration // when timer runs out, on the target's clock
}

// newController makes a controller for the host of q.
func (t *Target) newController(q *Queue, sub *Subsystem, d *nvme.ConnectData) (*controller, *refusal) {
	c := &controller{
		t: t, sub: sub, hostNQN: d.HostNQN, hostID: d.HostID, admin: q, attr: q.attr,
		since: time.Now(), queues: map[uint16]*Queue{},
	}
	c.features.reset(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, revoked := t.mustAuthenticate(sub, d.HostNQN)
	switch {
	case t.closed:
		return nil, refuse(nvme.StatusConnectBusy, "the target is closing")
	case t.draining:
		return nil, refuse(nvme.StatusConnectBusy, "the target is draining")
	case sub.removed:
		return nil, refuseData(nvme.ConnectDataOffSUBNQN, "the subsystem was removed")
	case revoked != nil: // since connect
		return nil, revoked
	case !sub.allows(d.HostNQN): // since find
		return nil, refuse(nvme.StatusConnectInvalidHost|nvme.StatusDNR, "the host isn't allowed any more")
	case len(t.controllers) >= t.limits.Controllers:
		return nil, refuse(nvme.StatusConnectBusy, "the target has %d controllers, the limit", len(t.controllers))
	case sub.maxCtrls > 0 && sub.controllers >= sub.maxCtrls:
		return nil, refuse(nvme.StatusConnectBusy, "the subsystem has %d controllers, its limit", sub.controllers)
	}
	c.id = t.nextCNTLID()
	q.ctrl = c // before anybody finds q through c
	t.controllers[c.id] = c
	c.ana.Store(t.anaFor(c))
	t.giveNamespaces(c)
	sub.controllers++
	sub.meet(c.host())
	return c, nil
}

// nextCNTLID returns the controller identifier that has been free for longest. There are always more identifiers than
// controllers. Called with mu held.
func (t *Target) nextCNTLID() uint16 {
	for {
		t.lastCNTLID++
		if t.lastCNTLID > nvme.CNTLIDMax {
			t.lastCNTLID = 1
		}
		if t.controllers[t.lastCNTLID] == nil {
			return t.lastCNTLID
		}
	}
}

// controller finds a live controller; nil if there is none.
func (t *Target) controller(id uint16) *controller {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.controllers[id]
}

// reserve takes the place of I/O queue qid for q.
func (c *controller) reserve(qid uint16, q *Queue) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return refuseGone(c.id)
	case !c.live.Load():
		return refuseCommand(nvme.ConnectOffQID, "controller %d isn't enabled", c.id)
	case c.queues[qid] != nil:
		return refuse(nvme.StatusCommandSequence|nvme.StatusDNR, "controller %d has a queue %d already", c.id, qid)
	}
	q.ctrl, q.qid = c, qid // before anybody finds q through c
	c.queues[qid] = q
	return nil
}

func (c *controller) drop(qid uint16, q *Queue) {
	c.mu.Lock()
	if c.queues[qid] == q {
		delete(c.queues, qid)
		c.retire(q)
	}
	c.mu.Unlock()
}

// retire keeps the counters of an I/O queue that ends before the controller does. Called with mu held.
func (c *controller) retire(q *Queue) {
	if c.retired == nil {
		c.retired = new(IOStats)
	}
	q.io.addTo(c.retired)
}

// queueDown is called when the connection of a queue is ending.
func (c *controller) queueDown(q *Queue, err error) {
	if q.qid == 0 {
		c.destroy(err)
		return
	}
	c.drop(q.qid, q)
	if !Orderly(err) && !errors.Is(err, ErrControllerLost) { // of which destroy tells
		c.t.log.Warn("I/O queue lost", q.identity("reason", err)...)
	}
}

// destroy ends the controller, whose admin queue is down, and with it its I/O queues.
func (c *controller) destroy(err error) {
	draining := c.t.Draining()
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.dead = true
	c.live.Store(false)
	if c.timer != nil {
		c.timer.Stop()
	}
	gone := ErrControllerGone
	if !Orderly(err) {
		gone = ErrControllerLost
	}
	// A transport can't tell a host that ended its connections from one that was killed: the kernel closes their
	// connections in the same way. Only a living host shuts its controller down first. But a host that Drain
	// disconnects may close its other connections when it finds its first one closed.
	if (err == nil || errors.Is(err, io.EOF)) && c.cc.Enabled() && c.cc.Shutdown() == nvme.CCSHNNone {
		err = ErrNoShutdown
		if draining {
			err = ErrDraining
		}
	}
	held := c.events.takeAll()
	queues := c.takeQueues()
	c.mu.Unlock()

	c.t.mu.Lock()
	delete(c.t.controllers, c.id)
	c.sub.controllers--
	if c.ana.Load() != nil && c.t.portAt(c.attr.Transport, c.attr.Local) == nil {
		c.t.barAll() // nobody else may have what its port left it
	}
	if !Orderly(err) {
		c.t.totals(c.attr.Transport).lostHosts++
	}
	c.t.mu.Unlock()

	for _, q := range queues {
		q.disconnect(gone)
	}
	for _, r := range held {
		r.respond(nvme.StatusAbortSQDeleted)
	}
	c.mu.Lock()
	c.unhold()
	c.mu.Unlock()
	args := c.identity("queues", len(queues))
	if err != nil {
		args = append(args, "reason", err)
	}
	if Orderly(err) {
		c.t.log.Info("host disconnected", args...)
	} else {
		c.t.log.Warn("host lost", args...)
	}
}

// takeQueues empties the table of I/O queues. Called with mu held.
func (c *controller) takeQueues() []*Queue {
	all := make([]*Queue, 0, len(c.queues))
	for _, q := range c.queues {
		all = append(all, q)
		c.retire(q)
	}
	clear(c.queues)
	return all
}

// fatal ends the controller because of err: CSTS.CFS is set, and every connection is closed.
func (c *controller) fatal(err error) {
	c.mu.Lock()
	c.csts |= nvme.CSTSFatal
	c.live.Store(false)
	c.mu.Unlock()
	c.admin.disconnect(err)
}

// ended reports whether the connections of the controller are ending, or gone.
func (c *controller) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead || c.csts&nvme.CSTSFatal != 0
}

// registers returns CC and CSTS.
func (c *controller) registers() (nvme.CC, nvme.CSTS) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cc, c.csts
}

// configure executes a write of CC (NVMe base, "Controller Configuration"): enable, reset and shutdown.
func (c *controller) configure(cc nvme.CC) {
	var (
		held        []*Request
		gone, quiet []*Queue
	)
	c.mu.Lock()
	old := c.cc
	c.cc = cc
	c.looks.n = 0
	switch {
	case cc.Enabled() && !old.Enabled():
		c.enable()
	case !cc.Enabled() && old.Enabled():
		held, gone = c.reset()
	}
	switch {
	case cc.Shutdown() != nvme.CCSHNNone && old.Shutdown() == nvme.CCSHNNone:
		c.csts = c.csts&^nvme.CSTSShutdownMask | nvme.CSTSShutdownOccurs
		c.live.Store(false)
		c.again = c.flushing
		quiet = slices.Collect(maps.Values(c.queues))
	case cc.Shutdown() == nvme.CCSHNNone && old.Shutdown() != nvme.CCSHNNone:
		c.csts &^= nvme.CSTSShutdownMask
		c.goLive()
	}
	c.mu.Unlock()
	for _, q := range gone {
		q.disconnect(ErrReset)
	}
	for _, q := range quiet {
		q.dropFused()
	}
	for _, r := range append(held, c.withdrawFormats()...) {
		r.respond(nvme.StatusAbortRequested)
	}
	c.settle()
}

// withdrawFormats withdraws the commands that wait to have a namespace alone, if the controller is disabled or shut
// down. One that has begun ends with its present operation (chainAborted).
func (c *controller) withdrawFormats() (all []*Request) {
	if c.live.Load() {
		return nil
	}
	for _, ns := range c.sub.all() {
		all = append(all, ns.withdraw(c.admin.has)...)
	}
	return all
}

// enable checks CC and lets the controller become ready, or fails with CSTS.CFS. Called with mu held.
func (c *controller) enable() {
	cc := c.cc
	ok := cc&(nvme.CCMPSMask|nvme.CCAMSMask) == 0
	// All command sets are the NVM set alone. CAP doesn't offer that choice, but some hosts make it unasked: the targets
	// of Linux and SPDK accept it.
	if css := cc & nvme.CCCSSMask; css != nvme.CCCSSNVM && css != nvme.CCCSSAll {
		ok = false
	}
	// A discovery controller has no I/O queues, and hosts may or may not set their entry sizes.
	if !c.sub.discovery && (cc.IOSQES() != 6 || cc.IOCQES() != 4) {
		ok = false
	}
	c.csts = 0
	if c.dead || !ok {
		c.csts = nvme.CSTSFatal
	}
}

// reset is a Controller Level Reset: I/O queues and held event requests end, features get their defaults, the error log
// is emptied, and the Persistent Event log gets an event. The admin queue stays. Called with mu held.
func (c *controller) reset() (held []*Request, queues []*Queue) {
	c.live.Store(false)
	c.csts &= nvme.CSTSReady
	c.features.reset(c.t)
	c.noCache.Store(false)
	c.errors.clear()
	c.sub.noteReset(c)
	held, queues = c.events.takeAll(), c.takeQueues()
	c.events, c.anaCounts = events{}, anaCounts{}
	return held, queues
}

// flushCaches makes what the host wrote durable, as a shutdown demands, and reports that in CSTS.SHST. Only one runs at
// a time, however often a host shuts down and up again.
func (c *controller) flushCaches() {
	left := new(atomic.Int64)
	left.Store(1)
	done := func() {
		if left.Add(-1) == 0 {
			c.shutdownDone()
		}
	}
	for _, ns := range c.all() {
		if !ns.info.VolatileCache || !ns.get(0) {
			continue
		}
		left.Add(1)
		ns.volume.Submit(&blockdev.Request{Op: blockdev.OpFlush, Complete: func(r *blockdev.Request) {
			if r.Err != nil {
				ns.losses.add(volumeStatus(r.Op, r.Err))
				c.t.log.Warn("flush at shutdown failed", c.identity("nsid", ns.nsid, "err", r.Err)...)
			}
			ns.put(0)
			done()
		}})
	}
	done()
}

func (c *controller) shutdownDone() {
	c.mu.Lock()
	again := c.again
	c.flushing, c.again = false, false
	if !again && c.cc.Shutdown() != nvme.CCSHNNone {
		c.csts = c.csts&^nvme.CSTSShutdownMask | nvme.CSTSShutdownComplete
	}
	c.mu.Unlock()
	c.settle()
}
