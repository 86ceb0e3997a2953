package mem

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// model is what an Arena must look like from outside: buffers that don't overlap and keep
// what is written into them, under a limit.
type model struct {
	t     testing.TB
	arena *Arena
	held  []held
	inUse int64
}

type held struct {
	buf  []byte
	mark byte
	full bool // all of buf is mark, not only a byte of each unit and the last
}

const (
	modelMax = 8 << 20
	// fullMarks is the size below which all bytes of a buffer are written and compared. Of larger buffers only every
	// sixteenth is: buffers begin at units, so one that overlaps another overwrites a unit's first byte as well.
	fullMarks = 64 * unit
)

func (h *held) fill() {
	if h.full {
		h.buf[0] = h.mark
		for n := 1; n < len(h.buf); n *= 2 {
			copy(h.buf[n:], h.buf[:n])
		}
		return
	}
	for i := 0; i < len(h.buf); i += unit {
		h.buf[i] = h.mark
	}
	h.buf[len(h.buf)-1] = h.mark
}

// intact tells whether a buffer holds what fill wrote.
func (h *held) intact() bool {
	last := len(h.buf) - 1
	if h.full { // all bytes are the mark if the first is, and each equals the one before it
		return h.buf[0] == h.mark && bytes.Equal(h.buf[:last], h.buf[1:])
	}
	for i := 0; i < len(h.buf); i += unit {
		if h.buf[i] != h.mark {
			return false
		}
	}
	return h.buf[last] == h.mark
}

func newModel(t testing.TB) *model {
	return &model{t: t, arena: newArena(t, Config{Max: modelMax})}
}

// step runs one operation, chosen by op, with an argument.
func (m *model) step(op byte, arg uint32) {
	switch {
	case op < 110:
		m.alloc(int(arg%(1<<(9+arg>>28)))+1, m.arena.Alloc)
	case op < 130:
		m.alloc(int(arg%(1<<(9+arg>>28)))+1, m.arena.AllocSparse)
	case op < 250 && len(m.held) > 0:
		m.free(int(arg) % len(m.held))
	case op >= 250:
		for len(m.held) > 0 {
			m.free(len(m.held) - 1)
		}
		m.checkEmpty()
	}
}

func (m *model) alloc(n int, from func(int) []byte) {
	b := from(n)
	if b == nil {
		// Fragments may be in the way, but not when next to nothing is in use.
		if n <= 1<<20 && m.inUse < modelMax/64 {
			m.t.Fatalf("%d bytes refused with %d in use", n, m.inUse)
		}
		return
	}
	m.inUse += int64(unitsFor(n)) * unit
	h := held{b, byte(len(m.held)*31 + n), n < fullMarks || n%16 == 0}
	h.fill()
	m.held = append(m.held, h)
	if m.arena.mapped > modelMax {
		m.t.Fatalf("%d bytes mapped", m.arena.mapped)
	}
}

func (m *model) free(i int) {
	h := m.held[i]
	if !h.intact() {
		m.t.Fatalf("a buffer of %d was overwritten", len(h.buf))
	}
	m.inUse -= int64(unitsFor(len(h.buf))) * unit
	m.arena.Free(h.buf)
	m.held[i] = m.held[len(m.held)-1]
	m.held = m.held[:len(m.held)-1]
}

// check: the bookkeeping is consistent, and agrees with the model.
func (m *model) check() {
	checkBooks(m.t, m.arena)
	if used, _, _ := holds(m.arena); used != m.inUse {
		m.t.Fatalf("%d bytes in use, want %d", used, m.inUse)
	}
}

// checkEmpty: with nothing in use, everything joins again.
func (m *model) checkEmpty() {
	m.check()
	a, b := m.arena.Alloc(ChunkSize), m.arena.Alloc(ChunkSize)
	if a == nil || b == nil {
		m.t.Fatal("two chunks refused of an empty arena")
	}
	m.arena.Free(a)
	m.arena.Free(b)
}

// checkBooks walks every chunk: its blocks follow one another without a gap, the lists hold the free ones, and no two
// free buddies are left apart.
func checkBooks(t testing.TB, a *Arena) {
	t.Helper()
	a.drain()
	var room [ChunkSize / unit]uint8 // one more than the order of the list that a unit is in
	for _, c := range a.chunks {
		listed, left := room[:], 0
		if len(c.units) > len(room) {
			listed = make([]uint8, len(c.units))
		}
		clear(listed)
		for order, u := range c.lists {
			if (u != noUnit) != (c.avail>>order&1 != 0) {
				t.Fatalf("order %d: list and mask differ", order)
			}
			for ; u != noUnit; u = c.units[u].next {
				if listed[u] != 0 {
					t.Fatalf("unit %d is in two lists, or twice in one", u)
				}
				listed[u] = uint8(order) + 1
				left++
			}
		}
		used := uint32(0)
		for u := uint32(0); u < uint32(len(c.units)); {
			s := c.units[u].state.Load()
			size := s &^ stateMask
			switch s & stateMask {
			case stateFree:
				order := int(size)
				if int(listed[u]) != order+1 || u&(1<<order-1) != 0 {
					t.Fatalf("unit %d: free block of order %d isn't listed so", u, order)
				}
				if order < c.top && c.units[u^1<<order].state.Load() == s {
					t.Fatalf("unit %d: two free halves of order %d", u, order)
				}
				left--
				size = 1 << order
			case stateUsed:
				used += size
			default:
				t.Fatalf("unit %d: state %#x where a block must begin", u, s)
			}
			u += size
		}
		if used != c.used || left != 0 {
			t.Fatalf("%d units in use, %d counted; %d stray list entries", used, c.used, left)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(4) {
		m := newModel(t)
		r := rand.New(rand.NewPCG(seed, 3))
		for range 800 {
			m.step(byte(r.Uint32()), r.Uint32())
		}
		m.check()
		m.step(255, 0)
	}
}

func FuzzAgainstModel(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(uint8(0), []byte{0, 1, 2, 3, 4, 0, 255, 255, 0, 0, 200, 0, 0, 0, 0, 255, 0, 0, 0, 0})
	f.Worlds(func(t *testing.T, _ uint8, inputs iter.Seq[[]byte]) {
		m := newModel(t)
		for ops := range inputs {
			for len(ops) >= 5 {
				m.step(ops[0], uint32(ops[1])|uint32(ops[2])<<8|uint32(ops[3])<<16|uint32(ops[4])<<24)
				ops = ops[5:]
			}
			m.check()
		}
		m.step(255, 0)
	})
}
