package roce

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// TestScoreboardScans compares the scans of 64 PSNs at once with scans of one at a time.
func TestScoreboardScans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := new(scoreboard)
		una := wire.MakePSN(rng.Uint32())
		n := rng.IntN(maxOutstanding)
		for i := range n {
			switch at := una.Add(i); rng.IntN(100) {
			case 0:
			case 1, 2:
				s.setLost(at)
			default:
				s.setArrived(at)
			}
		}
		end := una.Add(n)
		open, missing := end, end
		for i := n - 1; i >= 0; i-- {
			at := una.Add(i)
			if !s.hasArrived(at) {
				missing = at
				if !s.isLost(at) {
					open = at
				}
			}
			if a, b := s.nextOpen(at, end), s.nextMissing(at, end); a != open || b != missing {
				t.Fatalf("from %d to %d: open %d, missing %d; want %d and %d", at, end, a, b, open, missing)
			}
		}
		if s.nextOpen(end, una) != una || s.nextMissing(end, end) != end {
			t.Fatal("something is in nothing")
		}
	}
}

// TestRepetitionOvertaken: what was sent again is taken for lost when something arrives that was sent after it, or else
// when its time is over.
func TestRepetitionOvertaken(t *testing.T) {
	const hold, shortest = 10 * time.Millisecond, time.Millisecond
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	s := &scoreboard{latest: 99}
	s.setLost(100)
	s.setLost(101)
	s.resent(100, 110, at(50))
	s.resent(101, 110, at(52))
	waits := func(now time.Duration, want100, want101 bool) {
		t.Helper()
		if a, b := s.again(100, now, hold), s.again(101, now, hold); a != want100 || b != want101 {
			t.Errorf("after %v: %v and %v may arrive, want %v and %v", now, a, b, want100, want101)
		}
	}
	waits(at(55), true, true)
	waits(at(60), false, true)
	s.heard(109, at(55), shortest) // sent before them
	waits(at(55), true, true)
	s.heard(101, at(52)+shortest/2, shortest) // as it was sent first: not after 100 was sent again
	waits(at(55), true, true)
	s.heard(101, at(55), shortest)
	waits(at(55), false, true)
	s.heard(110, at(56), shortest)
	waits(at(56), false, false)
}

// TestRepetitionsOvertakeEachOther: of what was sent again, what arrives latest says what is lost, in whatever order
// the news of it comes.
func TestRepetitionsOvertakeEachOther(t *testing.T) {
	const hold, shortest = time.Second, time.Millisecond
	at := func(ms int) time.Duration { // where stamps as signed numbers are negative
		return 40*time.Minute + time.Duration(ms)*time.Millisecond
	}
	s := &scoreboard{latest: 99}
	for i := range 5 {
		psn := wire.PSN(100 + i)
		s.setLost(psn)
		s.resent(psn, 110, at(50+2*i))
	}
	for _, psn := range []wire.PSN{100, 103, 101} {
		s.heard(psn, at(70), shortest)
	}
	for psn, want := range map[wire.PSN]bool{102: false, 104: true} {
		if got := s.again(psn, at(70), hold); got != want {
			t.Errorf("%d, where 103 has arrived, may arrive: %v, want %v", psn, got, want)
		}
	}
}

// TestForgottenPlaceIsFree: what was known of a PSN says nothing of the one that has its place next.
func TestForgottenPlaceIsFree(t *testing.T) {
	s := new(scoreboard)
	const psn, next = wire.PSN(100), wire.PSN(100 + scoreSize)
	s.setLost(psn)
	s.resent(psn, 110, time.Millisecond)
	s.setLost(psn)
	s.forget(psn)
	if s.isLost(next) || s.hasArrived(next) || s.wasSentAgain(next) || s.lostCount != 0 {
		t.Errorf("%d is lost: %v, has arrived: %v, was sent again: %v; %d are lost",
			next, s.isLost(next), s.hasArrived(next), s.wasSentAgain(next), s.lostCount)
	}
	s.setArrived(psn)
	s.forget(psn)
	if s.hasArrived(next) {
		t.Errorf("%d has arrived", next)
	}
}
