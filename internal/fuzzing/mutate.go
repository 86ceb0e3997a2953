package fuzzing

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// mutator makes inputs from those of a corpus. Each call overwrites what the previous one
// returned.
type mutator struct {
	rand   *rand.Rand
	corpus [][]any
	args   []any
	bufs   [][]byte // one for each argument
}

// next returns arguments for a target: those of an entry, with one or all of them changed.
func (m *mutator) next() []any {
	entry := m.pick()
	if m.bufs == nil {
		m.bufs = make([][]byte, len(entry))
	}
	m.args = append(m.args[:0], entry...)
	only := m.rand.IntN(2 * len(entry)) // or all
	for i, a := range entry {
		if only >= len(entry) || only == i {
			m.args[i] = m.change(i, a)
		}
	}
	return m.args
}

// world returns an input for a world.
func (m *mutator) world() []byte {
	if m.bufs == nil {
		m.bufs = make([][]byte, 2)
	}
	return m.bytes(1, m.pick()[1].([]byte))
}

func (m *mutator) pick() []any { return m.corpus[m.rand.IntN(len(m.corpus))] }

// change returns argument i of an entry, changed.
func (m *mutator) change(i int, a any) any {
	switch a := a.(type) {
	case []byte:
		return m.bytes(i, a)
	case string:
		return string(m.bytes(i, []byte(a)))
	case bool:
		return m.rand.IntN(2) == 0
	case uint8:
		return uint8(m.number(uint64(a)))
	case uint16:
		return uint16(m.number(uint64(a)))
	case uint32:
		return uint32(m.number(uint64(a)))
	case uint64:
		return m.number(a)
	case int:
		return int(m.number(uint64(a)))
	case int64:
		return int64(m.number(uint64(a)))
	default:
		return a
	}
}

func (m *mutator) number(n uint64) uint64 {
	switch m.rand.IntN(4) {
	case 0:
		return n + uint64(m.rand.IntN(33)) - 16
	case 1:
		return n ^ 1<<m.rand.IntN(64)
	case 2:
		return m.edge()
	default:
		return m.rand.Uint64() >> m.rand.IntN(64)
	}
}

// edge returns a number near a power of two, or its negative, where computations are likely to
// go wrong.
func (m *mutator) edge() uint64 {
	n := uint64(1)<<m.rand.IntN(64) + uint64(m.rand.IntN(3)) - 1
	if m.rand.IntN(2) == 0 {
		n = -n
	}
	return n
}

// bytes returns b with some changes, in the buffer of argument i.
func (m *mutator) bytes(i int, b []byte) []byte {
	m.bufs[i] = append(m.bufs[i][:0], b[:min(len(b), maxInput)]...)
	out := m.bufs[i]
	changes := 1 + m.rand.IntN(1<<m.rand.IntN(5)) // mostly few
	for range changes {
		out = m.once(out, i)
	}
	m.bufs[i] = out
	return out
}

// once makes one change to b.
func (m *mutator) once(b []byte, i int) []byte {
	kind := m.rand.IntN(12)
	if len(b) == 0 {
		kind = 8 + kind%2 // only the length can change
	}
	switch kind {
	case 0, 1:
		b[m.rand.IntN(len(b))] ^= 1 << m.rand.IntN(8)
	case 2, 3:
		b[m.rand.IntN(len(b))] = byte(m.rand.Uint32())
	case 4:
		b[m.rand.IntN(len(b))] += byte(m.rand.IntN(33) - 16)
	case 5:
		m.putNumber(b)
	case 6: // remove
		at, n := m.span(b)
		b = slices.Delete(b, at, at+n)
	case 7: // cut
		b = b[:m.rand.IntN(len(b))]
	case 8: // insert
		var some [16]byte
		for i := range some {
			some[i] = byte(m.rand.Uint32())
		}
		b = m.insert(b, some[:1+m.rand.IntN(len(some))])
	case 9: // insert part of another entry
		b = m.insert(b, m.piece(i))
	case 10: // overwrite with part of another entry
		copy(b[m.rand.IntN(len(b)):], m.piece(i))
	case 11: // move or repeat
		from, n := m.span(b)
		if m.rand.IntN(2) == 0 {
			copy(b[m.rand.IntN(len(b)):], b[from:from+n])
		} else {
			b = m.insert(b, append([]byte(nil), b[from:from+n]...))
		}
	}
	return b
}

// insert inserts some at a random place, as long as b stays within maxInput.
func (m *mutator) insert(b, some []byte) []byte {
	return slices.Insert(b, m.rand.IntN(len(b)+1), some[:min(len(some), max(0, maxInput-len(b)))]...)
}

// span returns a part of b, mostly a short one.
func (m *mutator) span(b []byte) (at, n int) {
	at = m.rand.IntN(len(b))
	return at, 1 + m.rand.IntN(min(len(b)-at, 1<<m.rand.IntN(12)))
}

// piece returns a part of argument i of any entry.
func (m *mutator) piece(i int) []byte {
	var b []byte
	switch a := m.pick()[i].(type) {
	case []byte:
		b = a
	case string:
		b = []byte(a)
	}
	if len(b) == 0 {
		return nil
	}
	at, n := m.span(b)
	return b[at : at+n]
}

// putNumber writes an edge number at a random place in b.
func (m *mutator) putNumber(b []byte) {
	var n [8]byte
	size := 2 << m.rand.IntN(3)
	some := n[:size]
	if m.rand.IntN(2) == 0 {
		binary.LittleEndian.PutUint64(n[:], m.edge())
	} else {
		binary.BigEndian.PutUint64(n[:], m.edge())
		some = n[8-size:]
	}
	copy(b[m.rand.IntN(len(b)):], some)
}
