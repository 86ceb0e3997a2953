package persist

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// entriesPage is how many entries of a map fit in a page.
const entriesPage = pageSize / entrySize

// extent is a range of logical blocks, their map, and blocks of the file for data. Blocks are numbered from 0 in each
// extent; a logical block of one extent may lie in another.
type extent struct {
	rec    extentRecord
	region *blockdev.Region
	data   []byte
	from   uint64 // number in the file of the first block of data

	durable, work []uint64      // the maps in the file
	table         []uint64      // the one that requests use; accessed atomically
	backed        []atomic.Bool // pages of the maps for which the file system has allocated space

	pins pins

	// Protected by atomicVolume.mu.
	free *freeSet
	// With a working map: its entries that changed since the last checkpoint began, and the blocks that it names since
	// then; grown are those of the running checkpoint.
	dirty, young, grown *bitset
	// Blocks that a write replaced, but that the durable map still names: those since the last checkpoint began, and
	// those that the running one will free.
	replaced, freeing *bitset
}

// newExtent returns the extent of a record in a mapping that begins at byte base of the file.
func newExtent(rec extentRecord, region *blockdev.Region, base uint64, bs int, working bool) (*extent, error) {
	cut := func(off, n uint64) []byte { return region.Mem[off-base:][:n:n] }
	n := int(rec.dataBlocks)
	x := &extent{
		rec: rec, region: region,
		data:    cut(rec.dataOff, rec.dataBlocks*uint64(bs)),
		from:    rec.dataOff / uint64(bs),
		durable: words(cut(rec.tableOff, rec.blocks*entrySize)),
		work:    words(cut(rec.workOff, rec.blocks*entrySize)),
		free:    newFreeSet(n),
		backed:  make([]atomic.Bool, rec.blocks/entriesPage+1),
	}
	x.table = x.durable
	if working {
		x.table = x.work
		x.dirty, x.young, x.grown = newBitset(int(rec.blocks)), newBitset(n), newBitset(n)
		x.replaced, x.freeing = newBitset(n), newBitset(n)
	}
	var err error
	x.pins, err = newPins(n)
	return x, err
}

func (x *extent) close() error { return x.pins.close() }

// blocks is a run of adjacent blocks of an extent. Without an extent they read as zeroes.
type blocks struct {
	x        *extent
	first, n int
}

// bytes returns the memory of blocks.
func (b blocks) bytes(shift uint) []byte {
	return b.x.data[b.first<<shift : (b.first+b.n)<<shift : (b.first+b.n)<<shift]
}

// follows reports whether b begins right after c.
func (b blocks) follows(c blocks) bool {
	return b.x == c.x && (b.x == nil || b.first == c.first+c.n)
}

// number returns the number in the file of block i of b, as entries contain it; 0 if it reads as zeroes.
func (b blocks) number(i int) uint64 {
	if b.x == nil {
		return 0
	}
	return b.x.from + uint64(b.first+i)
}

// extentOf finds the extent whose data contains block p of the file, and the block's number in it.
func extentOf(xs []*extent, p uint64) (*extent, int) {
	for _, x := range xs {
		if i := p - x.from; i < x.rec.dataBlocks {
			return x, int(i)
		}
	}
	return nil, 0
}

// lookup finds the extent that maps logical block lba, the index of the entry, and how many of n blocks it maps from
// there on.
func lookup(xs []*extent, lba, n uint64) (x *extent, i, count int) {
	for _, x := range xs {
		if lba-x.rec.first < x.rec.blocks {
			i := lba - x.rec.first
			return x, int(i), int(min(n, x.rec.blocks-i))
		}
	}
	panic("a logical block beyond the volume")
}
