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

// Transaction is what both responses of a transaction are computed with.
type Transaction struct {
	Hash    nvme.AuthHash // that was negotiated
	TID     uint16
	HostNQN string
	SubNQN  string
	// SessionKey is Exchange.SessionKey of either side; nil without a DH group.
	SessionKey []byte
}

// HostResponse is R1, with which a host that has s answers the challenge c1 of sequence number s1.
func (t *Transaction) HostResponse(s *Secret, c1 []byte, s1 uint32) []byte {
	return t.response(s.transform(t.HostNQN), c1, s1, "HostHost", t.HostNQN, t.SubNQN)
}

// ControllerResponse is R2, with which a controller that has s answers the challenge c2 of
// sequence number s2.
func (t *Transaction) ControllerResponse(s *Secret, c2 []byte, s2 uint32) []byte {
	return t.response(s.transform(t.SubNQN), c2, s2, "Controller", t.SubNQN, t.HostNQN)
}

// response is HMAC(key, Ca || S || T_ID || SC_C || role || NQN || 00h || NQN of the other). SC_C
// is zero: there is no secure channel concatenation.
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

// augment is the augmented challenge Ca.
func (t *Transaction) augment(challenge []byte) []byte {
	if t.SessionKey == nil {
		return challenge
	}
	m := hmac.New(newHash(t.Hash), t.SessionKey)
	m.Write(challenge)
	return m.Sum(nil)
}

// transform is the key that the secret gives whoever has the name nqn. The hash function is that
// of the secret, not the one that was negotiated.
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

// Equal compares responses, in a time that tells nothing of them.
func Equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// Challenge draws a challenge for a hash function.
func Challenge(h nvme.AuthHash) []byte {
	b := make([]byte, h.Size())
	_, _ = rand.Read(b) // it never fails
	return b
}

var sequence atomic.Uint32

// Sequence is the next sequence number for a challenge: they count from a random one, and are
// never zero.
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
