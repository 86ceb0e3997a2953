package loadgen

import (
	"math"
	"math/rand/v2"
)

// pattern chooses what a job does next: direction, size and offset.
type pattern struct {
	spec   *Spec
	rng    *rand.Rand
	sizes  sizes
	random bool
	mixed  bool       // some operations of a random pattern are sequential
	does   [ops]bool  // the directions that choose draws from: those without a rate
	span   int64      // bytes of the range, a multiple of least
	least  int64      // bytes: the smallest alignment of all directions
	align  [ops]int64 // by direction: random offsets are multiples of it
	next   [ops]int64 // where the next sequential operation goes, from the start of the range; maybe outside
	run    int        // operations since the last one that went to a random offset, if Spec.RunLength limits them

	// A single order of all blocks for all directions, if every operation has the same size.
	once  bool
	order permutation
	place uint64 // in order

	zipf *zipf
	pow  float64     // exponent of a Pareto distribution
	bell float64     // standard deviation of a normal distribution, in blocks
	hot  permutation // the blocks of a skewed distribution, by rank

	zones [ops][]zone
}

// zone is a part of the range that blocks are drawn from.
type zone struct {
	percent      int // of the operations
	first, count uint64
}

func newPattern(s *Spec, clone int, span int64) *pattern {
	p := &pattern{
		spec: s, random: s.random(), mixed: s.Sequential != [ops]int{} || s.RunLength > 1, least: s.unit(),
		rng:   rand.New(rand.NewPCG(s.Seed, s.stream(clone))),
		sizes: newSizes(s, clone),
	}
	equal := true
	for op := range ops {
		if !s.Draws(op) {
			continue
		}
		p.does[op] = !s.rated(op)
		p.align[op] = s.alignment(op)
		equal = equal && s.BS[op].fixed() && p.least == p.align[op] && p.least == smallest(s.BS[op])
	}
	blocks, jobs := span/p.least, int64(s.NumJobs)
	p.span = blocks * p.least
	for op := range ops {
		// Clones that go through a device in parallel begin at different offsets; otherwise they would read what
		// another has just fetched.
		p.next[op] = (blocks/jobs*int64(clone) + blocks%jobs*int64(clone)/jobs) * p.least
	}
	p.once = equal && s.Distribution.uniform() && !s.NoRandomMap
	p.order = newPermutation(blocks, p.rng.Uint64())
	// Every clone has the same popular blocks.
	p.hot = newPermutation(blocks, s.Seed*0x9e3779b97f4a7c15+1)
	switch d := s.Distribution; d.Kind {
	case Zipf:
		p.zipf = newZipf(d.Theta, blocks)
	case Pareto:
		p.pow = math.Log(d.Theta) / math.Log(1-d.Theta)
	case Normal:
		p.bell = bell(d.Theta) * float64(blocks)
	case Zoned:
		p.makeZones(span)
	}
	return p
}

// bell returns the standard deviation of fio's normal distribution, as a fraction of the range. fio adds the mean
// of twelve uniform draws from the whole range and one draw from the percentage of it that the user asks for, half
// at most.
func bell(percent float64) float64 {
	return math.Hypot(1./12, min(percent, 50)/100/math.Sqrt(12))
}

// makeZones lays out the zones one after another, in blocks of least bytes.
func (p *pattern) makeZones(span int64) {
	for op := range ops {
		if !p.spec.Draws(op) {
			continue
		}
		from := int64(0)
		for _, z := range p.spec.Zones[op] {
			first, end := from/p.least, (from+z.bytes(span))/p.least
			from += z.bytes(span)
			p.zones[op] = append(p.zones[op], zone{z.Percent, uint64(first), uint64(end - first)})
		}
	}
}

func smallest(s Split) int64 {
	n := s[0].Bytes
	for _, sh := range s {
		n = min(n, sh.Bytes)
	}
	return int64(n)
}

// choose returns the direction and size of the next operation that isn't due by a rate.
func (p *pattern) choose() (Op, int) {
	op := Read
	switch {
	case p.does[Trim]:
		op = Trim
	case !p.does[Read] || p.does[Write] && p.rng.IntN(100) >= p.spec.RWMixRead:
		op = Write
	}
	return op, p.sizes.next(op)
}

