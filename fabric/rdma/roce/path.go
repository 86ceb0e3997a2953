package roce

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// path is what queue pairs to one peer share: its address, the start of the ICRC, the round trip and the windows.
type path struct {
	remote netip.Addr
	dst    netip.AddrPort
	flow   wire.Flow
	refs   int
	noICRC int // queue pairs whose packets have no ICRC
	held   int // bytes held for all of them, see mayHold

	window window // of requests
	reads  window // of the answers to READs

	sendTurns, readTurns turns // of its queue pairs, for window and for reads
	atDevice             int   // its queue pairs in Device.readTurns

	rtt     time.Duration // smoothed; 0 before the first sample
	rttVar  time.Duration // smoothed deviation
	rttLast time.Duration
	rttMin  minimum
	round   round

	heardAt     time.Duration // when something was last heard for any queue pair
	patience    time.Duration // no timeout is shorter, see distrust
	assumesLate bool          // that what is answered after it was sent again was late, not lost …
	assumedAt   time.Duration // … and since when
	doubtful    doubtful      // before the first sample
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

// peer returns where packets to an address go. A link-local address is on our own link.
func (d *Device) peer(a netip.Addr) netip.AddrPort {
	if a.Is6() && a.IsLinkLocalUnicast() {
		a = a.WithZone(d.self.Addr().Zone())
	}
	return netip.AddrPortFrom(a, d.self.Port())
}

// bare returns an address in the form for comparison: IPv4 unmapped, and without a zone.
func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func (d *Device) newPath(remote netip.Addr) *path {
	dst := d.peer(remote)
	return &path{
		remote: remote,
		dst:    dst,
		flow:   wire.NewFlow(d.self, dst),
		window: newWindow(min(initialWindow, d.cfg.maxWindow), minWindow, d.cfg.maxWindow),
		reads:  newWindow(min(initialWindow, d.readBudget), min(minWindow, d.readBudget), d.readBudget),
	}
}

func (d *Device) releasePath(p *path) {
	if p.refs--; p.refs == 0 {
		delete(d.paths, p.remote)
	}
}

// The round trip that decisions go by is assumedRTT before the first sample, and at least minHold after it.
const (
	assumedRTT = time.Millisecond
	minHold    = 200 * time.Microsecond
)

// roundTrip returns the smoothed round trip, or an assumption.
func (p *path) roundTrip() time.Duration {
	if p.rtt == 0 {
		return assumedRTT
	}
	return max(p.rtt, minHold)
}

// round counts the samples of a round trip: a thousand queue pairs take a thousand, and each says correspondingly less
// (RFC 7323, appendix G). Otherwise the samples of one moment, which are alike, would make the path forget that there
// are others.
type round struct {
	ends    time.Duration
	samples int // in it
	before  int // in the one before
}

// sample adds a measured round trip (RFC 6298, section 2).
func (p *path) sample(rtt, now time.Duration) {
	p.rttLast = rtt
	p.rttMin.add(rtt, now)
	if p.rtt == 0 {
		p.rtt, p.rttVar = max(rtt, 1), rtt/2
		p.trust()
		p.judge(rtt)
		return
	}
	if r := &p.round; now >= r.ends {
		r.before, r.samples, r.ends = r.samples, 0, now+min(p.rtt, rtt)
	}
	p.round.samples++
	less := bits.Len(uint(max(p.round.before, p.round.samples))) - 1
	p.rttVar += ((rtt - p.rtt).Abs() - p.rttVar) >> (2 + less)
	p.rtt += (rtt - p.rtt) >> (3 + less)
	if rtt <= p.usual() {
		p.trust()
	}
}

// trust ends patience: the round trip is known.
func (p *path) trust() { p.patience, p.assumesLate = 0, true }

// startTimeout is how long an answer may take as long as no round trip is known (RFC 6298, section 2.1).
const startTimeout = time.Second

// doubtful describes the last answer to something that was sent again, for as long as no round trip is known.
type doubtful struct {
	since time.Duration // when it was sent first
	after time.Duration // how long after the last transmission the answer came
}

// judge tells the windows if the first sample of the round trip shows that the doubtful answer came too early for the
// last transmission: then the first one was not lost, but the timeout was too short for the path (as in the Eifel
// algorithm, RFC 3522).
func (p *path) judge(rtt time.Duration) {
	if d := p.doubtful; d.since > 0 && d.after < rtt*3/4 {
		p.window.wasLate(d.since)
		p.reads.wasLate(d.since)
	}
}

// distrust is told that something that was sent again has been answered, and when it was sent first and last. The
// answer may be to either transmission, so it isn't a sample. If it was late, what follows has to be given that much
// time: otherwise it would be sent again as well, and the round trip would never become known (Karn's algorithm; RFC
// 6298, sections 3 and 5).
//
// If the last transmission may well have been answered so soon, the first may have been lost instead. Until a sample
// tells which it was, the two are assumed in turn, each for what is sent from then on: losses then don't make patience
// ever longer, and it doesn't stay too short for the path. While a round trip is known, a loss is assumed first.
func (p *path) distrust(first, last, now time.Duration) {
	took, after := now-first, now-last
	expected := max(p.usual(), minEarlyTimeout)
	if p.rtt == 0 {
		expected = startTimeout
		p.doubtful = doubtful{first, after}
	}
	soon := after <= expected
	if !soon || first >= p.assumedAt {
		p.assumesLate, p.assumedAt = !soon || !p.assumesLate, now
	}
	switch {
	case !p.assumesLate:
		p.patience = 0
	case soon: // there may have been an outage
		p.patience = max(p.patience, 2*min(took, startTimeout))
	default:
		p.patience = max(p.patience, 2*took)
	}
}

// usual returns how long an acknowledgement may take, going by the samples.
func (p *path) usual() time.Duration { return 2*p.rtt + 4*p.rttVar }

// delayed reports whether packets wait somewhere on the way: the last round trip is far longer than the shortest.
func (p *path) delayed() bool {
	const noise = 50 * time.Microsecond
	return p.rttLast > 2*p.rttMin.value()+noise
}

// minimum is the smallest sample of the last few seconds.
type minimum struct {
	now, before time.Duration // of this period, and of the one before; 0: none
	since       time.Duration
}

const minimumPeriod = 5 * time.Second

func (m *minimum) add(v, now time.Duration) {
	if now-m.since >= minimumPeriod {
		m.before, m.now, m.since = m.now, 0, now
	}
	if m.now == 0 || v < m.now {
		m.now = v
	}
}

func (m *minimum) value() time.Duration {
	if m.before != 0 && m.before < m.now {
		return m.before
	}
	return m.now
}

// timeout returns how long an acknowledgement may reasonably take, and at least least.
func (p *path) timeout(least time.Duration) time.Duration {
	return max(p.usual(), p.patience, least)
}
