package udp

import "time"

// poller decides before each wait whether to look for datagrams for a while instead of sleeping
// at once. Looking pays where the next datagram is nearer than a sleep and a wake-up take, which
// nobody knows beforehand: the last waits are what there is to go by. A look that found nothing
// is followed by more and more sleeps without one, so that a socket that is quiet, or has a slow
// rhythm, costs almost nothing.
type poller struct {
	misses int // looks in a row that found nothing
	skip   int // sleeps to come before the next look
}

// shortLook is about what a sleep and a wake-up on another processor take on a virtual machine: to
// look for that long costs twice the processor at worst, and often less, since what is saved is
// a wake-up on both sides.
const shortLook = 50 * time.Microsecond

// lookTime is how long to look after having worked for so long since the last wait. Where much
// arrives at once, the peer's next answer takes as long as our work did, and looking for that long
// at most doubles the processor time.
func lookTime(worked, longest time.Duration) time.Duration {
	return min(max(worked, shortLook), longest)
}

// maxMisses bounds the sleeps between two looks at 1<<maxMisses.
const maxMisses = 10

// look says whether to look before sleeping this time.
func (p *poller) look() bool {
	if p.skip > 0 {
		p.skip--
		return false
	}
	return true
}

// found and missed tell how a look ended.
func (p *poller) found() { p.misses = 0 }

func (p *poller) missed() {
	p.misses = min(p.misses+1, maxMisses)
	p.skip = 1<<p.misses - 1
}
