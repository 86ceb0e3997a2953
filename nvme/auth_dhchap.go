package nvme

import (
	"encoding/binary"
	"slices"
)

// Byte offsets in the messages of DH-HMAC-CHAP.
const (
	chapOffHL     = 6
	chapOffValid  = 8 // HashID, CVALID or RVALID
	chapOffDHgID  = 9
	chapOffDHVLEN = 10
	chapOffSEQNUM = 12
)

// AuthChallenge is DH-HMAC-CHAP_Challenge, the controller's answer to AUTH_Negotiate.
type AuthChallenge struct {
	TID    uint16
	Hash   AuthHash // one of those that the host offered
	DH     DHGroup  // likewise
	SEQNUM uint32   // S1, never 0
	CVAL   []byte   // C1, as long as the hash
	DHV    []byte   // g^x mod p, big-endian; empty with DHNull
}

// AuthChallengeSize is the length of the message in bytes, with a DH value as long as the group's
// modulus.
func AuthChallengeSize(h AuthHash, g DHGroup) int { return authFixed + h.Size() + g.Size() }

// AppendTo appends the message.
func (c *AuthChallenge) AppendTo(b []byte) []byte {
	b, m := startAuth(b, AuthChallengeMessage, c.TID, authFixed+len(c.CVAL)+len(c.DHV))
	m[chapOffHL] = byte(len(c.CVAL))
	m[chapOffValid], m[chapOffDHgID] = byte(c.Hash), byte(c.DH)
	binary.LittleEndian.PutUint16(m[chapOffDHVLEN:], uint16(len(c.DHV)))
	binary.LittleEndian.PutUint32(m[chapOffSEQNUM:], c.SEQNUM)
	copy(m[authFixed+copy(m[authFixed:], c.CVAL):], c.DHV)
	return b
}

// Parse reads the message. It returns AuthHashUnusable or AuthDHGroupUnusable for an undefined
// identifier; the host must check that it offered the hash function and the group.
func (c *AuthChallenge) Parse(b []byte) error {
	var err error
	if c.TID, err = parseAuth(b, AuthChallengeMessage, authFixed); err != nil {
		return err
	}
	c.Hash, c.DH = AuthHash(b[chapOffValid]), DHGroup(b[chapOffDHgID])
	switch {
	case c.Hash.Size() == 0:
		return AuthHashUnusable
	case !c.DH.Known():
		return AuthDHGroupUnusable
	}
	if c.SEQNUM = binary.LittleEndian.Uint32(b[chapOffSEQNUM:]); c.SEQNUM == 0 {
		return badAuth(AuthChallengeMessage, "the sequence number is 0")
	}
	hl, dhvlen, err := chapLengths(b, AuthChallengeMessage, c.Hash, c.DH, 1)
	if err != nil {
		return err
	}
	c.CVAL = slices.Clone(b[authFixed:][:hl])
	c.DHV = slices.Clone(b[authFixed+hl:][:dhvlen])
	return nil
}

// chapLengths returns HL and DHVLEN of message b, in which the given number of values of HL bytes
// precedes the DH value. It checks them against h and g and against the length of b.
func chapLengths(b []byte, k AuthKind, h AuthHash, g DHGroup, values int) (hl, dhvlen int, err error) {
	hl, dhvlen = int(b[chapOffHL]), int(binary.LittleEndian.Uint16(b[chapOffDHVLEN:]))
	switch {
	case hl != h.Size():
		return 0, 0, badAuth(k, "HL is %d, and a hash of %v has %d bytes", hl, h, h.Size())
	case g == DHNull && dhvlen != 0:
		return 0, 0, badAuth(k, "DHVLEN is %d without a DH group", dhvlen)
	case g != DHNull && dhvlen == 0:
		return 0, 0, badAuth(k, "DHVLEN is 0 with %v", g)
	case len(b) < authFixed+values*hl+dhvlen:
		return 0, 0, badAuth(k, "it has %d bytes, and %d with HL %d and DHVLEN %d", len(b), authFixed+values*hl+dhvlen, hl, dhvlen)
	}
	return hl, dhvlen, nil
}

// AuthReply is DH-HMAC-CHAP_Reply, the host's response to the challenge.
type AuthReply struct {
	TID    uint16
	CVALID bool   // the host asks the controller to authenticate itself
	SEQNUM uint32 // S2
	RVAL   []byte // R1, as long as the hash
	CVAL   []byte // C2, as long as the hash; nil is written as zeroes
	DHV    []byte // g^y mod p, big-endian; empty with DHNull
}

