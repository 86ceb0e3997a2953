package multipath

import "time"

// firstPause is the pause before the first attempt to reconnect.
const firstPause = 100 * time.Millisecond

// backoff yields the pauses between attempts: each is twice the previous one, up to most.
type backoff struct {
	next, most time.Duration
}

func newBackoff(most time.Duration) backoff {
	return backoff{next: min(firstPause, most), most: most}
}

func (b *backoff) pause() time.Duration {
	d := b.next
	b.next = min(2*d, b.most)
	return d
}
