package roce

import (
	"math/bits"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// scoreSize is how many PSNs may be outstanding when losses are retransmitted one by one.
const scoreSize = 4096

// maxOutstanding keeps a READ that is begun within the scoreboard: its answers are at most 512 packets.
const maxOutstanding = scoreSize - 512

// scoreboard is what the requester knows of single PSNs while something is missing: which of the packets behind una the
// peer has, or which answers are here, and which are taken for lost. A PSN that is neither counts in a window.
type scoreboard struct {
	arrived, lost [scoreSize / 64]uint64
	sentAgain     [scoreSize]uint32   // when, in units of stamp; 0: not since it was sent first
	behind        [scoreSize]wire.PSN // what is sent for the first time after that begins here
	lostCount     int
	answered      wire.PSN // everything before it is executed, and its answers should be here
	top           wire.PSN // nothing is known of this one and those behind it
	probe         wire.PSN // what was last sent again to hear what the peer has

	// The latest of what was sent and has arrived: the highest PSN that was sent once, and the last time at which one
	// that was sent again was, 0 for none.
	latest      wire.PSN
	latestAgain uint32
}

// stamp returns a time in the form of scoreboard.sentAgain, in microseconds. It wraps after an hour.
func stamp(now time.Duration) uint32 { return uint32(now/time.Microsecond) | 1 }

func bitOf(psn wire.PSN) (word int, mask uint64) {
	i := psn % scoreSize
	return int(i / 64), 1 << (i % 64)
}

func (s *scoreboard) hasArrived(psn wire.PSN) bool {
	w, m := bitOf(psn)
	return s.arrived[w]&m != 0
}

func (s *scoreboard) isLost(psn wire.PSN) bool {
	w, m := bitOf(psn)
	return s.lost[w]&m != 0
}

func (s *scoreboard) setArrived(psn wire.PSN) {
	w, m := bitOf(psn)
	s.arrived[w] |= m
	s.reach(psn)
}

func (s *scoreboard) clearArrived(psn wire.PSN) {
	w, m := bitOf(psn)
	s.arrived[w] &^= m
}

func (s *scoreboard) setLost(psn wire.PSN) {
	w, m := bitOf(psn)
	s.lost[w] |= m
	s.lostCount++
	s.reach(psn)
}

func (s *scoreboard) clearLost(psn wire.PSN) {
	w, m := bitOf(psn)
	if s.lost[w]&m != 0 {
		s.lost[w] &^= m
		s.lostCount--
	}
}

// reach extends what the scoreboard knows of to psn.
func (s *scoreboard) reach(psn wire.PSN) {
	if !psn.Before(s.top) {
		s.top = psn.Next()
	}
}

// forget makes the PSN's place free for another.
func (s *scoreboard) forget(psn wire.PSN) {
	s.clearArrived(psn)
	s.clearLost(psn)
	s.sentAgain[psn%scoreSize] = 0
}

// resent records that psn is sent again; next is the PSN of the next packet that is sent for the first time.
func (s *scoreboard) resent(psn, next wire.PSN, now time.Duration) {
	s.clearLost(psn)
	s.sentAgain[psn%scoreSize], s.behind[psn%scoreSize] = stamp(now), next
}

func (s *scoreboard) wasSentAgain(psn wire.PSN) bool { return s.sentAgain[psn%scoreSize] != 0 }

// sinceAgain returns how long ago psn was sent again. It must have been.
func (s *scoreboard) sinceAgain(psn wire.PSN, now time.Duration) time.Duration {
	return time.Duration(int32(stamp(now)-s.sentAgain[psn%scoreSize])) * time.Microsecond
}

// heard records what the arrival of psn says of packets sent before it. If psn was sent again so short a time ago that
// what arrived must be its first transmission, it says nothing of them.
func (s *scoreboard) heard(psn wire.PSN, now, shortest time.Duration) {
	switch at := s.sentAgain[psn%scoreSize]; {
	case at == 0:
		if psn.After(s.latest) {
			s.latest = psn
		}
	case s.sinceAgain(psn, now) >= shortest && (s.latestAgain == 0 || int32(at-s.latestAgain) > 0):
		s.latestAgain = at
	}
}

// again reports whether psn was sent again and may yet arrive: that was less than hold ago, and nothing that was sent
// after it has arrived (as RFC 8985 does for TCP).
func (s *scoreboard) again(psn wire.PSN, now, hold time.Duration) bool {
	at := s.sentAgain[psn%scoreSize]
	overtaken := !s.latest.Before(s.behind[psn%scoreSize]) || s.latestAgain != 0 && int32(s.latestAgain-at) > 0
	return at != 0 && !overtaken && s.sinceAgain(psn, now) < hold
}

// nextOpen returns the first PSN from psn on, before end, that neither has arrived nor is taken for lost, or end if
// there is none. nextMissing returns the first one that hasn't arrived. They look at 64 PSNs at once: while something
// is missing, each packet causes a search for open PSNs in a whole window.
func (s *scoreboard) nextOpen(psn, end wire.PSN) wire.PSN {
	return nextZero(psn, end, func(w int) uint64 { return s.arrived[w] | s.lost[w] })
}

func (s *scoreboard) nextMissing(psn, end wire.PSN) wire.PSN {
	return nextZero(psn, end, func(w int) uint64 { return s.arrived[w] })
}

func nextZero(psn, end wire.PSN, words func(int) uint64) wire.PSN {
	for psn.Before(end) {
		w, _ := bitOf(psn)
		if rest := ^words(w) >> (psn % 64); rest != 0 {
			psn = psn.Add(bits.TrailingZeros64(rest))
			break
		}
		psn = psn.Add(64 - int(psn%64))
	}
	if psn.Before(end) {
		return psn
	}
	return end
}

// firstLost returns the first PSN from una on that is taken for lost. There must be one.
func (s *scoreboard) firstLost(una wire.PSN) wire.PSN {
	for psn := una; ; {
		w, _ := bitOf(psn)
		if rest := s.lost[w] >> (psn % 64); rest != 0 {
			return psn.Add(bits.TrailingZeros64(rest))
		}
		psn = psn.Add(64 - int(psn%64))
	}
}