// fit returns the size of an operation for which bytes were drawn: a sequential job that has less room before the
// end of the range, or fewer bytes left to move, takes the largest of its sizes that fits.
func (p *pattern) fit(op Op, bytes int, left int64) int {
	sizes := p.spec.BS[op]
	if p.random || sizes.fixed() {
		return bytes
	}
	room := p.span - p.next[op]
	if room < p.align[op] || p.next[op] < 0 {
		room = p.span // it wraps around
	}
	room = min(room, left)
	if int64(bytes) <= room {
		return bytes
	}
	best := 0
	for _, sh := range sizes {
		if sh.Percent > 0 && int64(sh.Bytes) <= room {
			best = max(best, min(sh.largest(), int(room)/sh.Bytes*sh.Bytes))
		}
	}
	if best == 0 {
		return bytes
	}
	return best
}

// offset returns where an operation of that direction and size goes, from the start of the range.
func (p *pattern) offset(op Op, bytes int) int64 {
	if !p.random || p.mixed && p.follows(op) {
		at, last := p.next[op], p.span-int64(bytes)
		switch {
		case at > last:
			at = 0
		case at < 0:
			at = max(last, 0) // an operation may be longer than span, and is at the beginning then
		}
		p.next[op] = at + int64(bytes)
		if !p.random {
			p.next[op] += min(p.spec.Skip, math.MaxInt64-p.next[op])
		}
		return at
	}
	at := int64(p.block(op)) * p.least
	at -= at % p.align[op]
	if last := p.span - int64(bytes); at > last {
		at = last - last%p.align[op]
	}
	if p.mixed {
		p.next[op] = at + int64(bytes)
	}
	return at
}

// follows reports whether an operation of a random job begins where the previous one ended.
func (p *pattern) follows(op Op) bool {
	if p.run++; p.run < p.spec.RunLength {
		return true
	}
	p.run = 0
	percent := p.spec.Sequential[op]
	return percent > 0 && p.rng.IntN(100) < percent
}

// block draws a block of least bytes.
func (p *pattern) block(op Op) uint64 {
	switch {
	case p.once:
		if p.place == p.order.n {
			p.place = 0
			p.order.key = p.rng.Uint64()
		}
		p.place++
		return p.order.at(p.place - 1)
	case p.zipf != nil:
		return p.hot.at(p.zipf.rank(p.rng))
	case p.pow > 0:
		return p.hot.at(uint64(float64(p.hot.n-1) * math.Pow(p.rng.Float64(), p.pow)))
	case p.bell > 0:
		return p.hot.at(p.aroundMiddle())
	case p.zones[op] != nil:
		z := p.pickZone(op)
		return z.first + p.rng.Uint64N(z.count)
	}
	return p.rng.Uint64N(p.order.n)
}

// aroundMiddle draws a rank from a normal distribution.
func (p *pattern) aroundMiddle() uint64 {
	for {
		x := float64(p.hot.n)/2 + p.rng.NormFloat64()*p.bell
		if x >= 0 && x < float64(p.hot.n) {
			return uint64(x)
		}
	}
}

func (p *pattern) pickZone(op Op) zone {
	zones := p.zones[op]
	percent := p.rng.IntN(100)
	for _, z := range zones {
		if percent -= z.percent; percent < 0 {
			return z
		}
	}
	return zones[len(zones)-1]
}

// sizes draws the sizes of operations. Two of them for the same spec and clone draw the same sizes.
type sizes struct {
	bs  [ops]Split
	rng [ops]*rand.Rand
}

func newSizes(s *Spec, clone int) sizes {
	z := sizes{bs: s.BS}
	for op := range ops {
		z.rng[op] = rand.New(rand.NewPCG(s.Seed+uint64(op)+1, ^s.stream(clone)))
	}
	return z
}

func (z *sizes) next(op Op) int {
	s := z.bs[op]
	if s.fixed() {
		return s[0].Bytes
	}
	return s.pick(z.rng[op])
}
