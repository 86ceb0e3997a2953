package roce

import (
	"testing"
	"time"
)

// TestManySamples: a path's round trip, and its timeout, come out the same from one sample in each round trip and from
// a thousand, as that many queue pairs take, for which each batch of answers brings some hundreds at the same moment.
func TestManySamples(t *testing.T) {
	const trip = 8 * time.Millisecond
	for _, alike := range []int{1, 32, 250} {
		var p path
		now := time.Second
		for part := range 200 { // four of a round trip, in which the answers come later and later
			now += trip / 4
			for range alike {
				p.sample(trip*time.Duration(1+part%4)/4, now)
			}
			if part < 40 {
				continue
			}
			if p.rtt < trip/3 || p.rtt > trip {
				t.Fatalf("%d alike: the round trip is %v, want %v to %v", alike, p.rtt, trip/3, trip)
			}
			if wait := 2*p.rtt + 4*p.rttVar; wait < 3*trip/2 || wait > 4*trip {
				t.Fatalf("%d alike: an answer has %v, where they take up to %v", alike, wait, trip)
			}
		}
	}
}

// TestSamplesChange: that a path has become slower or faster is known after some round trips, whatever the number of
// queue pairs.
func TestSamplesChange(t *testing.T) {
	for _, qps := range []int{1, 1000} {
		var p path
		now := time.Second
		for _, trip := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 500 * time.Microsecond} {
			for range 60 {
				now += trip
				for range qps {
					p.sample(trip, now)
				}
			}
			if p.rtt < trip*9/10 || p.rtt > trip*11/10 {
				t.Errorf("%d queue pairs: the round trip is %v, want %v", qps, p.rtt, trip)
			}
		}
	}
}

// TestPatience: after a round trip far longer than all before, what follows is given that long until the samples say so
// too. Each sample of a crowd says little.
func TestPatience(t *testing.T) {
	const short, long = time.Millisecond, 100 * time.Millisecond
	p, now := new(path), time.Second
	for range 1000 {
		p.sample(short, now)
		now += short / 500
	}
	p.distrust(now-long, now-long, now)
	for range 1000 {
		if got := p.timeout(0); got < long {
			t.Fatalf("the timeout is %v where the round trip is %v", got, long)
		}
		p.sample(long, now)
		now += long / 500
	}
	if p.patience != 0 {
		t.Errorf("the samples of whole round trips don't count: %v", p.timeout(0))
	}
}
