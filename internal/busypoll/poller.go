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
	usual  time.Duration // how long waits take: the last ones count most
	worked time.Duration // the longest of the last turns between two waits, fading
	slept  int           // waits since the last look
	trial  trial
	rivals rivals
}

// trial is one of patience: of looking for as long as may be. Where each of two programs sleeps while it waits for
// the other, a wait takes as long as the other's wake-up, so that both go on sleeping, though the answers would come
// soon if one of them didn't. No wait tells that from one for something slow. So it is tried, and kept up for as long
// as waits are shorter for it in the mean. So they are, too, where the peer waits for a disk: by the wake-up that is
// saved.
type trial struct {
	on     bool
	pause  int           // waits until one may begin
	waits  int           // since it began, was kept up, or is over
	sum    time.Duration // of them
	before time.Duration // their mean before it
}

const (
	// longWait is what a wait counts at most, so that looking begins again soon after a pause.
	longWait = time.Millisecond

	// lookAgain is how many waits go by without a look: a sleep takes longer than what was waited for.
	lookAgain = 64

	// trialWaits is how many waits a trial takes before it has to have shortened them by a fifth, and trialPause how
	// many follow one that didn't.
	trialWaits, trialPause = 32, 512
)

// Limit is how long to look at most after having worked for so long since the last wait. Where
// much arrives at once, the peer's next answer takes about as long as our work did. The longest of
// the last turns counts, fading, until a look was in vain: one of a few acknowledgements doesn't say
// that the peer has as little to do. A fifth of the longest is always worth it: by default about
// what a sleep and a wake-up on another processor take on a virtual machine, and what is saved is a
// wake-up on both sides. Where waits take longer, but not longer than the longest look, that is tried.
func (p *Poller) Limit(worked, longest time.Duration) time.Duration {
	p.worked = max(worked, p.worked-p.worked/8)
	limit := min(max(2*p.worked, longest/5), longest)
	if p.trial.patient(limit, longest) {
		return longest
	}
	return limit
}

// patient says whether to be patient in the next wait, where the looks of others limit.
func (t *trial) patient(limit, longest time.Duration) bool {
	switch {
	case t.waits < max(trialWaits, t.pause):
	case t.on && t.mean() > t.before*4/5:
		*t = trial{pause: trialPause}
	case t.on:
		*t = trial{on: true, before: t.before}
	default:
		m := t.mean()
		*t = trial{on: limit < m && m < longest, before: m}
	}
	return t.on
}

func (t *trial) mean() time.Duration { return t.sum / time.Duration(t.waits) }

func (t *trial) waited(d time.Duration) {
	t.waits++
	t.sum += min(d, longWait)
}

// Look says whether to look before sleeping this time, where that may take as long as limit.
func (p *Poller) Look(limit time.Duration) bool {
	if p.rivals.asleep() {
		return false
	}
	if p.usual > limit && p.slept < lookAgain {
		p.slept++
		return false
	}
	p.slept = 0
	return true
}

// Looked tells whether the look found something. After one in vain, what the turns before it say no longer
// holds.
func (p *Poller) Looked(found bool) {
	if !found {
		p.worked = 0
	}
	p.rivals.looked(found)
}

// Waited tells how long the wait was.
func (p *Poller) Waited(d time.Duration) {
	p.usual += (min(d, longWait) - p.usual) / 4
	p.trial.waited(d)
	p.rivals.waited(d)
}
