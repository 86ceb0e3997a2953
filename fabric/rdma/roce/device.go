package roce

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Device is a software RNIC behind one UDP socket.
type Device struct {
	conn     udp.Conn
	near     udp.Sharing // the same connection, or nil
	cfg      Config
	attr     verbs.DeviceAttr
	self     netip.AddrPort // the socket's address, unmapped
	opened   time.Time
	counters counterSet
	done     chan struct{} // the engine has ended

	attendant *duty.Attendant // of the engine, which is on duty while it is awake; may be nil

	// mu guards everything below and every object of the device. It is not held during system calls and handlers.
	// sendLock is held while a batch is sent, and acquired under mu.
	mu       sync.Mutex
	sendLock sync.Mutex

	closed bool
	turn   bool      // a goroutine calls handlers and then sends
	over   sync.Cond // of mu: a turn is over
	posts  int       // number of posts during the turn since the last send
	rx     rxState

	qps    qpTable
	paths  map[netip.Addr]*path
	rkeys  rkeyTable
	lkeys  lkeyTable
	nextVA uint64
	gsi    qp1

	siblings  *siblings     // nil if the device has its address to itself
	keptUntil time.Duration // until when no handler is called unless the engine has caught up; 0: they are called
	keptFor   uint8         // the siblings, a bit each, until which have caught up no handler is called

	// For sending.
	sending      bool
	sent         sync.Cond // of mu: a batch has been sent, or nobody is sending any more
	tx           *txBatch
	ready, spare []*qp
	acking       []*qp // whose ACK a request may soon carry
	faults       []*qp

	// Needed only after losses, and kept for the next one.
	scoreboards pool[scoreboard]
	reorders    pool[reorder]
	heldPackets pool[heldPacket]
	held        int // bytes, see maxHeld

	calls []call // pending, in order

	timer   *time.Timer
	timerAt time.Duration // 0: off

	// Our READs are limited by what our own socket can hold of their answers, and for each path by its window.
	readBudget int // bytes
	readBytes  int // requested and not yet here
	readTurns  turns
	readers    int // number of paths on which READs are outstanding
	readPiece  int // bytes of one READ request, see qp.readPiece
}

// Open makes a device on a socket, which belongs to the device from then on unless Open fails. It is for softrnic:
// programs call softrnic.Open. Peers are expected on the socket's own UDP port, which outside of tests is 4791.
func Open(conn udp.Conn, cfg Config) (*Device, error) {
	d, err := newDevice(conn, cfg)
	if err != nil {
		return nil, err
	}
	d.start()
	return d, nil
}

func newDevice(conn udp.Conn, cfg Config) (*Device, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	mtu, err := fitMTU(verbs.MTU4096, conn.MTU())
	if err != nil {
		return nil, err
	}
	local := conn.LocalAddr()
	d := &Device{
		conn: conn, cfg: cfg,
		self:   netip.AddrPortFrom(local.Addr().Unmap(), local.Port()),
		opened: time.Now(),
		done:   make(chan struct{}),
		paths:  map[netip.Addr]*path{},
		qps:    newQPTable(&cfg),
		rkeys:  newRKeyTable(),
		tx:     newTxBatch(),
	}
	d.near, _ = conn.(udp.Sharing)
	d.sent.L, d.over.L = &d.mu, &d.mu
	var seed [16]byte
	_, _ = rand.Read(seed[:])
	const locallyAdministered = 1 << 57 // a GUID
	d.nextVA = (binary.BigEndian.Uint64(seed[8:])>>20 + 1) * pageSize
	d.gsi.psn = wire.MakePSN(uint32(seed[0])<<16 | uint32(seed[15])<<8)
	d.attr = verbs.DeviceAttr{
		Name: cfg.deviceName(d.self.Addr()), VendorID: vendorID,
		NodeGUID: binary.BigEndian.Uint64(seed[:]) | locallyAdministered, Addr: d.self.Addr(), ActiveMTU: mtu,
		MaxQP: maxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxSGERd: maxSGE, MaxCQE: maxCQE,
		MaxQPRdAtom: maxRdAtomic, MaxQPInitAtom: maxRdAtomic, MaxInline: maxInline, AckDelay: ackDelay,
	}
	// The whole buffer, although commands arrive there too: the kernel reserves twice that. While one half is in flight
	// the other is read.
	d.readBudget = max(min(conn.RecvBuffer(), cfg.maxWindow), 4*mtu.Bytes())
	d.readPiece = min(max(d.readBudget/2, wire.MaxPathMTU)&^(wire.MaxPathMTU-1), 128<<10)
	d.timer = time.AfterFunc(time.Hour, d.onTimer)
	d.timer.Stop()
	return d, nil
}

// Attr describes the device.
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// PathMTU returns the path MTU of a path on which packets of that many bytes, and no longer ones, get through, but
// never less than the smallest.
func (d *Device) PathMTU(packet int) verbs.MTU {
	m, err := fitMTU(d.attr.ActiveMTU, packet)
	if err != nil {
		return verbs.MTU256
	}
	return m
}

// Close destroys everything on the device and closes the socket. Work in progress gives no completion. It must not be
// called from a handler; if a timer or a posting goroutine called one, it may still be running when Close returns.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return d.fail("close", verbs.ErrClosed)
	}
	d.closed = true
	d.sendAnswers(slices.Clone(d.qps.all)...)
	d.timer.Stop()
	d.gsi.handler = nil
	for _, q := range d.qps.all {
		q.toReset()
		q.freed = true
	}
	d.lkeys.closeAll()
	for _, q := range d.ready {
		q.isReady = false
	}
	clear(d.ready)
	d.ready, d.acking = d.ready[:0], nil
	d.mu.Unlock()
	err := d.conn.Close()
	<-d.done
	if err != nil {
		return d.fail("close", err)
	}
	return nil
}

var _ verbs.Device = (*Device)(nil)
