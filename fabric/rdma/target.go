package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TargetConfig configures a Listener. The zero value uses the defaults.
type TargetConfig struct {
	// InCapsule is the maximum data in an I/O command capsule, in bytes: a multiple of 16, at most 16384. 0 means 4096,
	// a negative value none.
	InCapsule int
	// MaxTransfer is the maximum data of one command, in bytes: a power of two from 4096 to 8 MiB. 0 means 1 MiB.
	MaxTransfer int
	// QueueDepth bounds the entries of one queue; 0 means 128, at most 1024. A host that asks for more is refused with
	// "invalid HSQSIZE".
	QueueDepth int
	// Memory bounds what all connections use together, in bytes; 0 means 256 MiB. The buffers of connections take at
	// most half of it, those of one host three eighths: a connection that finds none left is rejected with "no
	// resources". Commands wait for memory.
	Memory int64
	// PeerMemory bounds the data of the commands of one address, in bytes; 0 means a quarter of Memory. A host that
	// never accepts or supplies its data delays nobody but itself.
	PeerMemory int64
	// MaxPeerConns bounds the connections of one address; 0 means 256. Any more are rejected with "no resources".
	MaxPeerConns int
	// Log receives connects, refusals and failures, at a bounded rate; nil discards them.
	Log *slog.Logger
}

// Defaults and bounds of TargetConfig.
const (
	defaultInCapsule   = 4096
	maxInCapsule       = 16384
	defaultMaxTransfer = 1 << 20
	limitMaxTransfer   = 8 << 20
	defaultQueueDepth  = 128
	limitQueueDepth    = 1024
	defaultMemory      = 256 << 20
	defaultPeerConns   = 256
	adminQueueDepth    = 32 // entries of an admin queue, the size that every host uses
)

func (c TargetConfig) withDefaults() TargetConfig {
	c.InCapsule = max(cmp.Or(c.InCapsule, defaultInCapsule), 0)
	c.MaxTransfer = cmp.Or(c.MaxTransfer, defaultMaxTransfer)
	c.QueueDepth = cmp.Or(c.QueueDepth, defaultQueueDepth)
	c.Memory = cmp.Or(c.Memory, defaultMemory)
	c.MaxPeerConns = cmp.Or(c.MaxPeerConns, defaultPeerConns)
	c.PeerMemory = cmp.Or(c.PeerMemory, c.Memory/4)
	return c
}

// Validate returns an ErrConfig error that names the first field that can't be used, and its valid values.
func (c TargetConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.InCapsule > maxInCapsule || c.InCapsule%16 != 0:
		return badConfig("InCapsule %d: want a multiple of 16, at most %d", c.InCapsule, maxInCapsule)
	case c.MaxTransfer < 4096 || c.MaxTransfer > limitMaxTransfer || c.MaxTransfer&(c.MaxTransfer-1) != 0:
		return badConfig("MaxTransfer %d: want a power of two from 4096 to %d", c.MaxTransfer, limitMaxTransfer)
	case c.QueueDepth < adminQueueDepth || c.QueueDepth > limitQueueDepth:
		return badConfig("QueueDepth %d: want %d to %d", c.QueueDepth, adminQueueDepth, limitQueueDepth)
	case c.Memory < 2*int64(c.MaxTransfer):
		return badConfig("Memory %d: want at least twice MaxTransfer (%d)", c.Memory, c.MaxTransfer)
	case c.MaxPeerConns < 0:
		return badConfig("MaxPeerConns %d: want 0 (default) or more", c.MaxPeerConns)
	case c.PeerMemory < 0 || c.PeerMemory > c.Memory:
		return badConfig("PeerMemory %d: want 0 (a quarter of Memory) to Memory (%d)", c.PeerMemory, c.Memory)
	}
	return nil
}

// Listener accepts NVMe/RDMA connections for a target.
type Listener struct {
	target   *target.Target
	cfg      TargetConfig
	id       verbs.CMID
	memory   *memory
	buffers  *target.Buffers // memory, as volumes see it
	pool     *mem.Pool[*targetRequest]
	budget   budget
	counters *Counters
	prober   *time.Timer // runs probeAll while there are connections

	stop     sync.Once
	unlisten sync.Once
	failed   error // in unlisten
	mu       sync.Mutex
	conns    map[*targetConn]struct{}
	closed   bool
	done     sync.WaitGroup // connections not yet gone, and those being set up
	free     sync.Once      // frees what all of them used
}

