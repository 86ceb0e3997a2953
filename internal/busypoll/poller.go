package busypoll

import "time"

// What a user may ask for.
const (
	// Default is about what the answer to a full batch of small requests takes.
	Default = 250 * time.Microsecond
	// Off sleeps at once. Zero is Default.
	Off = -1
	// Max is the longest that anybody may look.
	Max = 10 * time.Second
)

// Valid says whether a user may ask for d.
func Valid(d time.Duration) bool { return d >= Off && d <= Max }

// Longest is how long to look at most where d was asked for; 0 is never.
func Longest(d time.Duration) time.Duration {
	switch d {
	case 0:
		return Default
	case Off:
		return 0
	}
	return d
}

// Poller decides before each wait at a socket whether to look for what comes for a while instead of
// sleeping at once. Looking pays where the next packet is nearer than a sleep and a wake-up take, which
// nobody knows beforehand: the last waits are what there is to go by. A socket that is quiet, or has
// a slow rhythm, sleeps, and looks once in a while whether that has changed.
//
// The zero value is ready; it belongs to whoever waits.
type Poller struct {
	// Wary has it sleep where many looks are in vain: somebody else has the processors. It
	// costs looks that would have found something where a processor is lost for moments only.
	Wary bool

	usual  time.Duration // how long waits take: the last ones count most
	worked time.Duration // the longest of the last turns between two waits, fading
	slept  int           // waits since the last look
	credit int           // what looks that found something have earned; below 0 sleeping is better
}

const (
	// longWait is what a wait counts at most, so that looking begins again soon after a pause.
	longWait = time.Millisecond

	// lookAgain is how many waits go by without a look: a sleep takes longer than what was waited for.
	lookAgain = 64

	// maxCredit and vainCost: one look in vain undoes what five that found something have earned, and
	// some seven in a row end looking for a while.
	maxCredit, vainCost = 32, 5
)

// Limit is how long to look at most after having worked for so long since the last wait. Where
// much arrives at once, the peer's next answer takes about as long as our work did. The longest of
// the last turns counts, fading, until a look was in vain: one of a few acknowledgements doesn't say
// that the peer has as little to do. A fifth of the longest is always worth it: by default about
// what a sleep and a wake-up on another processor take on a virtual machine, and what is saved is a
// wake-up on both sides.
func (p *Poller) Limit(worked, longest time.Duration) time.Duration {
	p.worked = max(worked, p.worked-p.worked/8)
	return min(max(2*p.worked, longest/5), longest)
}

// Look says whether to look before sleeping this time, where that may take as long as limit.
func (p *Poller) Look(limit time.Duration) bool {
	if (p.usual > limit || p.credit < 0) && p.slept < lookAgain {
		p.slept++
		return false
	}
	p.slept = 0
	return true
}

// Looked tells whether the look found something. After one in vain, what the turns before it say no longer
// holds. The peer may be waiting for the very processor that looks: where that is so (Wary), many looks are in
// vain, and both are better off asleep.
func (p *Poller) Looked(found bool) {
	if found {
		p.credit = min(p.credit+1, maxCredit)
		return
	}
	p.worked = 0
	if p.Wary {
		p.credit = max(p.credit-vainCost, -1)
	}
}

// Waited tells how long the wait was.
func (p *Poller) Waited(d time.Duration) { p.usual += (min(d, longWait) - p.usual) / 4 }
