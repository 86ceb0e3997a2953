package roce

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// path is what queue pairs to one peer share: its address, the ICRC's beginning, the round
// trip and the window.
type path struct {
	remote netip.Addr
	dst    netip.AddrPort
	flow   wire.Flow
	refs   int

	window  window
	waiting waitList
	rtt     time.Duration // smoothed; 0 before the first sample
	rttVar  time.Duration // smoothed deviation
}

// pathTo finds or makes the path to a peer, and counts a use. The device's lock is held.
func (d *Device) pathTo(remote netip.Addr) *path {
	p := d.paths[remote]
	if p == nil {
		p = d.newPath(remote)
		d.paths[remote] = p
	}
	p.refs++
	return p
}

// peer is where packets to an address go. A link-local one is on our own link.
func (d *Device) peer(a netip.Addr) netip.AddrPort {
	if a.Is6() && a.IsLinkLocalUnicast() {
		a = a.WithZone(d.self.Addr().Zone())
	}
	return netip.AddrPortFrom(a, d.self.Port())
}

// bare is an address as it is compared: IPv4 as such, and without a zone.
func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func (d *Device) newPath(remote netip.Addr) *path {
	dst := d.peer(remote)
	return &path{
		remote: remote,
		dst:    dst,
		flow:   wire.NewFlow(d.self, dst),
		window: newWindow(min(initialWindow, d.cfg.MaxWindow), minWindow, d.cfg.MaxWindow),
	}
}

func (d *Device) releasePath(p *path) {
	if p.refs--; p.refs == 0 {
		delete(d.paths, p.remote)
	}
}

// Bounds of what the round trip is taken for where it steers something.
const (
	assumedRTT = time.Millisecond
	minHold    = 200 * time.Microsecond
)

// roundTrip is the smoothed round trip, or an assumption.
func (p *path) roundTrip() time.Duration {
	if p.rtt == 0 {
		return assumedRTT
	}
	return max(p.rtt, minHold)
}

// sample takes a measured round trip (RFC 6298, section 2).
func (p *path) sample(rtt time.Duration) {
	if p.rtt == 0 {
		p.rtt, p.rttVar = max(rtt, 1), rtt/2
		return
	}
	p.rttVar += ((rtt - p.rtt).Abs() - p.rttVar) / 4
	p.rtt += (rtt - p.rtt) / 8
}

// foundLost takes note of n packets that were lost, while others behind them arrived.
func (p *path) foundLost(n int, now time.Duration) {
	p.window.lost(now, p.roundTrip())
}

// earlyTimeout is how long an acknowledgement may reasonably take.
func (p *path) earlyTimeout() time.Duration {
	return max(2*p.rtt+4*p.rttVar, minEarlyTimeout)
}

// waitList holds queue pairs that wait for a window to open. A queue pair may be in it and
// have gone on already by another way; waking it then does no harm.
type waitList struct {
	qps []*qp
}

func (l *waitList) add(q *qp, waiting *bool) {
	if !*waiting {
		*waiting = true
		l.qps = append(l.qps, q)
	}
}

// wakeForWindow makes everyone ready who waits for p's window.
func (d *Device) wakeForWindow(p *path) {
	for i, q := range p.waiting.qps {
		q.req.waitsWindow = false
		d.markReady(q)
		p.waiting.qps[i] = nil
	}
	p.waiting.qps = p.waiting.qps[:0]
}

// wakeForReads makes everyone ready who waits for room for READ responses.
func (d *Device) wakeForReads() {
	for i, q := range d.readWaiting.qps {
		q.req.waitsReads = false
		d.markReady(q)
		d.readWaiting.qps[i] = nil
	}
	d.readWaiting.qps = d.readWaiting.qps[:0]
}
