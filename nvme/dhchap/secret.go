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

// ErrSecret is the cause of every error about the text of a secret. None of them shows any of it.
var ErrSecret = errors.New("not a DH-HMAC-CHAP secret")

// Secret is what a host, or a controller, proves to have. It is made by ParseSecret or Generate.
type Secret struct {
	key  []byte
	hash nvme.AuthHash // that transforms it; 0: it is used as it is
}

// sizes are the lengths that a secret may have, in bytes.
var sizes = []int{32, 48, 64}

const prefix = "DHHC-1:"

// ParseSecret reads the text form, DHHC-1:hh:base64: (NVMe base, section "DH-HMAC-CHAP Secret
// Representation"). hh is 00, or the hash function that transforms the secret; the base64 text is
// of the secret and its CRC-32. The last colon may be left out, as Linux allows.
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

// Generate draws a secret of size bytes: 32, 48 or 64. hash says which function shall transform
// it, 0 that none shall.
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

// Text is the text form that ParseSecret reads: the secret itself, for whoever is to have it.
func (s *Secret) Text() string {
	b := binary.LittleEndian.AppendUint32(slices.Clone(s.key), crc32.ChecksumIEEE(s.key))
	return fmt.Sprintf("%s%02d:%s:", prefix, s.hash, base64.StdEncoding.EncodeToString(b))
}

// Equal says whether s and o are the same secret; either may be nil.
func (s *Secret) Equal(o *Secret) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.hash == o.hash && Equal(s.key, o.key)
}

const hidden = "(secret)"

// String doesn't show the secret.
func (*Secret) String() string { return hidden }

// Format doesn't either, whatever the verb.
func (*Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText doesn't either: Text does.
func (*Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
