package nvme

import (
	"math"
	"math/big"
	"math/bits"
)

// Uint128 is a 16-byte little-endian number, as the SMART log and capacities have it.
type Uint128 struct {
	Lo, Hi uint64
}

// Uint128From returns v as a 128-bit number.
func Uint128From(v uint64) Uint128 { return Uint128{Lo: v} }

// Plus returns the sum of u and v.
func (u Uint128) Plus(v uint64) Uint128 {
	lo, carry := bits.Add64(u.Lo, v, 0)
	return Uint128{lo, u.Hi + carry}
}

// Uint64 returns u, or the largest uint64 if u is larger.
func (u Uint128) Uint64() uint64 {
	if u.Hi != 0 {
		return math.MaxUint64
	}
	return u.Lo
}

// String returns all digits of u in decimal.
func (u Uint128) String() string {
	v := new(big.Int).SetUint64(u.Hi)
	v.Lsh(v, 64)
	return v.Or(v, new(big.Int).SetUint64(u.Lo)).String()
}
