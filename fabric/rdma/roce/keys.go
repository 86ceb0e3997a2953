package roce

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// region is what an R_Key opens: a memory region or a bound window.
type region struct {
	key    uint32 // 0 while no R_Key leads here
	pd     *pd
	qp     *qp // the only queue pair that may use it; nil for any of the domain
	window *mw // nil for a memory region
	access verbs.Access
	base   uint64
	buf    []byte
	batch  uint64 // the last one that has an answer to a READ from here
}

// slice returns the n bytes at address va, and whether they lie inside the region.
func (r *region) slice(va uint64, n int) ([]byte, bool) {
	off := va - r.base // wraps to something huge below base
	if size := uint64(len(r.buf)); off > size || uint64(n) > size-off {
		return nil, false
	}
	return r.buf[off : off+uint64(n) : off+uint64(n)], true
}

// rkeyTable finds regions by R_Key: open addressing with linear probing. The keys are random
// and chosen here, so they are their own hash, and no peer can make them collide.
type rkeyTable struct {
	slots  []rkeySlot // a power of two, at most half full
	used   int
	random keySource
}

type rkeySlot struct {
	key uint32  // 0: free
	r   *region // nil: the key is taken, and opens nothing yet
}

func newRKeyTable() rkeyTable { return rkeyTable{slots: make([]rkeySlot, 256)} }

// find returns the place of key, or the free place where it would be.
func (t *rkeyTable) find(key uint32) uint32 {
	mask := uint32(len(t.slots) - 1)
	i := key & mask
	for t.slots[i].key != key && t.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	return i
}

// lookup returns what key opens, or nil.
func (t *rkeyTable) lookup(key uint32) *region { return t.slots[t.find(key)].r }

// reserve draws a key that nobody can guess and that is not in use, and takes it. It opens nothing yet. If the keys of
// windows that are yet to be bound were not reserved, two of them would be the same about every ten million bindings.
func (t *rkeyTable) reserve() uint32 {
	key := t.random.next()
	for key == 0 || t.slots[t.find(key)].key != 0 {
		key = t.random.next()
	}
	t.take(key)
	return key
}

// take adds key, which must not be in use, to the table.
func (t *rkeyTable) take(key uint32) {
	if 2*(t.used+1) > len(t.slots) {
		old := t.slots
		t.slots = make([]rkeySlot, 2*len(old))
		for _, s := range old {
			if s.key != 0 {
				t.place(s)
			}
		}
	}
	t.place(rkeySlot{key, nil})
	t.used++
}

// open makes r.key, which is reserved, open r.
func (t *rkeyTable) open(r *region) { t.slots[t.find(r.key)].r = r }

func (t *rkeyTable) place(s rkeySlot) { t.slots[t.find(s.key)] = s }

// remove removes key, which opens nothing from then on. It closes the gap in the probe sequence, so that keys that come
// and go leave no trace.
func (t *rkeyTable) remove(key uint32) {
	mask := uint32(len(t.slots) - 1)
	i := t.find(key)
	if t.slots[i].key == 0 {
		return
	}
	t.used--
	for j := (i + 1) & mask; t.slots[j].key != 0; j = (j + 1) & mask {
		// The entry at j may move to i unless its home lies after i on the way to j.
		if home := t.slots[j].key & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = rkeySlot{}
}

// keySource draws random numbers from the system's generator, many at a time.
type keySource struct {
	buf  [512]byte
	left int
}

func (s *keySource) next() uint32 {
	if s.left == 0 {
		_, _ = rand.Read(s.buf[:]) // never fails
		s.left = len(s.buf)
	}
	s.left -= 4
	return binary.LittleEndian.Uint32(s.buf[s.left:])
}

// lkeyTable finds memory regions by L_Key: a dense index, and a byte that changes with each
// use of the index so that a stale key is noticed.
type lkeyTable struct {
	slots []lkeySlot
	free  []uint32
}

type lkeySlot struct {
	r   *mr
	gen uint8
}

func (t *lkeyTable) lookup(key uint32) *mr {
	if i := key >> 8; i < uint32(len(t.slots)) {
		if r := t.slots[i].r; r != nil && r.lkey == key {
			return r
		}
	}
	return nil
}

func (t *lkeyTable) insert(r *mr) {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, lkeySlot{})
	}
	t.slots[i].gen++
	t.slots[i].r = r
	r.lkey = i<<8 | uint32(t.slots[i].gen)
}

// closeAll makes every region one that is deregistered. No queue pair uses any at that time.
func (t *lkeyTable) closeAll() {
	for _, s := range t.slots {
		if s.r != nil {
			s.r.key = 0
		}
	}
	t.slots, t.free = nil, nil
}

func (t *lkeyTable) remove(key uint32) {
	t.slots[key>>8].r = nil
	t.free = append(t.free, key>>8)
}
