package dhchap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Transaction holds the parameters that both responses of a transaction depend on.
type Transaction struct {
	Hash    nvme.AuthHash // as negotiated
	TID     uint16
	HostNQN string
	SubNQN  string
	// SessionKey is the result of Exchange.SessionKey, which is the same on both sides; nil without a DH group.
	SessionKey []byte
}

// HostResponse returns R1, the response of a host that has s to challenge c1 with sequence number s1.
func (t *Transaction) HostResponse(s *Secret, c1 []byte, s1 uint32) []byte {
	return t.response(s.transform(t.HostNQN), c1, s1, "HostHost", t.HostNQN, t.SubNQN)
}

// ControllerResponse returns R2, the response of a controller that has s to challenge c2 with
// sequence number s2.
func (t *Transaction) ControllerResponse(s *Secret, c2 []byte, s2 uint32) []byte {
	return t.response(s.transform(t.SubNQN), c2, s2, "Controller", t.SubNQN, t.HostNQN)
}

// response returns HMAC(key, Ca || S || T_ID || SC_C || role || own NQN || 00h || other side's NQN).
// SC_C is zero: there is no secure channel concatenation.
func (t *Transaction) response(key, challenge []byte, seq uint32, role, own, other string) []byte {
	m := hmac.New(newHash(t.Hash), key)
	m.Write(t.augment(challenge))
	b := binary.LittleEndian.AppendUint32(nil, seq)
	b = binary.LittleEndian.AppendUint16(b, t.TID)
	b = append(b, 0)
	b = append(b, role...)
	b = append(b, own...)
	b = append(b, 0)
	m.Write(append(b, other...))
	return m.Sum(nil)
}

// augment returns the augmented challenge Ca.
func (t *Transaction) augment(challenge []byte) []byte {
	if t.SessionKey == nil {
		return challenge
	}
	m := hmac.New(newHash(t.Hash), t.SessionKey)
	m.Write(challenge)
	return m.Sum(nil)
}

// transform returns the key that the secret gives for the host or subsystem named nqn. The hash
// function is that of the secret, not the negotiated one.
func (s *Secret) transform(nqn string) []byte {
	if s.hash == 0 {
		return s.key
	}
	m := hmac.New(newHash(s.hash), s.key)
	m.Write([]byte(nqn))
	m.Write([]byte("NVMe-over-Fabrics"))
	return m.Sum(nil)
}

func newHash(h nvme.AuthHash) func() hash.Hash {
	switch h {
	case nvme.AuthSHA384:
		return sha512.New384
	case nvme.AuthSHA512:
		return sha512.New
	case nvme.AuthSHA256:
	}
	return sha256.New
}

// Equal compares responses in constant time.
func Equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// Challenge returns a random challenge, as long as the hash.
func Challenge(h nvme.AuthHash) []byte {
	b := make([]byte, h.Size())
	_, _ = rand.Read(b) // it never fails
	return b
}

var sequence atomic.Uint32

// Sequence returns the next sequence number for a challenge. The numbers count up from a random one
// and are never zero.
func Sequence() uint32 {
	if sequence.Load() == 0 {
		var b [4]byte
		_, _ = rand.Read(b[:]) // it never fails
		sequence.CompareAndSwap(0, binary.LittleEndian.Uint32(b[:]))
	}
	for {
		if n := sequence.Add(1); n != 0 {
			return n
		}
	}
}
