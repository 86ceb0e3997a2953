package cm

import "time"

// Codes and limits of the exchange, as Linux's rdma_cm uses them.
const (
	responseCode    = 20 // CM response timeout that we promise and ask for: 4096 ms
	packetLifeCode  = 16 // packet life time of a path: 256 ms
	serviceCode     = 24 // service timeout in our MRAs: 65.5 s
	maxCMRetries    = 15
	defaultHopLimit = 64
)

// minRNRTimer (IBTA table 45, code 12: 0.64 ms) is what our NAKs ask a peer to wait that finds
// no receive posted. Consumers post a receive for every message that the peer may send, so this
// happens only while a completion is being handled, which takes microseconds; code 0, which
// Linux leaves, would cost 655 ms, and a shorter one only more NAKs on a busy machine.
const minRNRTimer = 12

// Bounds of a retransmission interval that a peer's timeout code asks for. Sending again
// earlier than a peer allows does no harm; a code of 31 would hold a connection for a day.
const (
	minRetransmit = 64 * time.Millisecond
	maxRetransmit = 8192 * time.Millisecond
)

// maxService bounds the time that the MRAs of a peer add to an attempt to connect, all of them together.
const maxService = 262144 * time.Millisecond

// maxACKTimeout bounds the Local ACK Timeout of a QP, and with it TIMEWAIT, where a peer says that
// its path or its acknowledgements are very long: 8.6 s, which is a minute until a peer that has
// died is given up. A code of 31 would be a day.
const maxACKTimeout = 21

// minACKTimeout is that of a QP whose peer asks for less: 67 ms. Its retries would be over before a busy machine lets the
// peer answer, and the shortest code, 8 µs, before any network does. RNICs have such a floor too, that of ConnectX is longer.
const minACKTimeout = 14

// codeDuration is the time of a 5-bit code, 4.096 µs × 2^n, in the rounding of Linux: whole
// milliseconds that are powers of two.
func codeDuration(code uint8) time.Duration {
	return time.Millisecond << max(int(code&31)-8, 0)
}

// reqInterval is the retransmission interval of a REQ: twice the packet life time and the
// peer's response timeout, 4608 ms.
const reqInterval = 4608 * time.Millisecond

// earlyTries is when a REQ or REP goes out again within its first interval, counted from when it went out first. Linux
// would wait for the end of that; so what was lost comes after 0.3 s, and a peer that was away for a moment, as a
// program is that starts again, is met soon. These don't count among the retries, and to whoever is only slow they
// are repetitions like others.
var earlyTries = []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second, 4300 * time.Millisecond}

// A DREQ is repeated sooner, and less often, than the peer asked for. There is nothing to wait for
// from a peer that lives, and most that don't answer have died: Linux's 16 tries would keep what
// is left of them for more than a minute.
const (
	dreqInterval = 512 * time.Millisecond
	dreqRetries  = 7
)

// retransmitInterval is that of the passive side, from the code in the REQ.
func retransmitInterval(code uint8) time.Duration {
	return min(max(codeDuration(code), minRetransmit), maxRetransmit)
}

// ackTimeout is the Local ACK Timeout code of a QP whose peer acknowledges after the delay code
// delay over a path of the life time code life: about delay + 2 × life, rounded up in powers
// of two.
func ackTimeout(delay, life uint8) uint8 {
	t := life + 1
	if t >= delay {
		if delay+1 >= t {
			t++
		}
	} else {
		bump := t+1 >= delay
		t = delay
		if bump {
			t++
		}
	}
	return min(t, 31)
}

// flowLabel is that of rdma_cm, which RoCE makes its UDP source ports from.
func flowLabel(src, dst uint16) uint32 {
	return (uint32(src)*31 + uint32(dst)) & 0xfffff
}