// AppendTo appends the message.
func (r *AuthReply) AppendTo(b []byte) []byte {
	hl := len(r.RVAL)
	b, m := startAuth(b, AuthReplyMessage, r.TID, authFixed+2*hl+len(r.DHV))
	m[chapOffHL] = byte(hl)
	if r.CVALID {
		m[chapOffValid] = 1
	}
	binary.LittleEndian.PutUint16(m[chapOffDHVLEN:], uint16(len(r.DHV)))
	binary.LittleEndian.PutUint32(m[chapOffSEQNUM:], r.SEQNUM)
	v := m[authFixed:]
	copy(v, r.RVAL)
	copy(v[hl:], r.CVAL)
	copy(v[2*hl:], r.DHV)
	return b
}

// Parse reads the message of a transaction that uses hash function h and group g.
func (r *AuthReply) Parse(b []byte, h AuthHash, g DHGroup) error {
	var err error
	if r.TID, err = parseAuth(b, AuthReplyMessage, authFixed); err != nil {
		return err
	}
	if r.CVALID, err = chapValid(b, AuthReplyMessage); err != nil {
		return err
	}
	r.SEQNUM = binary.LittleEndian.Uint32(b[chapOffSEQNUM:])
	hl, dhvlen, err := chapLengths(b, AuthReplyMessage, h, g, 2)
	if err != nil {
		return err
	}
	v := slices.Clone(b[authFixed:][:2*hl+dhvlen])
	r.RVAL, r.CVAL, r.DHV = v[:hl:hl], v[hl:2*hl:2*hl], v[2*hl:]
	return nil
}

// chapValid is CVALID or RVALID.
func chapValid(b []byte, k AuthKind) (bool, error) {
	if b[chapOffValid] > 1 {
		return false, badAuth(k, "the byte that says what is valid is %02xh, want 0 or 1", b[chapOffValid])
	}
	return b[chapOffValid] == 1, nil
}

// AuthSuccess1 is DH-HMAC-CHAP_Success1: the controller has authenticated the host and, if the
// host asked for it, authenticates itself.
type AuthSuccess1 struct {
	TID    uint16
	Hash   AuthHash // HL is its length even if there is no response
	RVALID bool
	RVAL   []byte // R2, as long as the hash, if RVALID
}

// Size is the length of the message in bytes.
func (s *AuthSuccess1) Size() int {
	if s.RVALID {
		return authFixed + s.Hash.Size()
	}
	return authFixed
}

// AppendTo appends the message.
func (s *AuthSuccess1) AppendTo(b []byte) []byte {
	b, m := startAuth(b, AuthSuccess1Message, s.TID, s.Size())
	m[chapOffHL] = byte(s.Hash.Size())
	if s.RVALID {
		m[chapOffValid] = 1
		copy(m[authFixed:], s.RVAL)
	}
	return b
}

// Parse reads the message of a transaction that uses hash function h.
func (s *AuthSuccess1) Parse(b []byte, h AuthHash) error {
	var err error
	if s.TID, err = parseAuth(b, AuthSuccess1Message, authFixed); err != nil {
		return err
	}
	if s.RVALID, err = chapValid(b, AuthSuccess1Message); err != nil {
		return err
	}
	if hl := int(b[chapOffHL]); hl != h.Size() {
		return badAuth(AuthSuccess1Message, "HL is %d, and a hash of %v has %d bytes", hl, h, h.Size())
	}
	s.Hash, s.RVAL = h, nil
	if s.RVALID {
		if _, err := parseAuth(b, AuthSuccess1Message, s.Size()); err != nil {
			return err
		}
		s.RVAL = slices.Clone(b[authFixed:s.Size()])
	}
	return nil
}

// AuthSuccess2 is DH-HMAC-CHAP_Success2: the host has authenticated the controller.
type AuthSuccess2 struct{ TID uint16 }

// AppendTo appends the message.
func (s *AuthSuccess2) AppendTo(b []byte) []byte {
	b, _ = startAuth(b, AuthSuccess2Message, s.TID, authFixed)
	return b
}

// Parse reads the message.
func (s *AuthSuccess2) Parse(b []byte) error {
	var err error
	s.TID, err = parseAuth(b, AuthSuccess2Message, authFixed)
	return err
}
