package roce

import (
	"net/netip"
	"strconv"
	"time"
)

// Several devices may share an address, each with a socket and an engine of its own, so that more than one processor
// works for the queue pairs of one address. The kernel chooses the socket of a packet by its destination queue pair,
// whose number contains the index of its device:
//
//	bit    23  22 … 20  19 … 0
//	        1   index   random
//
// Numbers of a device that has its address to itself begin with a 0 bit, and the other 23 are random. So a sender of
// our kind knows which of its packets go to one engine: only those share a train, since the kernel gives a train that
// it has not cut into packets to one socket.

// MaxEngines is the largest number of devices at one address.
const MaxEngines = 8

// EngineShift is where the number of a queue pair has its device's index, which is less than MaxEngines.
const EngineShift = 20

const severalEngines = 1 << 23

// numbers returns which bits of the numbers of a device's queue pairs are random, and the others' values.
func (c *Config) numbers() (random, fixed uint32) {
	if c.Engines <= 1 {
		return severalEngines - 1, 0
	}
	return 1<<EngineShift - 1, severalEngines | uint32(c.Engine)<<EngineShift
}

// deviceName returns the name of a device at an address.
func (c *Config) deviceName(addr netip.Addr) string {
	name := "roce@" + addr.String()
	if c.Engines > 1 {
		name += "/" + strconv.Itoa(c.Engine)
	}
	return name
}

// engine is whose packets may be in a train: those for one of the peer's engines.
type engine uint8

const (
	anyEngine engine = 0          // the peer has only one, or isn't of our kind
	noEngine  engine = MaxEngines // the packet stays alone
)

// peerEngine returns the engine of the peer that has the queue pair that q is connected to.
func (q *qp) peerEngine() engine {
	if !q.selective || q.attr.DestQPN&severalEngines == 0 {
		return anyEngine
	}
	return noEngine + 1 + engine(q.attr.DestQPN>>EngineShift)%MaxEngines
}

// joins reports whether a packet for engine e may be in a train with those for an engine.
func (e engine) joins(train engine) bool { return e == train && e != noEngine }

// siblings are the devices that share an address.
type siblings struct {
	devices []*Device
	steer   func(packet []byte) int
}

// Join makes devices that share an address, in the order of Config.Engine, give each other the packets that the kernel
// has given to the wrong one: a network card may coalesce packets for several queue pairs. steer returns the index of
// the device that a packet is for. Join is called before there are queue pairs.
func Join(devices []*Device, steer func(packet []byte) int) {
	s := &siblings{devices, steer}
	for _, d := range devices {
		d.mu.Lock()
		d.siblings = s
		d.mu.Unlock()
	}
}

// stray is a packet that another device at this address should have got, with a correct ICRC.
type stray struct {
	of     *Device
	packet []byte
	src    netip.Addr
	marked bool
}

// isStray reports whether a packet is for another device at this address, and sets it aside if so. The device's lock is
// held.
func (d *Device) isStray(packet []byte, src netip.Addr, marked bool) bool {
	if d.siblings == nil {
		return false
	}
	i, all := d.siblings.steer(packet), d.siblings.devices
	if i == d.cfg.Engine || i >= len(all) {
		return false
	}
	d.counters.inc(Strays)
	d.rx.strays = append(d.rx.strays, stray{all[i], packet, src, marked})
	return true
}

// passStrays gives the packets that were set aside to their devices, and has handlers called for them, unless this
// engine catches up (see releaseSiblings). now is when the turn began: what was received may have waited if that was
// long ago. It is called by the engine, without the device's lock.
func (d *Device) passStrays(now time.Duration) {
	if len(d.rx.strays) == 0 {
		return
	}
	late := d.rx.late || d.now()-now > standstill
	for i := range d.rx.strays {
		s := &d.rx.strays[i]
		s.of.adopt(s, late)
		if d.rx.late {
			s.of.keepCallsFor(d)
		}
	}
	for i := range d.rx.strays {
		d.rx.strays[i].of.turnForStrays()
	}
	clear(d.rx.strays)
	d.rx.strays = d.rx.strays[:0]
}

// strayTime is how long what may have lain in another device's socket for long waits for our own engine, which may have
// stood still as well. If there is nothing in its socket it doesn't come.
const strayTime = 2 * time.Millisecond

// adopt takes a packet that another device's socket received. Called by that device's engine. late says that the packet
// may have lain there for long: then connection management is told of MADs before handlers are called, and our own
// socket may have the news that the peer has given up meanwhile (see catchUp), which our engine has to find first.
func (d *Device) adopt(s *stray, late bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	now := d.now()
	if late && d.keptUntil == 0 {
		d.keptUntil = now
		if now-d.rx.turned > standstill {
			d.keptUntil += strayTime
		}
	}
	d.take(s.packet, s.src, s.marked, now)
}

// turnForStrays has handlers called for what was adopted.
func (d *Device) turnForStrays() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.turnInPassing()
	}
}

// keepCallsFor has no handler called until another engine has caught up, which may still find news for us.
func (d *Device) keepCallsFor(other *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keptFor |= 1 << other.cfg.Engine
}

// releaseSiblings lets those devices call handlers that don't because of this one. It is called by the engine, without
// the device's lock.
func (d *Device) releaseSiblings() {
	if d.siblings == nil {
		return
	}
	for _, of := range d.siblings.devices {
		of.mu.Lock()
		if bit := uint8(1) << d.cfg.Engine; of.keptFor&bit != 0 && !of.closed {
			of.keptFor &^= bit
			of.turnInPassing()
		}
		of.mu.Unlock()
	}
}

// keepsCalls reports whether no handler may be called yet. They are called in time. The device's lock is held.
func (d *Device) keepsCalls() bool {
	switch {
	case d.keptFor != 0:
		return true
	case d.keptUntil == 0 || d.keptUntil <= d.now():
		return false
	}
	d.wakeAt(d.keptUntil)
	return true
}

// settleKept sees to it that connection management knows first what was received before handlers are called that were
// not for a while. The device's lock is held, and may be released meanwhile; the caller has the turn.
func (d *Device) settleKept() {
	if d.keptUntil != 0 {
		d.keptUntil = 0
		d.settleMADs()
	}
}
