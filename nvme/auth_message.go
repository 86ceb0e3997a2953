package nvme

import (
	"encoding/binary"
	"fmt"
)

// Messages of NVMe in-band authentication, carried by Authentication Send and Authentication
// Receive (NVMe base 2.1, section 8.3.4). Each begins with its type, its identifier, two reserved
// bytes and the identifier of its transaction. Each message has a struct with AppendTo and Parse.
// Errors of Parse wrap an AuthExplanation, so that the receiver of an invalid message knows what
// to answer.

// AuthKind is AUTH_TYPE (the upper byte: 0 for common messages, 1 for those of DH-HMAC-CHAP) and
// AUTH_ID of a message together.
type AuthKind uint16

// The messages.
const (
	AuthNegotiateMessage AuthKind = 0x0000
	AuthFailure2Message  AuthKind = 0x00f0 // host to controller
	AuthFailure1Message  AuthKind = 0x00f1 // controller to host
	AuthChallengeMessage AuthKind = 0x0101
	AuthReplyMessage     AuthKind = 0x0102
	AuthSuccess1Message  AuthKind = 0x0103
	AuthSuccess2Message  AuthKind = 0x0104
)

// String returns the specification's name.
func (k AuthKind) String() string {
	switch k {
	case AuthNegotiateMessage:
		return "AUTH_Negotiate"
	case AuthFailure1Message:
		return "AUTH_Failure1"
	case AuthFailure2Message:
		return "AUTH_Failure2"
	case AuthChallengeMessage:
		return "DH-HMAC-CHAP_Challenge"
	case AuthReplyMessage:
		return "DH-HMAC-CHAP_Reply"
	case AuthSuccess1Message:
		return "DH-HMAC-CHAP_Success1"
	case AuthSuccess2Message:
		return "DH-HMAC-CHAP_Success2"
	}
	return fmt.Sprintf("message of type %02xh, identifier %02xh", uint8(k>>8), uint8(k))
}

// MaxAuthMessage is the longest message worth reading, in bytes: the longest one of DH-HMAC-CHAP
// has 1168, and AUTH_Negotiate has 8 plus 64 for each protocol that is offered.
const MaxAuthMessage = 4096

// Byte offsets that messages share.
const (
	authOffType = 0
	authOffID   = 1
	authOffTID  = 4
	authHead    = 6
	authFixed   = 16 // the fixed part of a DH-HMAC-CHAP message; values of variable length follow
)

// AuthHead returns the kind and the transaction identifier of the message that begins with b. It
// fails with AuthIncorrectPayload if b is too short to hold them.
func AuthHead(b []byte) (kind AuthKind, tid uint16, err error) {
	if len(b) < authHead {
		return 0, 0, fmt.Errorf("nvme: authentication message: %w: %w", shortError("beginning", len(b), authHead), AuthIncorrectPayload)
	}
	return AuthKind(b[authOffType])<<8 | AuthKind(b[authOffID]), binary.LittleEndian.Uint16(b[authOffTID:]), nil
}

// startAuth appends to b a message of n bytes whose header is filled in. It returns the extended
// slice and the message.
func startAuth(b []byte, k AuthKind, tid uint16, n int) (all, message []byte) {
	at := len(b)
	b = append(b, make([]byte, n)...)
	m := b[at:]
	m[authOffType], m[authOffID] = byte(k>>8), byte(k)
	binary.LittleEndian.PutUint16(m[authOffTID:], tid)
	return b, m
}

// parseAuth checks that b is a message of kind want and at least n bytes long.
func parseAuth(b []byte, want AuthKind, n int) (tid uint16, err error) {
	kind, tid, err := AuthHead(b)
	switch {
	case err != nil:
		return 0, err
	case kind != want:
		return 0, fmt.Errorf("nvme: %v where %v is expected: %w", kind, want, AuthIncorrectMessage)
	case len(b) < n:
		return 0, fmt.Errorf("nvme: %w: %w", shortError(want.String(), len(b), n), AuthIncorrectPayload)
	}
	return tid, nil
}

// badAuth is the error for a malformed message.
func badAuth(k AuthKind, format string, args ...any) error {
	return fmt.Errorf("nvme: %v: %w: %w: %w", k, ErrMalformed, fmt.Errorf(format, args...), AuthIncorrectPayload)
}
