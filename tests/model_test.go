package tests

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// model is what a volume should hold, block by block, and which blocks commands in flight may touch: a command that
// changes a block has it alone, so that its content is always known.
//
// A block is identified by the stamp of the write that filled it; its content follows from its address and the stamp,
// so that a wrong block shows whose data it holds.
type model struct {
	blockSize int
	forgets   bool // the volume reads as zeroes whatever is written (null)

	mu    sync.Mutex
	locks []int16 // 0: free; above: readers; exclusive: one that changes it

	// stamps belongs to whoever has locked the block.
	stamps []uint64
}

const (
	exclusive = -1

	stampZero    = 0          // reads as zeroes
	stampUnknown = ^uint64(0) // may read as anything
)

// span is a range of blocks.
type span struct{ first, blocks int }

func newModel(size int64, blockSize int, forgets bool) *model {
	n := int(size) / blockSize
	return &model{blockSize: blockSize, forgets: forgets, locks: make([]int16, n), stamps: make([]uint64, n)}
}

func (m *model) blocks() int { return len(m.locks) }

// lock takes every block of spans, shared or alone, or none of them.
func (m *model) lock(spans []span, alone bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range spans {
		for _, l := range m.locks[s.first : s.first+s.blocks] {
			if l == exclusive || alone && l != 0 {
				m.release(spans[:i], alone)
				return false
			}
		}
		for b := s.first; b < s.first+s.blocks; b++ {
			if alone {
				m.locks[b] = exclusive
			} else {
				m.locks[b]++
			}
		}
	}
	return true
}

func (m *model) unlock(spans []span, alone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(spans, alone)
}

func (m *model) release(spans []span, alone bool) {
	for _, s := range spans {
		for b := s.first; b < s.first+s.blocks; b++ {
			if alone {
				m.locks[b] = 0
			} else {
				m.locks[b]--
			}
		}
	}
}

// set records what locked blocks hold now.
func (m *model) set(spans []span, stamp uint64) {
	if m.forgets && stamp != stampUnknown {
		stamp = stampZero
	}
	for _, s := range spans {
		for b := s.first; b < s.first+s.blocks; b++ {
			m.stamps[b] = stamp
		}
	}
}

// known reports whether every block of a locked span has known content.
func (m *model) known(s span) bool {
	return !slices.Contains(m.stamps[s.first:s.first+s.blocks], stampUnknown)
}

// expect fills p with what a locked span holds. All of it must be known.
func (m *model) expect(p []byte, s span) {
	for i := range s.blocks {
		fillBlock(p[i*m.blockSize:(i+1)*m.blockSize], s.first+i, m.stamps[s.first+i])
	}
}

// check compares p, which was read from a locked span, with the model.
func (m *model) check(p []byte, s span) error {
	for i := range s.blocks {
		b := s.first + i
		if err := checkBlock(p[i*m.blockSize:(i+1)*m.blockSize], b, m.stamps[b]); err != nil {
			return err
		}
	}
	return nil
}

// fillSpan makes the data of a write.
func fillSpan(p []byte, s span, blockSize int, stamp uint64) {
	for i := range s.blocks {
		fillBlock(p[i*blockSize:(i+1)*blockSize], s.first+i, stamp)
	}
}

// A block begins with its address and its stamp; the following words are derived from both.
const blockHeader = 16

func fillBlock(p []byte, block int, stamp uint64) {
	if stamp == stampZero {
		clear(p)
		return
	}
	binary.LittleEndian.PutUint64(p, uint64(block))
	binary.LittleEndian.PutUint64(p[8:], stamp)
	w := firstWord(block, stamp)
	for i := blockHeader; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], w)
		w = nextWord(w)
	}
}

// checkBlock compares a block with what a write of that stamp left there.
func checkBlock(p []byte, block int, stamp uint64) error {
	switch stamp {
	case stampUnknown:
		return nil
	case stampZero:
		for i := 0; i < len(p); i += 8 {
			if binary.LittleEndian.Uint64(p[i:]) != 0 {
				return fmt.Errorf("block %d, byte %d: want zeroes, %s", block, i, describe(p))
			}
		}
		return nil
	}
	if uint64(block) != binary.LittleEndian.Uint64(p) || stamp != binary.LittleEndian.Uint64(p[8:]) {
		return fmt.Errorf("block %d: want the data of command %d, %s", block, stamp, describe(p))
	}
	w := firstWord(block, stamp)
	for i := blockHeader; i < len(p); i += 8 {
		if binary.LittleEndian.Uint64(p[i:]) != w {
			return fmt.Errorf("block %d, byte %d: the data of command %d is there only up to here, then % x",
				block, i, stamp, p[i:min(i+16, len(p))])
		}
		w = nextWord(w)
	}
	return nil
}

// describe says what a block holds instead of what it should.
func describe(p []byte) string {
	block, stamp := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if block == 0 && stamp == 0 {
		return "but it begins with zeroes"
	}
	if stamp != stampZero && stamp != stampUnknown && checkBlock(p, int(block), stamp) == nil {
		return fmt.Sprintf("but it holds block %d of command %d", block, stamp)
	}
	return fmt.Sprintf("but it begins with % x", p[:32])
}

func firstWord(block int, stamp uint64) uint64 {
	return (uint64(block)*0x9e3779b97f4a7c15 ^ stamp*0xd1b54a32d192ed03) | 1
}

func nextWord(w uint64) uint64 { return bits.RotateLeft64(w, 7) + 0x9e3779b97f4a7c15 }

// poison marks the buffers of blocks to be read, so that one that isn't filled is noticed.
func poison(p []byte, blockSize int) {
	for i := 0; i < len(p); i += blockSize {
		binary.LittleEndian.PutUint64(p[i:], 0xdeaddeaddeaddead)
		binary.LittleEndian.PutUint64(p[i+8:], 0xdeaddeaddeaddead)
		binary.LittleEndian.PutUint64(p[i+blockSize-8:], 0xdeaddeaddeaddead)
	}
}
