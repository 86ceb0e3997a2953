package udp

// poller decides before each wait whether to look for datagrams for a while instead of sleeping
// at once. Looking pays where the next datagram is nearer than a sleep and a wake-up take, which
// nobody knows beforehand: the last waits are what there is to go by. A look that found nothing
// is followed by more and more sleeps without one, so that a socket that is quiet, or has a slow
// rhythm, costs almost nothing.
type poller struct {
	misses int // looks in a row that found nothing
	skip   int // sleeps to come before the next look
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
