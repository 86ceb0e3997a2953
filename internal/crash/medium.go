package crash

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// Medium is storage that is sure to keep only what was made durable.
type Medium struct {
	unit int64

	mu      sync.Mutex
	image   []byte // what reads return
	durable []byte // what survives a power failure
	pending map[int64]*history
}

// history is what was written to a unit since its last durable version.
type history struct {
	versions [][]byte // oldest first; the last is in the image
	backed   int      // how many versions a fence makes durable
}

// NewMedium returns a medium of size bytes that are zero and durable. unit is the number of
// bytes that are written atomically; size must be a multiple of it.
func NewMedium(size int64, unit int) *Medium {
	if unit <= 0 || size%int64(unit) != 0 {
		panic(fmt.Sprintf("crash: a medium of %d bytes in units of %d", size, unit))
	}
	return Restore(make([]byte, size), unit)
}

// Restore returns a medium that durably holds image: what Crash returned, after the power is
// back.
func Restore(image []byte, unit int) *Medium {
	return &Medium{unit: int64(unit), image: slices.Clone(image), durable: image, pending: map[int64]*history{}}
}

// Size returns the number of bytes.
func (m *Medium) Size() int64 { return int64(len(m.image)) }

// ReadAt fills p with what was written last, durable or not. The range must be within the
// medium.
func (m *Medium) ReadAt(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(p, m.image[off:off+int64(len(p))])
}

// WriteAt writes p, which need not be whole units. A unit whose content stays the same gets no
// new version.
func (m *Medium) WriteAt(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(p) > 0 {
		u := off / m.unit
		n := min(int64(len(p)), (u+1)*m.unit-off)
		m.write(u, p[:n], off)
		p, off = p[n:], off+n
	}
}

func (m *Medium) write(u int64, p []byte, off int64) {
	copy(m.image[off:], p)
	fresh, last := m.image[u*m.unit:(u+1)*m.unit], m.durable[u*m.unit:(u+1)*m.unit]
	h := m.pending[u]
	if h != nil {
		last = h.versions[len(h.versions)-1]
	}
	if bytes.Equal(fresh, last) {
		return
	}
	if h == nil {
		h = &history{}
		m.pending[u] = h
	}
	h.versions = append(h.versions, bytes.Clone(fresh))
}

// Zero writes n zeroes at off.
func (m *Medium) Zero(off, n int64) { m.WriteAt(make([]byte, n), off) }

// WriteBack starts to make durable what the units of a range hold now (as CLWB does, or a disk
// that empties its cache). It is complete after the next Fence. Callers that flush larger
// granules, such as cache lines, widen the range themselves.
func (m *Medium) WriteBack(off, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == 0 {
		return
	}
	first, last := off/m.unit, (off+n-1)/m.unit
	if last-first < int64(len(m.pending)) {
		for u := first; u <= last; u++ {
			if h := m.pending[u]; h != nil {
				h.backed = len(h.versions)
			}
		}
		return
	}
	for u, h := range m.pending {
		if u >= first && u <= last {
			h.backed = len(h.versions)
		}
	}
}

// Fence makes durable what WriteBack covered.
func (m *Medium) Fence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for u, h := range m.pending {
		if h.backed == 0 {
			continue
		}
		copy(m.durable[u*m.unit:], h.versions[h.backed-1])
		if h.versions, h.backed = h.versions[h.backed:], 0; len(h.versions) == 0 {
			delete(m.pending, u)
		}
	}
}

// Forget makes sure that what is not durable never becomes so, though reads still return it:
// this is what Linux does with the pages of a failed write-back.
func (m *Medium) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.pending)
}

// Clone returns a medium that holds the same, durable or not.
func (m *Medium) Clone() *Medium {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Medium{
		unit: m.unit, image: slices.Clone(m.image), durable: slices.Clone(m.durable),
		pending: make(map[int64]*history, len(m.pending)),
	}
	for u, h := range m.pending {
		c.pending[u] = &history{slices.Clone(h.versions), h.backed}
	}
	return c
}

// Pending returns the number of units that a power failure may revert.
func (m *Medium) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending)
}

// Crash returns contents that the medium may have if the power fails now: what is durable, and
// for each other unit its durable version or any later one. The medium itself is unchanged.
//
// The choice favours what finds bugs: everything lost, everything kept, a single unit lost or
// kept, and each unit independently.
func (m *Medium) Crash(rnd *rand.Rand) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := slices.Clone(m.durable)
	units := slices.Sorted(maps.Keys(m.pending))
	if len(units) == 0 {
		return state
	}
	keep := func(u int64, n int) {
		if n > 0 {
			copy(state[u*m.unit:], m.pending[u].versions[n-1])
		}
	}
	way, odd := rnd.IntN(8), units[rnd.IntN(len(units))]
	for _, u := range units {
		all := len(m.pending[u].versions)
		switch {
		case way == 0: // all lost
		case way == 1, way == 2 && u != odd, way == 3 && u == odd:
			keep(u, all)
		case way == 2, way == 3:
		default:
			keep(u, rnd.IntN(all+1))
		}
	}
	return state
}

// Each calls do with every content that the medium may have if the power fails now. Units of a group share their fate:
// none is kept, or the last version of the first half of them, or of all; group returns 0 for a unit, at a byte, that is
// in no group. do must not keep the content.
func (m *Medium) Each(group func(off int64) int, do func(content []byte)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := slices.Clone(m.durable)
	next := func() { do(state) }
	groups := map[int][]int64{}
	for _, u := range slices.Sorted(maps.Keys(m.pending)) {
		if g := group(u * m.unit); g > 0 {
			groups[g] = append(groups[g], u)
			continue
		}
		versions, others := m.pending[u].versions, next
		next = func() {
			others()
			for _, v := range versions {
				copy(state[u*m.unit:], v)
				others()
			}
			copy(state[u*m.unit:], m.durable[u*m.unit:(u+1)*m.unit])
		}
	}
	for _, units := range groups {
		others := next
		next = func() {
			others()
			for i, u := range units {
				versions := m.pending[u].versions
				copy(state[u*m.unit:], versions[len(versions)-1])
				if i == (len(units)-1)/2 || i == len(units)-1 {
					others()
				}
			}
			for _, u := range units {
				copy(state[u*m.unit:], m.durable[u*m.unit:(u+1)*m.unit])
			}
		}
	}
	next()
}
