package dhchap

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"filippo.io/bigmod"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ErrValue is the cause if a DH value can't be used: it must be greater than 1 and less than p-1.
var ErrValue = errors.New("the DH value is outside the group")

// Exchange is one side of a Diffie-Hellman exchange.
type Exchange struct {
	group  *group
	hash   nvme.AuthHash
	secret []byte // x
	public []byte // g^x mod p, as long as p
}

// NewExchange begins an exchange with a random exponent. h is the hash function that makes the
// session key. With nvme.DHNull there is no exchange: the result is nil, and has neither a public
// value nor a session key.
func NewExchange(g nvme.DHGroup, h nvme.AuthHash) *Exchange {
	if g.Size() == 0 {
		return nil
	}
	grp := groupOf(g)
	x := &Exchange{group: grp, hash: h, secret: make([]byte, grp.exponent)}
	_, _ = rand.Read(x.secret) // it never fails
	x.public = grp.power(grp.generator, x.secret)
	return x
}

// Public returns the DH value to send to the other side; nil for a nil Exchange.
func (x *Exchange) Public() []byte {
	if x == nil {
		return nil
	}
	return x.public
}

// SessionKey returns the hash of the secret that the two sides share, given the DH value of the
// peer; nil for a nil Exchange. It fails with ErrValue for a value that would reveal the secret.
func (x *Exchange) SessionKey(peer []byte) ([]byte, error) {
	if x == nil {
		return nil, nil
	}
	y, err := x.group.value(peer)
	if err != nil {
		return nil, err
	}
	h := newHash(x.hash)()
	h.Write(x.group.power(y, x.secret))
	return h.Sum(nil), nil
}

// group is a safe prime group of RFC 7919, whose generator is 2.
type group struct {
	p         *big.Int
	modulus   *bigmod.Modulus
	generator *bigmod.Nat
	exponent  int // length of exponents, in bytes
}

// groups are made when they are first needed. Exponents have the length that RFC 7919, appendix A,
// gives for the strength of the group, and at least 256 bits, as the specification requires.
var groups = map[nvme.DHGroup]func() *group{
	nvme.DHFFDHE2048: sync.OnceValue(func() *group { return newGroup(2048, 560316, 256) }),
	nvme.DHFFDHE3072: sync.OnceValue(func() *group { return newGroup(3072, 2625351, 275) }),
	nvme.DHFFDHE4096: sync.OnceValue(func() *group { return newGroup(4096, 5736041, 325) }),
	nvme.DHFFDHE6144: sync.OnceValue(func() *group { return newGroup(6144, 15705020, 375) }),
	nvme.DHFFDHE8192: sync.OnceValue(func() *group { return newGroup(8192, 10965728, 400) }),
}

func groupOf(g nvme.DHGroup) *group { return groups[g]() }

func newGroup(bits uint, x int64, exponent int) *group {
	g := &group{p: prime(bits, x), exponent: (exponent + 7) / 8}
	var err error
	if g.modulus, err = bigmod.NewModulus(g.p.Bytes()); err == nil {
		two := make([]byte, g.modulus.Size())
		two[len(two)-1] = 2
		g.generator, err = bigmod.NewNat().SetBytes(two, g.modulus)
	}
	if err != nil {
		panic("dhchap: " + err.Error()) // unreachable for an odd prime
	}
	return g
}

// prime returns 2^b - 2^(b-64) + (floor(2^(b-130) e) + x) 2^64 - 1, the form of the moduli of
// RFC 7919, where x is the smallest that gives a safe prime.
func prime(b uint, x int64) *big.Int {
	one := big.NewInt(1)
	power := func(n uint) *big.Int { return new(big.Int).Lsh(one, n) }
	p := euler(b - 130)
	p.Add(p, big.NewInt(x)).Lsh(p, 64)
	p.Add(p, power(b)).Sub(p, power(b-64))
	return p.Sub(p, one)
}

// euler returns floor(2^n e), computed as e = 1/0! + 1/1! + 1/2! + …, with 64 guard bits against
// rounding errors.
func euler(n uint) *big.Int {
	const guard = 64
	sum, term := new(big.Int), new(big.Int).Lsh(big.NewInt(1), n+guard)
	for k := int64(1); term.Sign() != 0; k++ {
		sum.Add(sum, term)
		term.Div(term, big.NewInt(k))
	}
	return sum.Rsh(sum, guard)
}

// value reads a DH value of the other side. The value is public, so this needn't take constant time.
func (g *group) value(b []byte) (*bigmod.Nat, error) {
	v := new(big.Int).SetBytes(b)
	if one := big.NewInt(1); v.Cmp(one) <= 0 || v.Cmp(new(big.Int).Sub(g.p, one)) >= 0 {
		return nil, fmt.Errorf("dhchap: %w", ErrValue)
	}
	return bigmod.NewNat().SetBytes(v.FillBytes(make([]byte, g.modulus.Size())), g.modulus)
}

// power returns base^exponent mod p, as long as p. It takes the same time for every exponent.
func (g *group) power(base *bigmod.Nat, exponent []byte) []byte {
	return bigmod.NewNat().Exp(base, exponent, g.modulus).Bytes(g.modulus)
}
