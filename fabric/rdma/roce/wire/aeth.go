package wire

import "fmt"

// AETHSize is the length of the ACK extended transport header.
const AETHSize = 4

// AETH is the responder's report on the requests so far (IBTA 9.3.5).
type AETH struct {
	Syndrome Syndrome
	MSN      MSN // messages completed by the responder
}

// Append appends the header.
func (h *AETH) Append(b []byte) []byte {
	return append(b, byte(h.Syndrome), byte(h.MSN>>16), byte(h.MSN>>8), byte(h.MSN))
}

// ParseAETH parses the header.
func ParseAETH(h *AETH, b []byte) error {
	if len(b) < AETHSize {
		return ErrShort
	}
	h.Syndrome = Syndrome(b[0])
	h.MSN = MSN(uint24(b[1:]))
	return nil
}

// Syndrome says what an AETH means: ACK with a credit code, RNR NAK with a timer code, or NAK
// with an error code (IBTA 9.7.5.1.1, table 46).
type Syndrome uint8

// Classes of syndrome: the three upper bits.
const (
	syndromeClass = 0xe0
	syndromeACK   = 0x00
	syndromeRNR   = 0x20
	syndromeValue = 0x1f
)

// Syndromes. RNRNAK returns the others.
const (
	ACK                      Syndrome = 0x1f // with no limit on credits
	NAKPSNSequenceError      Syndrome = 0x60
	NAKInvalidRequest        Syndrome = 0x61
	NAKRemoteAccessError     Syndrome = 0x62
	NAKRemoteOperationalErr  Syndrome = 0x63
	NAKInvalidRDRequestError Syndrome = 0x64 // of reliable datagrams, never valid here
)

// RNRNAK returns the receiver-not-ready NAK with a timer code of 0..31.
func RNRNAK(timer uint8) Syndrome { return syndromeRNR | Syndrome(timer&syndromeValue) }

// IsACK reports whether s acknowledges.
func (s Syndrome) IsACK() bool { return s&syndromeClass == syndromeACK }

// IsRNR reports whether s is a receiver-not-ready NAK.
func (s Syndrome) IsRNR() bool { return s&syndromeClass == syndromeRNR }

// RNRTimer returns the timer code of a receiver-not-ready NAK.
func (s Syndrome) RNRTimer() uint8 { return uint8(s & syndromeValue) }

// String returns the name of the syndrome.
func (s Syndrome) String() string {
	switch {
	case s == ACK:
		return "ACK"
	case s.IsACK():
		return fmt.Sprintf("ACK (credit code %d)", uint8(s&syndromeValue))
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK (%v)", RNRTimer(s.RNRTimer()))
	case s == NAKPSNSequenceError:
		return "NAK PSN sequence error"
	case s == NAKInvalidRequest:
		return "NAK invalid request"
	case s == NAKRemoteAccessError:
		return "NAK remote access error"
	case s == NAKRemoteOperationalErr:
		return "NAK remote operational error"
	case s == NAKInvalidRDRequestError:
		return "NAK invalid RD request"
	}
	return fmt.Sprintf("reserved syndrome %#02x", uint8(s))
}
