package busypoll

import "time"

// Values that a user may configure.
const (
	// Default is about as long as the answer to a full batch of small requests takes.
	Default = 250 * time.Microsecond
	// Off sleeps at once. Zero means Default.
	Off = -1
	// Max is the longest time that may be configured.
	Max = 10 * time.Second
)

// Valid reports whether d may be configured.
func Valid(d time.Duration) bool { return d >= Off && d <= Max }

// Longest returns the longest time to look if d is configured; 0 means never.
func Longest(d time.Duration) time.Duration {
	switch d {
	case 0:
		return Default
	case Off:
		return 0
	}
	return d
}

// Poller decides before each wait at a socket whether to look (poll) for packets for a while instead of sleeping at
// once. Looking pays if the next packet arrives sooner than a sleep and a wake-up take, which can only be predicted
// from the last waits. For a socket that is quiet, or has a slow rhythm, it sleeps, and looks once in a while whether
// that has changed.
//
// The zero value is ready to use. A Poller belongs to the goroutine that waits.
type Poller struct {
	usual  time.Duration // how long waits take: a mean in which the last ones count most
	worked time.Duration // the longest of the recent turns between two waits, decaying
	slept  int           // waits since the last look
	trial  trial
	rivals rivals
}

// trial is a trial of patience: of looking for as long as is allowed. If each of two programs sleeps while it waits for
// the other, a wait takes as long as the other's wake-up, so both go on sleeping, though the answers would come soon if
// one of them didn't. No single wait distinguishes that from a wait for something slow. So patience is tried, and kept
// up while it shortens the mean wait. It also does so if the peer waits for a disk: by the wake-up that is saved.
type trial struct {
	on     bool
	pause  int           // waits until the next trial may begin
	waits  int           // since the trial began, was kept up, or ended
	sum    time.Duration // of those waits
	before time.Duration // the mean wait before the trial
}

const (
	// longWait is the most that a single wait counts for, so that looking begins again soon after a pause.
	longWait = time.Millisecond

	// lookAgain is how many waits go by without a look when sleeping, and waking up, takes longer than the wait itself.
	lookAgain = 64

	// trialWaits is how many waits a trial takes before it must have shortened them by a fifth, and trialPause how many
	// follow a trial that didn't.
	trialWaits, trialPause = 32, 512
)

// Limit returns the longest time to look, after the caller has worked for worked since the last wait. If much arrives
// at once, the peer's next answer takes about as long as our work did. The longest of the recent turns counts,
// decaying, until a look fails: a turn with just a few acknowledgements doesn't mean that the peer has as little to do.
// A fifth of longest is always worth it: by default that is about what a sleep and a wake-up on another processor take
// on a virtual machine, and it saves a wake-up on both sides. If waits take longer than the limit, but less than
// longest, a trial of longest is made.
func (p *Poller) Limit(worked, longest time.Duration) time.Duration {
	p.worked = max(worked, p.worked-p.worked/8)
	limit := min(max(2*p.worked, longest/5), longest)
	if p.trial.patient(limit, longest) {
		return longest
	}
	return limit
}

// patient reports whether to look for as long as allowed in the next wait, if looks are otherwise bounded by limit.
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

// Look reports whether to look before sleeping this time, for up to limit.
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

// Looked records whether the look found something. A failed look discards what the turns before it suggested.
func (p *Poller) Looked(found bool) {
	if !found {
		p.worked = 0
	}
	p.rivals.looked(found)
}

// Waited records how long the wait was.
func (p *Poller) Waited(d time.Duration) {
	p.usual += (min(d, longWait) - p.usual) / 4
	p.trial.waited(d)
	p.rivals.waited(d)
}
