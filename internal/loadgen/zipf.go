package loadgen

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 1 to n, rank k with a probability proportional to k^-θ, for any θ above 0, by
// rejection-inversion (Hörmann and Derflinger, 1996): in constant time, without a table.
type zipf struct {
	theta     float64
	n         float64
	low, high float64 // integral of the density at the ends
	accept    float64 // a draw is accepted at once within this distance
}

func newZipf(theta float64, n int64) *zipf {
	z := &zipf{theta: theta, n: float64(n)}
	z.low = z.integral(1.5) - 1
	z.high = z.integral(z.n + 0.5)
	z.accept = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

func (z *zipf) density(x float64) float64 { return math.Exp(-z.theta * math.Log(x)) }

// integral returns the integral of the density from 1 to x.
func (z *zipf) integral(x float64) float64 {
	l := math.Log(x)
	if e := 1 - z.theta; e != 0 {
		return math.Expm1(e*l) / e
	}
	return l
}

func (z *zipf) inverse(y float64) float64 {
	if e := 1 - z.theta; e != 0 {
		return math.Exp(math.Log1p(max(e*y, -1)) / e)
	}
	return math.Exp(y)
}

// rank draws a rank, counted from 0.
func (z *zipf) rank(rng *rand.Rand) uint64 {
	for {
		u := z.high + rng.Float64()*(z.low-z.high)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.accept || u >= z.integral(k+0.5)-z.density(k) {
			return uint64(k) - 1
		}
	}
}
