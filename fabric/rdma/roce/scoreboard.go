package roce

import (
	"math/bits"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// scoreSize is how many PSNs may be outstanding where losses are retransmitted one by one.
const scoreSize = 4096

// maxOutstanding keeps a READ that is begun inside of the scoreboard: its answers are at most 512
// packets.
const maxOutstanding = scoreSize - 512

// scoreboard is the requester's knowledge of single PSNs while something is missing: which of
// the packets behind una the peer has, or which answers are here, and which are taken for lost.
// A PSN that is neither counts in a window.
type scoreboard struct {
	arrived, lost [scoreSize / 64]uint64
	sentAgain     [scoreSize]uint32 // when, in units of stamp; 0: not since it was sent first
	lostCount     int
	answered      wire.PSN // everything before is executed, and its answers should be here
	top           wire.PSN // nothing is known of this one and those behind it
	probe         wire.PSN // what was sent again last to hear what the peer has
}

// stamp is a time as scoreboard.sentAgain has it, in microseconds. It wraps after an hour.
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

// reach has the scoreboard know psn.
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

// again reports whether psn was sent again less than hold ago: that one may yet arrive.
func (s *scoreboard) again(psn wire.PSN, now, hold time.Duration) bool {
	at := s.sentAgain[psn%scoreSize]
	return at != 0 && time.Duration(int32(stamp(now)-at))*time.Microsecond < hold
}

// firstLost is the first PSN from una on that is taken for lost. There is one.
func (s *scoreboard) firstLost(una wire.PSN) wire.PSN {
	for psn := una; ; {
		w, _ := bitOf(psn)
		if rest := s.lost[w] >> (psn % 64); rest != 0 {
			return psn.Add(bits.TrailingZeros64(rest))
		}
		psn = psn.Add(64 - int(psn%64))
	}
}
