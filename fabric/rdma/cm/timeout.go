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

// minRNRTimer (IBTA table 45, code 12: 0.64 ms) is how long our NAKs ask a peer to wait if it finds no receive posted.
// Consumers post a receive for every message that the peer may send, so this happens only while a completion is being
// handled, which takes microseconds; code 0, which is what Linux leaves, would cost 655 ms, and a shorter one would
// only cause more NAKs on a busy machine.
const minRNRTimer = 12

// Bounds of the retransmission interval that a peer's timeout code asks for. Retransmitting earlier than a peer allows
// does no harm; a code of 31 would hold a connection for a day.
const (
	minRetransmit = 64 * time.Millisecond
	maxRetransmit = 8192 * time.Millisecond
)

// maxService limits the time that all MRAs of a peer together add to an attempt to connect.
const maxService = 262144 * time.Millisecond

// maxACKTimeout limits the Local ACK Timeout of a QP, and with it TIMEWAIT, if a peer says that its path or its
// acknowledgements are very slow: 8.6 s, which makes a minute until a peer that has died is given up. A code of 31
// would make it a day.
const maxACKTimeout = 21

// minACKTimeout is used for a QP whose peer asks for less: 67 ms. With less, its retries would be over before a busy
// machine lets the peer answer, and, with the shortest code, 8 µs, before any network does. RNICs have such a minimum
// too; that of ConnectX is longer.
const minACKTimeout = 14

// codeDuration returns the time of a 5-bit code, 4.096 µs × 2^n, rounded as Linux does: to whole milliseconds that are
// powers of two.
func codeDuration(code uint8) time.Duration {
	return time.Millisecond << max(int(code&31)-8, 0)
}

// reqInterval is the retransmission interval of a REQ: twice the packet life time plus the peer's response timeout,
// 4608 ms.
const reqInterval = 4608 * time.Millisecond

// earlyTries is when a REQ or REP is sent again within its first interval, relative to the first time. Linux would wait
// for the end of the interval; this way a lost message arrives after 0.3 s, and a peer that was away for a moment, such
// as a program that restarts, is reached soon. These don't count as retries, and a peer that is merely slow sees them
// as repetitions like any other.
var earlyTries = []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second, 4300 * time.Millisecond}

// A DREQ is repeated sooner, and less often, than the peer asked for. A peer that is alive has nothing to wait for, and
// most that don't answer have died: Linux's 16 attempts would keep what is left of them for more than a minute.
const (
	dreqInterval = 512 * time.Millisecond
	dreqRetries  = 7
)

// rejRetries is how often the REJ that ends a connection before its RTU has come is repeated during TIMEWAIT. Linux sends
// it once; a peer that gets none believes in the connection until its QP's retries are over, or for ever if it has
// nothing to send.
const rejRetries = 2

// retransmitInterval returns the interval of the passive side, from the code in the REQ.
func retransmitInterval(code uint8) time.Duration {
	return min(max(codeDuration(code), minRetransmit), maxRetransmit)
}

// ackTimeout returns the Local ACK Timeout code of a QP whose peer acknowledges after the delay code delay over a path
// with the life time code life: about delay + 2 × life, rounded up to powers of two.
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

// flowLabel returns the flow label of rdma_cm, from which RoCE derives its UDP source ports.
func flowLabel(src, dst uint16) uint32 {
	return (uint32(src)*31 + uint32(dst)) & 0xfffff
}
