package wire

// PSN is a packet sequence number: 24 bits that wrap (IBTA 9.2, 9.7.2).
//
// Two PSNs are compared along the shorter way around the circle: a PSN is after another if it is less than 2^23 ahead
// of it.
type PSN uint32

const (
	psnBits = 24
	psnMask = 1<<psnBits - 1
)

// MakePSN returns the low 24 bits of v.
func MakePSN(v uint32) PSN { return PSN(v & psnMask) }

// Add returns the PSN n packets after p, or before it if n is negative.
func (p PSN) Add(n int) PSN { return PSN((uint32(p) + uint32(n)) & psnMask) }

// Next is Add(1).
func (p PSN) Next() PSN { return (p + 1) & psnMask }

// Diff returns p − q along the shorter way: −2^23 … 2^23−1 packets.
func (p PSN) Diff(q PSN) int { return int(int32((uint32(p)-uint32(q))<<8) >> 8) }

// Before reports whether p comes before q.
func (p PSN) Before(q PSN) bool { return int32((uint32(p)-uint32(q))<<8) < 0 }

// After reports whether p comes after q.
func (p PSN) After(q PSN) bool { return int32((uint32(p)-uint32(q))<<8) > 0 }

// QPN is the number of a queue pair: 24 bits.
type QPN uint32

// Queue pair numbers with a special meaning (IBTA 3.2.4).
const (
	QP1    QPN = 1         // general services: communication management
	MaxQPN QPN = 1<<24 - 1 // the multicast destination; no queue pair has it
)

// MSN is the message sequence number that a responder returns: 24 bits that wrap
// (IBTA 9.7.7.1).
type MSN uint32

// Add returns the MSN n messages after m.
func (m MSN) Add(n int) MSN { return MSN((uint32(m) + uint32(n)) & psnMask) }

func uint24(b []byte) uint32 {
	_ = b[2]
	return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
}
