package nvme

import (
	"math"
	"math/big"
)

// Uint128 is a 16-byte little-endian counter, as SMART and capacities use it.
type Uint128 struct {
	Lo, Hi uint64
}

// Uint128From is v as a 128-bit number.
func Uint128From(v uint64) Uint128 { return Uint128{Lo: v} }

// Uint64 is u, or the largest uint64 where u is larger.
func (u Uint128) Uint64() uint64 {
	if u.Hi != 0 {
		return math.MaxUint64
	}
	return u.Lo
}

// String is u in decimal, whole.
func (u Uint128) String() string {
	v := new(big.Int).SetUint64(u.Hi)
	v.Lsh(v, 64)
	return v.Or(v, new(big.Int).SetUint64(u.Lo)).String()
}
