package nvme

import "fmt"

// AuthExplanation is the reason code explanation of AUTH_Failure1 and AUTH_Failure2, whose reason
// code is always "authentication failure". It is also an error, for errors.Is and errors.As.
type AuthExplanation uint8

// Explanations (NVMe base, figure "AUTH_Failure reason code explanations").
const (
	AuthFailed           AuthExplanation = 1 // the host, or the controller, couldn't be authenticated
	AuthProtocolUnusable AuthExplanation = 2
	AuthSecureChannel    AuthExplanation = 3 // secure channel concatenation mismatch
	AuthHashUnusable     AuthExplanation = 4
	AuthDHGroupUnusable  AuthExplanation = 5
	AuthIncorrectPayload AuthExplanation = 6
	AuthIncorrectMessage AuthExplanation = 7 // not the message that the protocol expects next
)

var authExplanations = [...]string{
	AuthFailed: "authentication failed", AuthProtocolUnusable: "authentication protocol not usable",
	AuthSecureChannel: "secure channel concatenation mismatch", AuthHashUnusable: "hash function not usable",
	AuthDHGroupUnusable: "DH group not usable", AuthIncorrectPayload: "incorrect payload",
	AuthIncorrectMessage: "incorrect protocol message",
}

// Error returns the explanation in the specification's words.
func (e AuthExplanation) Error() string {
	if int(e) < len(authExplanations) && authExplanations[e] != "" {
		return authExplanations[e]
	}
	return fmt.Sprintf("reason code explanation %02xh", uint8(e))
}

// authReason is the only reason code, "authentication failure".
const authReason = 1

// AuthFailure is AUTH_Failure1 or, if ByHost is set, AUTH_Failure2.
type AuthFailure struct {
	ByHost      bool
	TID         uint16
	Explanation AuthExplanation
}

// AuthFailureSize is the length of either message in bytes.
const AuthFailureSize = 8

func (f *AuthFailure) kind() AuthKind {
	if f.ByHost {
		return AuthFailure2Message
	}
	return AuthFailure1Message
}

// AppendTo appends the message.
func (f *AuthFailure) AppendTo(b []byte) []byte {
	b, m := startAuth(b, f.kind(), f.TID, AuthFailureSize)
	m[6], m[7] = authReason, byte(f.Explanation)
	return b
}

// Parse reads either message.
func (f *AuthFailure) Parse(b []byte) error {
	kind, _, err := AuthHead(b)
	if err != nil {
		return err
	}
	f.ByHost = kind == AuthFailure2Message
	if f.TID, err = parseAuth(b, f.kind(), AuthFailureSize); err != nil {
		return err
	}
	if b[6] != authReason {
		return badAuth(kind, "reason code %02xh, only 01h is known", b[6])
	}
	f.Explanation = AuthExplanation(b[7])
	return nil
}
