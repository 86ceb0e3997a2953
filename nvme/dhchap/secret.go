package dhchap

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ErrSecret is the cause of every error about the text of a secret. No such error shows any of the text.
var ErrSecret = errors.New("not a DH-HMAC-CHAP secret")

// Secret is the secret by which a host, or a controller, authenticates itself. ParseSecret and
// Generate make one.
type Secret struct {
	key  []byte
	hash nvme.AuthHash // function that transforms the key; 0 to use it as it is
}

// sizes holds the lengths that a secret may have, in bytes.
var sizes = []int{32, 48, 64}

const prefix = "DHHC-1:"

// ParseSecret reads the text form, DHHC-1:hh:base64: (NVMe base, section "DH-HMAC-CHAP Secret
// Representation"). hh is 00, or the hash function that transforms the secret; the base64 text
// encodes the secret and its CRC-32. The last colon may be left out, as Linux allows.
func ParseSecret(text string) (*Secret, error) {
	bad := func(format string, args ...any) (*Secret, error) {
		return nil, fmt.Errorf("%w: %s", ErrSecret, fmt.Sprintf(format, args...))
	}
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return bad("it doesn't begin with %s", prefix)
	}
	id, encoded, ok := strings.Cut(rest, ":")
	if !ok || len(id) != 2 || id[0] != '0' || id[1] < '0' || id[1] > '3' {
		return bad("after %s there must be 00, 01, 02 or 03, and a colon", prefix)
	}
	encoded = strings.TrimSuffix(encoded, ":")
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") { // which base64 skips
		return bad("what follows the second colon isn't base64, with a colon at its end")
	}
	n := len(b) - crc32.Size
	if !slices.Contains(sizes, n) {
		return bad("it holds %d bytes, want 32, 48 or 64 and a checksum of 4", len(b))
	}
	if binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return bad("its checksum is wrong: a character was lost or changed")
	}
	return &Secret{key: b[:n:n], hash: nvme.AuthHash(id[1] - '0')}, nil
}

// Generate returns a random secret of size bytes: 32, 48 or 64. hash is the function that transforms
// it, or 0 for none.
func Generate(hash nvme.AuthHash, size int) (*Secret, error) {
	if hash != 0 && hash.Size() == 0 {
		return nil, fmt.Errorf("dhchap: %v can't transform a secret: want none, sha256, sha384 or sha512", hash)
	}
	if !slices.Contains(sizes, size) {
		return nil, fmt.Errorf("dhchap: a secret of %d bytes: want 32, 48 or 64", size)
	}
	s := &Secret{key: make([]byte, size), hash: hash}
	_, _ = rand.Read(s.key) // it never fails
	return s, nil
}

// Text returns the text form that ParseSecret reads. It reveals the secret.
func (s *Secret) Text() string {
	b := binary.LittleEndian.AppendUint32(slices.Clone(s.key), crc32.ChecksumIEEE(s.key))
	return fmt.Sprintf("%s%02d:%s:", prefix, s.hash, base64.StdEncoding.EncodeToString(b))
}

// Equal reports whether s and o are the same secret; either may be nil.
func (s *Secret) Equal(o *Secret) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.hash == o.hash && Equal(s.key, o.key)
}

const hidden = "(secret)"

// String returns a placeholder that doesn't show the secret.
func (*Secret) String() string { return hidden }

// Format writes the same placeholder as String, whatever the verb.
func (*Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText returns the same placeholder as String. Text returns the secret.
func (*Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
