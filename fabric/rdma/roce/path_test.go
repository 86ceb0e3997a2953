package roce

import (
	"math"
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

// TestSmoothedRoundTrip: of one sample in each round trip the smoothed one and its deviation are made as in RFC 6298.
func TestSmoothedRoundTrip(t *testing.T) {
	var p path
	now := time.Second
	var srtt, rttvar float64
	for i, ms := range []int{8, 16, 4, 30, 9, 9, 9, 70, 1, 12} {
		trip := time.Duration(ms) * time.Millisecond
		now += 100 * time.Millisecond
		p.sample(trip, now)
		if r := float64(trip); i == 0 {
			srtt, rttvar = r, r/2
		} else {
			rttvar = rttvar*3/4 + math.Abs(srtt-r)/4
			srtt = srtt*7/8 + r/8
		}
		const rounding = 20 // ns
		if math.Abs(float64(p.rtt)-srtt) > rounding || math.Abs(float64(p.rttVar)-rttvar) > rounding {
			t.Fatalf("after sample %d: %v and %v, want %v and %v", i, p.rtt, p.rttVar, time.Duration(srtt), time.Duration(rttvar))
		}
	}
}

// TestShortestRoundTrip: the shortest round trip is that of the last seconds: a path that has become longer is known to
// be so.
func TestShortestRoundTrip(t *testing.T) {
	var p path
	now := time.Second
	for range 10 {
		p.sample(time.Millisecond, now)
		now += minimumPeriod / 10
	}
	p.sample(3*time.Millisecond, now)
	if p.rttMin.value() != time.Millisecond || !p.delayed() {
		t.Errorf("the shortest round trip is %v, and a longer one is taken for a delay: %v", p.rttMin.value(), p.delayed())
	}
	for range 21 {
		p.sample(3*time.Millisecond, now)
		now += minimumPeriod / 10
	}
	if p.rttMin.value() != 3*time.Millisecond || p.delayed() {
		t.Errorf("after two periods it is %v, and the usual one is taken for a delay: %v", p.rttMin.value(), p.delayed())
	}
}
