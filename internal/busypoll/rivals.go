package busypoll

import "time"

const (
	// lookingWaits is how many waits are judged at once. One look in vainShare may be in vain.
	lookingWaits, vainShare = 256, 8

	// trySleep is how many waits a trial of sleeping takes, and lookingPause how often it isn't repeated that was no
	// help. One that was holds for minAsleep waits at first, and for twice as many, up to maxAsleep, each time
	// that it is a help again.
	trySleep, lookingPause = 64, 16
	minAsleep, maxAsleep   = 1024, 16384

	// lostWait is what a wait counts at most: about a slice of the kernel's scheduler.
	lostWait = 3 * time.Millisecond
)

// rivals says whether to sleep at once because others want the processors. Who looks uses up its share, and keeps
// the peer waiting that has something to answer; who sleeps is let in at once. But looks are in vain for other
// reasons, too: where the peer is slow, or the machine takes processors away, sleeping is no help. So where many
// are, it is tried, and kept to for a while where it makes waits shorter.
//
// The zero value looks.
type rivals struct {
	state   rivalState
	waits   int // since the state began
	looks   int // then
	vain    int // of them
	sum     time.Duration
	looking time.Duration // how long a wait was when many looks were in vain
	pause   int           // how often that is put up with
	hold    int           // waits that sleeping is kept to
}

type rivalState uint8

const (
	rivalsNone  rivalState = iota // or not worth sleeping for
	rivalsTried                   // asleep, to see whether waits are shorter
	rivalsThere                   // asleep, as they were
)

func (r *rivals) asleep() bool { return r.state != rivalsNone }

// waited takes a wait.
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

// judge ends lookingWaits of looking.
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
