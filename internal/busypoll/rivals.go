package busypoll

import "time"

const (
	// lookingWaits is how many waits are judged at once. One in vainShare of the looks (polls before sleeping) may
	// fail.
	lookingWaits, vainShare = 256, 8

	// trySleep is how many waits a trial of sleeping takes. After a trial that didn't help, many failed looks are
	// tolerated lookingPause times before the next trial. After one that did, sleeping is kept up for minAsleep waits
	// at first, and for twice as many, up to maxAsleep, each time that it helps again.
	trySleep, lookingPause = 64, 16
	minAsleep, maxAsleep   = 1024, 16384

	// lostWait is the most that a single wait counts for: about a time slice of the kernel's scheduler.
	lostWait = 3 * time.Millisecond
)

// rivals decides whether to sleep at once because other programs want the processors. A program that looks uses up its
// share of the processor, and delays the peer that has something to answer; one that sleeps is scheduled at once when
// it wakes. But looks fail for other reasons, too: if the peer is slow, or a hypervisor takes processors away, sleeping
// doesn't help. So if many looks fail, sleeping is tried, and kept up for a while if it makes waits shorter.
//
// The zero value looks.
type rivals struct {
	state   rivalState
	waits   int // since the state began
	looks   int // among them
	vain    int // looks that failed
	sum     time.Duration
	looking time.Duration // the mean wait when many looks failed
	pause   int           // how many more times failed looks are tolerated
	hold    int           // for how many waits to keep sleeping
}

type rivalState uint8

const (
	rivalsNone  rivalState = iota // no rivals, or sleeping doesn't help
	rivalsTried                   // sleeping, to see whether waits are shorter
	rivalsThere                   // sleeping, as waits were shorter
)

func (r *rivals) asleep() bool { return r.state != rivalsNone }

// waited records a wait.
func (r *rivals) waited(d time.Duration) {
	r.waits++
	r.sum += min(d, lostWait)
	switch {
	case r.state == rivalsNone && r.waits >= lookingWaits:
		r.judge()
	case r.state == rivalsTried && r.waits >= trySleep:
		if r.mean() < r.looking*3/4 {
			r.hold = min(max(2*r.hold, minAsleep), maxAsleep)
			r.enter(rivalsThere)
		} else {
			r.pause, r.hold = lookingPause, 0
			r.enter(rivalsNone)
		}
	case r.state == rivalsThere && r.waits >= r.hold:
		r.enter(rivalsNone)
	}
}

func (r *rivals) looked(found bool) {
	r.looks++
	if !found {
		r.vain++
	}
}

// judge evaluates lookingWaits waits with looks.
func (r *rivals) judge() {
	switch {
	case r.vain*vainShare <= r.looks:
		r.hold = 0
		r.enter(rivalsNone)
	case r.pause > 0:
		r.pause--
		r.enter(rivalsNone)
	default:
		r.looking = r.mean()
		r.enter(rivalsTried)
	}
}

func (r *rivals) enter(s rivalState) {
	*r = rivals{state: s, looking: r.looking, pause: r.pause, hold: r.hold}
}

func (r *rivals) mean() time.Duration { return r.sum / time.Duration(r.waits) }
