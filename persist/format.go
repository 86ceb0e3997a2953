package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sort"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// The format of a volume that writes out of place. docs/pmem.md describes it.

const (
	formatVersion = 1
	formatMagic   = "NVMEPMEM"

	superSize   = 4096
	superCopies = 2
	headSize    = superSize * superCopies

	// Byte offsets in a copy of the superblock.
	offVersion    = 8
	offSum        = 12
	offGeneration = 16
	offBlockSize  = 24
	offExtents    = 28
	offID         = 32
	offBoot       = 48
	offDevice     = 64
	offInode      = 72
	offMount      = 80
	offTable      = 128

	extentSize = 48
	maxExtents = 64

	areaAlign = 4096    // of the areas of an extent
	hugeAlign = 2 << 20 // of the data of a large one, for large pages
	hugeFrom  = 64 << 20

	entrySize = 8

	// Spare blocks are what writes go to while the blocks that they replace are still in use: briefly if lines are
	// flushed, in a page cache until the next flush.
	spareShare = 32 // of the blocks, one in this many; in a page cache an equal number
	minSpare   = 4 << 20
	maxSpare   = 1 << 30
	// loanSpare is added in a page cache: for writes that are in progress when each logical block already has a second
	// one.
	loanSpare = 16 << 20

	// minGrowth is how much a file must have grown by to be worth an extent.
	minGrowth = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNoVolume is that the file or device holds no volume that is written out of place. Open with mode=inplace uses it
// as it is, Format makes it such a volume. Everything else that is wrong with superblocks is damage, for Check.
var ErrNoVolume = errors.New("it holds no block-atomic volume")

var errSum = errors.New("the superblock's checksum is wrong")

// versionError is that a copy of the superblock is intact, but of a format that this program doesn't know.
type versionError struct {
	version    uint32
	generation uint64
}

func (e *versionError) Error() string {
	return fmt.Sprintf("its format has version %d, this program knows %d: use a later one", e.version, formatVersion)
}

// superblock is the content of a copy of the superblock.
type superblock struct {
	generation uint64
	blockSize  int
	id         [16]byte
	session    session
	extents    []extentRecord
}

// extentRecord is a range of logical blocks and where its maps and blocks are; offsets are in bytes of the file.
type extentRecord struct {
	first, blocks              uint64 // logical
	tableOff, workOff, dataOff uint64
	dataBlocks                 uint64
}

func (x *extentRecord) end(blockSize int) uint64 { return x.dataOff + x.dataBlocks*uint64(blockSize) }

// tableBytes returns the size of a map.
func (x *extentRecord) tableBytes() uint64 { return alignUp(x.blocks*entrySize, areaAlign) }

func alignUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

// blocks returns the number of logical blocks of all extents.
func (s *superblock) blocks() (n uint64) {
	for i := range s.extents {
		n += s.extents[i].blocks
	}
	return n
}

// end returns the first byte of the file beyond all extents.
func (s *superblock) end() uint64 { return s.extents[len(s.extents)-1].end(s.blockSize) }

// encode returns the superblock as it is stored, superSize bytes.
func (s *superblock) encode() []byte {
	p, le := make([]byte, superSize), binary.LittleEndian
	copy(p, formatMagic)
	le.PutUint32(p[offVersion:], formatVersion)
	le.PutUint64(p[offGeneration:], s.generation)
	le.PutUint32(p[offBlockSize:], uint32(s.blockSize))
	le.PutUint32(p[offExtents:], uint32(len(s.extents)))
	copy(p[offID:], s.id[:])
	copy(p[offBoot:], s.session.boot[:])
	le.PutUint64(p[offDevice:], s.session.dev)
	le.PutUint64(p[offInode:], s.session.inode)
	le.PutUint64(p[offMount:], s.session.mount)
	for i, x := range s.extents {
		q := p[offTable+i*extentSize:]
		for j, v := range []uint64{x.first, x.blocks, x.tableOff, x.workOff, x.dataOff, x.dataBlocks} {
			le.PutUint64(q[j*8:], v)
		}
	}
	le.PutUint32(p[offSum:], crc32.Checksum(p, castagnoli))
	return p
}

// parseSuper parses one copy.
func parseSuper(b []byte) (*superblock, error) {
	le := binary.LittleEndian
	if len(b) < superSize || string(b[:len(formatMagic)]) != formatMagic {
		return nil, ErrNoVolume
	}
	b = b[:superSize]
	var zero [4]byte
	sum := crc32.Update(0, castagnoli, b[:offSum])
	sum = crc32.Update(sum, castagnoli, zero[:])
	if sum = crc32.Update(sum, castagnoli, b[offSum+4:]); sum != le.Uint32(b[offSum:]) {
		return nil, errSum
	}
	if v := le.Uint32(b[offVersion:]); v != formatVersion {
		return nil, &versionError{v, le.Uint64(b[offGeneration:])}
	}
	n := le.Uint32(b[offExtents:])
	if n == 0 || n > maxExtents {
		return nil, fmt.Errorf("the superblock names %d extents, want 1 to %d", n, maxExtents)
	}
	s := &superblock{generation: le.Uint64(b[offGeneration:]), blockSize: int(le.Uint32(b[offBlockSize:]))}
	copy(s.id[:], b[offID:])
	copy(s.session.boot[:], b[offBoot:])
	s.session.dev, s.session.inode = le.Uint64(b[offDevice:]), le.Uint64(b[offInode:])
	s.session.mount = le.Uint64(b[offMount:])
	for i := range int(n) {
		q := b[offTable+i*extentSize:]
		f := func(j int) uint64 { return le.Uint64(q[j*8:]) }
		s.extents = append(s.extents, extentRecord{f(0), f(1), f(2), f(3), f(4), f(5)})
	}
	return s, nil
}

// check reports whether the extents make sense in a file of size bytes. As it is mapped, entries can name all its blocks.
func (s *superblock) check(size uint64) error {
	bs := uint64(s.blockSize)
	if bs < blockdev.MinBlockSize || bs > blockdev.MaxBlockSize || bits.OnesCount64(bs) != 1 {
		return fmt.Errorf("the superblock says blocks of %d bytes", s.blockSize)
	}
	var first uint64
	end := uint64(headSize)
	for i := range s.extents {
		x := &s.extents[i]
		switch {
		case x.first != first || x.blocks == 0 || x.dataBlocks < x.blocks,
			x.tableOff < end || x.workOff < x.tableOff || x.dataOff < x.workOff,
			x.tableOff%areaAlign+x.workOff%areaAlign+x.dataOff%max(areaAlign, bs) != 0,
			x.workOff-x.tableOff < x.tableBytes() || x.dataOff-x.workOff < x.tableBytes():
			return fmt.Errorf("extent %d of the superblock makes no sense: %+v", i, *x)
		case x.dataBlocks > (max(size, x.dataOff)-x.dataOff)/bs:
			return fmt.Errorf("extent %d ends at byte %d, the file at %d: it was cut", i, x.end(s.blockSize), size)
		}
		first += x.blocks
		end = x.end(s.blockSize)
	}
	return nil
}

// layOut places an extent of n logical blocks at byte off of the file or behind. cached says that the file lies in a
// page cache.
func layOut(first, off, n uint64, blockSize int, cached bool) extentRecord {
	bs := uint64(blockSize)
	x := extentRecord{first: first, blocks: n, tableOff: alignUp(off, areaAlign)}
	x.workOff = x.tableOff + x.tableBytes()
	align := max(areaAlign, bs)
	if n*bs >= hugeFrom {
		align = hugeAlign
	}
	x.dataOff = alignUp(x.workOff+x.tableBytes(), align)
	spare := n
	if !cached {
		spare = n / spareShare
	}
	spare = min(spare, maxSpare/bs)
	if first == 0 { // later extents can use the first one's
		if cached {
			spare += min(n/4, loanSpare/bs)
		}
		spare = max(spare, minSpare/bs)
	}
	x.dataBlocks = n + spare
	return x
}

// fit returns the largest extent that fits between two bytes of the file; false if there is none.
func fit(first, off, end uint64, blockSize int, cached bool) (extentRecord, bool) {
	if end <= off {
		return extentRecord{}, false
	}
	most := int((end - off) / uint64(blockSize))
	n := sort.Search(most, func(n int) bool {
		x := layOut(first, off, uint64(n)+1, blockSize, cached)
		return x.end(blockSize) > end
	})
	return layOut(first, off, uint64(n), blockSize, cached), n > 0
}

// An entry of the map says where a logical block is: bits 47:0 are the number of the block in the file, bits 63:48 a
// check. 0 is a block that reads as zeroes.
const (
	entryBits = 48
	entryMask = 1<<entryBits - 1
	// lostBlock is the place of a block whose place is unknown: reading it fails until it is written.
	lostBlock = entryMask
)

// salt makes entries of another volume fail the check.
func (s *superblock) salt() uint64 { return binary.LittleEndian.Uint64(s.id[:]) }

// entryCheck returns 16 bits that depend on all of an entry's content and on its position.
func entryCheck(salt, lba, p uint64) uint64 {
	x := lba*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(p*0xc2b2ae3d27d4eb4f, 31) ^ salt
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x >> entryBits
}

// words returns a map as its entries, in the processor's byte order: see native.
func words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/entrySize)
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// native converts an entry as it is stored in the file, little-endian, into a number, and back.
func native(e uint64) uint64 {
	if bigEndian {
		return bits.ReverseBytes64(e)
	}
	return e
}

// bytesOf returns the memory of entries.
func bytesOf(table []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(table))), len(table)*entrySize)
}
