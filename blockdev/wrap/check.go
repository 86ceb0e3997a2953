package wrap

import (
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// ErrChecksum is the cause of the error of a read that gave other data than was written.
var ErrChecksum = errors.New("checksum mismatch: other data was written here")

// Checker is a volume that remembers a checksum (CRC-32C) of each block, while it is open, and
// compares what is read with it. A block that wasn't written yet is remembered as it is first
// read.
type Checker struct {
	layer
	block int64
	zero  uint32 // the checksum of a block of zeroes
	bad   atomic.Uint64

	table  sync.Mutex
	chunks map[int64]*chunk // of chunkBlocks blocks each
}

const chunkBlocks = 1024

type chunk [chunkBlocks]mark

// mark is what is known of a block.
type mark struct {
	sum     uint32
	gen     uint32 // changes with each write that begins
	writers uint16
	known   bool
	mixed   bool // writes met on it
}

// seen is what a read knew of a block when it was submitted.
type seen struct {
	gen  uint32
	calm bool // nobody was writing
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewChecker checks what is read from v.
func NewChecker(v blockdev.Volume) *Checker {
	k := &Checker{block: int64(v.Info().BlockSize), chunks: map[int64]*chunk{}}
	k.zero = crc32.Checksum(make([]byte, k.block), castagnoli)
	k.layer = newLayer(v, "checked", func(c *call) { c.data = &[]seen{} }, k.back)
	return k
}

// Mismatches is how many blocks were read that hold other data than was written.
func (k *Checker) Mismatches() uint64 { return k.bad.Load() }

// Submit passes r on, and notes the state of its blocks.
func (k *Checker) Submit(r *blockdev.Request) {
	c := k.enter(r)
	if c == nil {
		return
	}
	info := k.below.Info()
	if blockdev.Check(&info, info.Size, r) == nil && r.Op != blockdev.OpFlush {
		k.begin(c)
	} else {
		*c.seen() = (*c.seen())[:0]
	}
	k.below.Submit(&c.down)
}

func (c *call) seen() *[]seen {
	s, _ := c.data.(*[]seen)
	return s
}

// begin notes the state of the blocks of a call that is valid.
func (k *Checker) begin(c *call) {
	list := (*c.seen())[:0]
	k.table.Lock()
	for b, n := k.span(&c.down); n > 0; b, n = b+1, n-1 {
		m := k.mark(b)
		if c.down.Op != blockdev.OpRead {
			m.writers++
			m.gen++
			m.known, m.mixed = false, m.mixed || m.writers > 1
		}
		list = append(list, seen{m.gen, m.writers == 0})
	}
	k.table.Unlock()
	*c.seen() = list
}

// span is the blocks of a request.
func (k *Checker) span(r *blockdev.Request) (first, n int64) {
	return r.Offset / k.block, r.Length / k.block
}

// mark is the entry of a block. Called with table held.
func (k *Checker) mark(b int64) *mark {
	c := k.chunks[b/chunkBlocks]
	if c == nil {
		c = &chunk{}
		k.chunks[b/chunkBlocks] = c
	}
	return &c[b%chunkBlocks]
}

// back looks at what the volume below answered.
func (k *Checker) back(c *call) {
	r := &c.down
	err := r.Err
	if len(*c.seen()) > 0 {
		switch r.Op {
		case blockdev.OpRead:
			if err == nil {
				err = k.compare(c)
			}
		default:
			k.written(r)
		}
	}
	k.leave(c, err)
}

// written notes what a write left.
func (k *Checker) written(r *blockdev.Request) {
	s := summer{bufs: r.Bufs}
	first, n := k.span(r)
	for i := range n {
		sum := k.zero
		if r.Op == blockdev.OpWrite {
			sum = s.next(k.block)
		}
		k.table.Lock()
		m := k.mark(first + i)
		m.writers--
		m.sum, m.known = sum, r.Err == nil && !m.mixed && r.Op != blockdev.OpDiscard
		if m.writers == 0 {
			m.mixed = false
		} else {
			m.known = false
		}
		k.table.Unlock()
	}
}

// compare checks what was read, of blocks that nobody wrote meanwhile.
func (k *Checker) compare(c *call) (err error) {
	s := summer{bufs: c.down.Bufs}
	first, n := k.span(&c.down)
	for i := range n {
		sum, was := s.next(k.block), (*c.seen())[i]
		k.table.Lock()
		m := k.mark(first + i)
		wrong := false
		if was.calm && m.gen == was.gen {
			wrong = m.known && m.sum != sum
			if !m.known {
				m.sum, m.known = sum, true
			}
		}
		want := m.sum
		k.table.Unlock()
		if wrong {
			k.bad.Add(1)
			if err == nil {
				info := k.below.Info()
				err = info.Fail(blockdev.OpRead, (first+i)*k.block, blockdev.ErrMedium,
					fmt.Errorf("%w: CRC-32C %08x, read %08x", ErrChecksum, want, sum))
			}
		}
	}
	return err
}

// summer takes the checksums of blocks one after the other out of buffers of any length.
type summer struct {
	bufs [][]byte
	at   int
}

func (s *summer) next(n int64) (sum uint32) {
	for n > 0 {
		b := s.bufs[0][s.at:]
		if int64(len(b)) > n {
			s.at += int(n)
			return crc32.Update(sum, castagnoli, b[:n])
		}
		sum = crc32.Update(sum, castagnoli, b)
		n -= int64(len(b))
		s.bufs, s.at = s.bufs[1:], 0
	}
	return sum
}
