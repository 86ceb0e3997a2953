package udp

import "time"

// poller decides before each wait whether to look for datagrams for a while instead of sleeping
// at once. Looking pays where the next datagram is nearer than a sleep and a wake-up take, which
// nobody knows beforehand: the last waits are what there is to go by. A socket that is quiet, or has
// a slow rhythm, sleeps, and looks once in a while whether that has changed.
type poller struct {
	usual  time.Duration // how long waits take: the last ones count most
	worked time.Duration // the longest of the last turns between two waits, fading
	slept  int           // waits since the last look
}

const (
	// longWait is what a wait counts at most, so that looking begins again soon after a pause.
	longWait = time.Millisecond

	// lookAgain is how many waits go by without a look: a sleep takes longer than what was waited for.
	lookAgain = 64
)

// limit is how long to look at most after having worked for so long since the last wait. Where
// much arrives at once, the peer's next answer takes about as long as our work did. The longest of
// the last turns counts, fading, until a look was in vain: one of a few acknowledgements doesn't say
// that the peer has as little to do. A fifth of the longest is always worth it: by default about
// what a sleep and a wake-up on another processor take on a virtual machine, and what is saved is a
// wake-up on both sides.
func (p *poller) limit(worked, longest time.Duration) time.Duration {
	p.worked = max(worked, p.worked-p.worked/8)
	return min(max(2*p.worked, longest/5), longest)
}

// look says whether to look before sleeping this time, where that may take as long as limit.
func (p *poller) look(limit time.Duration) bool {
	if p.usual > limit && p.slept < lookAgain {
		p.slept++
		return false
	}
	p.slept = 0
	return true
}

// vain tells that a look found nothing: what the turns before it say no longer holds. The peer may
// be waiting for the very processor that looks.
func (p *poller) vain() { p.worked = 0 }

// waited tells how long the wait was.
func (p *poller) waited(d time.Duration) { p.usual += (min(d, longWait) - p.usual) / 4 }