// ListenTarget accepts connections to addr, whose address belongs to a device of cm, and hands their commands to t,
// until Close. Port 0 selects a free one, which Addr returns. The error is ErrConfig, target.ErrClosed, or that of cm.
func ListenTarget(cm verbs.ConnectionManager, addr netip.AddrPort, t *target.Target, cfg TargetConfig) (*Listener, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	switch {
	case cm == nil:
		return nil, badConfig("no ConnectionManager: want that of an RNIC")
	case t == nil:
		return nil, badConfig("no Target: want that of target.New")
	}
	cfg = cfg.withDefaults()
	cfg.Log = limitlog.New(cfg.Log)
	m, err := newMemory(cfg.Memory, cfg.MaxTransfer, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	buffers, err := t.NewBuffers(m.forget)
	if err != nil {
		m.close()
		return nil, fmt.Errorf("rdma: listen: %w", err)
	}
	m.added, m.now = buffers.Add, t.Now
	m.short = func(err error) {
		cfg.Log.Warn("rdma: no memory for more data: commands wait until there is, and connections are refused", "transport", "rdma", "local", addr, "err", err)
	}
	l := &Listener{
		target: t, cfg: cfg, memory: m, buffers: buffers, counters: new(Counters), conns: map[*targetConn]struct{}{},
		pool:   mem.NewPool(m.arena, cfg.PeerMemory, granted),
		budget: budget{bytes: cfg.Memory / 2, conns: cfg.MaxPeerConns, peers: map[netip.Addr]peerBudget{}},
	}
	l.prober = time.AfterFunc(probeAfter, l.probeAll)
	l.prober.Stop()
	if l.id, err = cm.CreateID(l.event); err == nil {
		if err = l.id.Listen(addr, limitBacklog); err != nil {
			l.destroy(l.id)
		}
	}
	if err != nil {
		buffers.Close()
		m.close()
		return nil, fmt.Errorf("rdma: listen: %w", err)
	}
	return l, nil
}

// limitBacklog is how many connection requests may wait. Each is answered in its event, before RDMA-CM looks at the
// next, so even a burst of them needs no more.
const limitBacklog = 128

// Addr returns the address that the listener listens on.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// Counters returns the counters of all connections together.
func (l *Listener) Counters() *Counters { return l.counters }

// Close stops listening, disconnects every host and returns when all memory is free again; another call waits for the
// same. It doesn't change discovery: the port that was added for the listener (DiscoveryPort) is removed with
// [target.Target.RemovePort], preferably before Close.
func (l *Listener) Close() error {
	l.Stop()
	l.done.Wait()
	l.free.Do(func() {
		l.buffers.Close()
		l.memory.close()
	})
	return l.failed
}

// Stop is the part of Close that doesn't wait: it stops listening and disconnects every host. Close, which has to
// follow, waits for requests that hang in a volume.
func (l *Listener) Stop() { l.stop.Do(l.disconnect) }

// disconnect destroys the listening identifier and ends every connection.
func (l *Listener) disconnect() {
	l.mu.Lock()
	l.closed = true
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	l.prober.Stop()
	l.destroy(l.id)
	// All are doomed before the first one ends: a host that finds one connection closed closes the others.
	conns = slices.DeleteFunc(conns, func(c *targetConn) bool { return !c.doom(errUnlistened) })
	for _, c := range conns {
		go c.end()
	}
}

// destroy destroys the listening identifier, unless that is done.
func (l *Listener) destroy(id verbs.CMID) {
	l.unlisten.Do(func() { l.failed = id.Destroy() })
}

func (l *Listener) event(ev verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMConnectRequest:
		l.requested(ev)
	case verbs.CMDeviceRemoval: // its connections are told, too
		l.cfg.Log.Warn("rdma: no longer listening", "transport", "rdma", "local", ev.ID.LocalAddr(), "err", ErrDeviceRemoval)
		l.destroy(ev.ID)
	}
}

// requested accepts or rejects a connection.
func (l *Listener) requested(ev verbs.CMEvent) {
	if !l.begin() {
		_ = ev.ID.Reject(RejectNoResources.bytes())
		_ = ev.ID.Destroy()
		return
	}
	defer l.done.Done()
	if status, err := l.connect(ev); err != nil {
		l.counters.Rejected.Add(1)
		if errors.Is(err, errShare) || errors.Is(err, mem.ErrExhausted) || errors.Is(err, target.ErrLimit) {
			l.counters.Limited.Add(1)
		}
		l.report(ev.ID.RemoteAddr(), status, err)
		_ = ev.ID.Reject(cmp.Or(status, RejectNoResources).bytes())
		_ = ev.ID.Destroy()
	}
}

// report logs why the connection of a host wasn't accepted. That a target which drains or closes refuses its hosts,
// each of which tries again and again, is nothing to warn of.
func (l *Listener) report(remote netip.AddrPort, status RejectStatus, err error) {
	level := slog.LevelWarn
	if errors.Is(err, target.ErrDraining) || errors.Is(err, target.ErrClosed) {
		level = slog.LevelDebug
	}
	if status == 0 {
		l.cfg.Log.Log(context.Background(), level, "rdma: connection not accepted", "transport", "rdma", "remote", remote, "err", err)
	} else {
		l.cfg.Log.Log(context.Background(), level, "rdma: connection refused", "transport", "rdma", "remote", remote, "status", status, "err", err)
	}
}

// begin makes Close wait for a connection that is being set up; it returns false after Close.
func (l *Listener) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.done.Add(1)
	}
	return !l.closed
}

// connect answers one connection request. After an error nothing is left of the connection except its identifier. The
// status is why the host's request was refused; it is 0 if nothing was wrong with the request, for instance if the host
// has given up.
func (l *Listener) connect(ev verbs.CMEvent) (RejectStatus, error) {
	req, status := parseConnectRequest(ev.Param.PrivateData)
	if status != 0 {
		return status, fmt.Errorf("%w: %v", ErrProtocol, status)
	}
	depth := int(req.HSQSize) + 1
	limit := l.cfg.QueueDepth
	if req.QID == 0 {
		limit = adminQueueDepth
	}
	if depth > limit || depth < 2 {
		return RejectInvalidHSQSize, fmt.Errorf("queue %d of %d entries, limit is %d", req.QID, depth, limit)
	}
	if req.HRQSize == 0 {
		return RejectInvalidHRQSize, errors.New("the host has no room for an answer")
	}
	if ev.Param.InitiatorDepth == 0 {
		return RejectInvalidIRD, errors.New("the host serves no RDMA READ")
	}
	c, err := l.newConn(ev.ID, req, depth)
	if err != nil {
		return RejectNoResources, err
	}
	return 0, c.accept(ev.Param.InitiatorDepth)
}

func (l *Listener) forget(c *targetConn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	l.done.Done()
}
