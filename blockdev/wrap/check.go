package wrap

import (
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// ErrChecksum is the cause of the error of a read that returned other data than was written.
var ErrChecksum = errors.New("checksum mismatch: other data was written here")

// Checker is a volume that remembers a checksum (CRC-32C) of each block, while it is open, and compares what is read
// with it. For a block that hasn't been written yet it remembers the checksum of the first read.
type Checker struct {
	layer
	block int64
	zero  uint32        // the checksum of a block of zeroes
	bad   atomic.Uint64 // blocks that were read and held other data than was written

	table  sync.Mutex
	chunks map[int64]*chunk // of chunkBlocks blocks each
}

const chunkBlocks = 1024

// chunk is what is known of neighboring blocks. While each is nil all of them are in the same state, as after a large
// discard.
type chunk struct {
	all  mark
	each *[chunkBlocks]mark
}

// mark is what is known of a block.
type mark struct {
	sum     uint32
	gen     uint32 // changes with each write that begins
	writers uint16
	known   bool
	mixed   bool // writers have overlapped, or the block was cut off, since there was none
}

// seen is the state of a block when a read was submitted.
type seen struct {
	gen  uint32
	calm bool // nobody was writing
}

// note is the checker's state for a call.
type note struct {
	begun bool   // the state of its blocks has been recorded
	seen  []seen // for a read
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewChecker returns a volume that checks what is read from v.
func NewChecker(v blockdev.Volume) *Checker {
	k := &Checker{block: int64(v.Info().BlockSize), chunks: map[int64]*chunk{}}
	k.zero = crc32.Checksum(make([]byte, k.block), castagnoli)
	k.layer = newLayer(v, "checked", func(c *call) { c.data = &note{} }, k.back)
	k.OnResize(k.resized) // for as long as v exists
	return k
}

// resized forgets the blocks beyond the end, which are others if the volume grows again.
func (k *Checker) resized(size int64) {
	k.table.Lock()
	defer k.table.Unlock()
	for i := range k.chunks {
		first := max(i*chunkBlocks, size/k.block)
		k.change(first, (i+1)*chunkBlocks-first, func(m *mark) {
			m.gen++
			m.known, m.mixed = false, true
		})
	}
}

// Submit passes r on, and records the state of its blocks.
func (k *Checker) Submit(r *blockdev.Request) {
	c := k.enter(r)
	if c == nil {
		return
	}
	info, n := k.below.Info(), c.note()
	if err := blockdev.Check(&info, info.Size, &c.down); err != nil {
		k.leave(c, err) // the volume might have grown by the time it looks
		return
	}
	if n.begun = r.Op != blockdev.OpFlush; n.begun {
		k.begin(c)
	}
	k.below.Submit(&c.down)
}

func (c *call) note() *note {
	n, _ := c.data.(*note)
	return n
}

// begin records the state of the blocks of a valid call.
func (k *Checker) begin(c *call) {
	first, n := k.span(&c.down)
	k.table.Lock()
	defer k.table.Unlock()
	if c.down.Op != blockdev.OpRead {
		k.change(first, n, func(m *mark) {
			m.writers++
			m.gen++
			m.known, m.mixed = false, m.writers > 1
		})
		return
	}
	list := c.note().seen[:0]
	for i := range n {
		m := k.look(first + i)
		list = append(list, seen{m.gen, m.writers == 0})
	}
	c.note().seen = list
}

// span returns the blocks of a request.
func (k *Checker) span(r *blockdev.Request) (first, n int64) {
	return r.Offset / k.block, r.Length / k.block
}

// look returns what is known of a block. table must be held, as for the functions up to mark.
func (k *Checker) look(b int64) mark {
	switch c := k.chunks[b/chunkBlocks]; {
	case c == nil:
		return mark{}
	case c.each == nil:
		return c.all
	default:
		return c.each[b%chunkBlocks]
	}
}

// change calls f for n blocks from b on, but only once for a chunk that lies entirely among them and whose blocks are
// all in the same state.
func (k *Checker) change(b, n int64, f func(*mark)) {
	for end := b + n; b < end; {
		if c := k.chunk(b); c.each == nil && b%chunkBlocks == 0 && end-b >= chunkBlocks {
			f(&c.all)
			b += chunkBlocks
			continue
		}
		f(k.mark(b))
		b++
	}
}

// chunk returns the chunk that a block is in.
func (k *Checker) chunk(b int64) *chunk {
	c := k.chunks[b/chunkBlocks]
	if c == nil {
		c = &chunk{}
		k.chunks[b/chunkBlocks] = c
	}
	return c
}

// mark returns the entry of a block.
func (k *Checker) mark(b int64) *mark {
	c := k.chunk(b)
	if c.each == nil {
		c.each = &[chunkBlocks]mark{}
		for i := range c.each {
			c.each[i] = c.all
		}
	}
	return &c.each[b%chunkBlocks]
}

// back handles an answer of the volume below.
func (k *Checker) back(c *call) {
	r := &c.down
	err := r.Err
	if c.note().begun {
		switch r.Op {
		case blockdev.OpRead:
			if err == nil {
				err = k.compare(c)
			}
		case blockdev.OpWrite:
			k.written(r)
		default:
			k.emptied(r)
		}
	}
	k.leave(c, err)
}

// written records what a write left.
func (k *Checker) written(r *blockdev.Request) {
	s := summer{bufs: r.Bufs}
	first, n := k.span(r)
	for i := range n {
		sum := s.next(k.block)
		k.table.Lock()
		k.mark(first+i).end(sum, r.Err == nil)
		k.table.Unlock()
	}
}

// emptied records what a discard or write zeroes left.
func (k *Checker) emptied(r *blockdev.Request) {
	first, n := k.span(r)
	k.table.Lock()
	defer k.table.Unlock()
	k.change(first, n, func(m *mark) { m.end(k.zero, r.Err == nil && r.Op != blockdev.OpDiscard) })
}

// end records that one of the writers of a block has ended, and what it left there.
func (m *mark) end(sum uint32, known bool) {
	m.writers--
	m.sum, m.known = sum, known && !m.mixed
}

// compare checks what was read, for blocks that nobody wrote meanwhile.
func (k *Checker) compare(c *call) (err error) {
	s := summer{bufs: c.down.Bufs}
	first, n := k.span(&c.down)
	for i := range n {
		sum, was := s.next(k.block), c.note().seen[i]
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

// summer computes the checksums of consecutive blocks from buffers of any length.
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
