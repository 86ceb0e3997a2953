package nvme

import (
	"fmt"
	"slices"
	"strings"
)

// AuthHash is a hash function of DH-HMAC-CHAP (NVMe base, figure "DH-HMAC-CHAP hash function
// identifiers").
type AuthHash uint8

// The hash functions.
const (
	AuthSHA256 AuthHash = 1
	AuthSHA384 AuthHash = 2
	AuthSHA512 AuthHash = 3
)

// AuthHashes returns all hash functions, strongest first.
func AuthHashes() []AuthHash { return []AuthHash{AuthSHA512, AuthSHA384, AuthSHA256} }

// Size is the length of a hash in bytes, 0 for an identifier that isn't defined.
func (h AuthHash) Size() int {
	if h < AuthSHA256 || h > AuthSHA512 {
		return 0
	}
	return 16 * (int(h) + 1)
}

// String returns the name, such as sha256.
func (h AuthHash) String() string {
	if n := h.Size(); n != 0 {
		return fmt.Sprintf("sha%d", 8*n)
	}
	return fmt.Sprintf("hash %d", uint8(h))
}

// MarshalText returns the name.
func (h AuthHash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads a name such as sha256 or, as Linux writes it, hmac(sha256).
func (h *AuthHash) UnmarshalText(b []byte) error {
	name := strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(string(b)), "hmac("), ")")
	return named(h, name, AuthHashes(), "hash function")
}

// DHGroup is a Diffie-Hellman group of DH-HMAC-CHAP (NVMe base, figure "DH-HMAC-CHAP
// Diffie-Hellman group identifiers"): one of those of RFC 7919, or none.
type DHGroup uint8

// The groups.
const (
	DHNull      DHGroup = 0 // no Diffie-Hellman exchange
	DHFFDHE2048 DHGroup = 1
	DHFFDHE3072 DHGroup = 2
	DHFFDHE4096 DHGroup = 3
	DHFFDHE6144 DHGroup = 4
	DHFFDHE8192 DHGroup = 5
)

// DHGroups returns all groups, strongest first.
func DHGroups() []DHGroup {
	return []DHGroup{DHFFDHE8192, DHFFDHE6144, DHFFDHE4096, DHFFDHE3072, DHFFDHE2048, DHNull}
}

// Known reports whether g is defined.
func (g DHGroup) Known() bool { return g <= DHFFDHE8192 }

// Size is the length of the group's modulus in bytes; 0 for DHNull and undefined groups.
func (g DHGroup) Size() int {
	switch g {
	case DHFFDHE2048:
		return 256
	case DHFFDHE3072:
		return 384
	case DHFFDHE4096:
		return 512
	case DHFFDHE6144:
		return 768
	case DHFFDHE8192:
		return 1024
	case DHNull:
	}
	return 0
}

// String returns the name, such as ffdhe2048; that of DHNull is null.
func (g DHGroup) String() string {
	switch {
	case g == DHNull:
		return "null"
	case g.Known():
		return fmt.Sprintf("ffdhe%d", 8*g.Size())
	}
	return fmt.Sprintf("DH group %d", uint8(g))
}

// MarshalText returns the name.
func (g DHGroup) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads a name.
func (g *DHGroup) UnmarshalText(b []byte) error {
	return named(g, strings.ToLower(string(b)), DHGroups(), "DH group")
}

// named sets v to the value in all that has the name.
func named[T fmt.Stringer](v *T, name string, all []T, what string) error {
	i := slices.IndexFunc(all, func(x T) bool { return x.String() == name })
	if i < 0 {
		return fmt.Errorf("%q is no %s: want %s", name, what, strings.Trim(fmt.Sprint(all), "[]"))
	}
	*v = all[i]
	return nil
}
