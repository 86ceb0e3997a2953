package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Options says how a volume is opened. The zero value opens an existing volume, read-write, with blocks of
// DefaultBlockSize and direct I/O if that works.
type Options struct {
	// Size in bytes. A file that doesn't exist is created with it; an existing one must have it. 0 accepts the existing
	// size.
	Size int64
	// BlockSize is the logical block in bytes, a power of two from 512 to MaxBlockSize; 0 means DefaultBlockSize, or
	// the logical block of a block device.
	BlockSize int
	ReadOnly  bool
	// Preallocate reserves the space of a file that is created; without it the file is sparse.
	Preallocate bool
	// IO chooses how a file is accessed.
	IO IOMode
	// Created, if it isn't nil, becomes true if the file was created. Who then has no use for the volume can remove the
	// file before closing it, while its lock keeps others away.
	Created *bool
}

// IOMode is how a file is accessed.
type IOMode uint8

// I/O modes.
const (
	IOAuto     IOMode = iota // as IODirect, but with io_uring preferred to workers; if that fails, buffered
	IODirect                 // direct by asynchronous I/O, or by workers if that doesn't work; else an error
	IOBuffered               // through the page cache
	IOUring                  // direct by io_uring, or an error
)

// Block sizes, in bytes.
const (
	DefaultBlockSize = 4096
	MinBlockSize     = 512
	MaxBlockSize     = 64 << 10
)

// Validate reports what is wrong with the options by themselves. The error is a cause for OpenError, with kind
// ErrInvalid.
func (o *Options) Validate() error {
	if o.BlockSize != 0 && (o.BlockSize < MinBlockSize || o.BlockSize > MaxBlockSize || bits.OnesCount(uint(o.BlockSize)) != 1) {
		return fmt.Errorf("block size %d: it must be a power of two from %d to %d (most use 512 or 4096)",
			o.BlockSize, MinBlockSize, MaxBlockSize)
	}
	if o.Size < 0 {
		return fmt.Errorf("size %d is negative", o.Size)
	}
	if o.IO > IOUring {
		return errors.New("unknown I/O mode")
	}
	return nil
}

// BlockSizeOr returns the block size, or def if none was chosen.
func (o *Options) BlockSizeOr(def int) int { return cmp.Or(o.BlockSize, def) }

// CheckSize reports whether a volume can have size bytes in blocks of blockSize; the error says what to do instead, and
// is a cause for OpenError, with kind ErrInvalid.
func CheckSize(size int64, blockSize int) error {
	switch {
	case size <= 0:
		return errors.New("a volume needs a size of at least one block")
	case size%int64(blockSize) != 0:
		down := size - size%int64(blockSize)
		take := fmt.Sprint(down + int64(blockSize))
		switch {
		case down > math.MaxInt64-int64(blockSize):
			take = fmt.Sprint(down)
		case down > 0:
			take = fmt.Sprintf("%d or %s", down, take)
		}
		err := fmt.Errorf("size of %d bytes is not a multiple of the block size %d: take %s", size, blockSize, take)
		if blockSize > MinBlockSize && size%MinBlockSize == 0 {
			err = fmt.Errorf("%w, or a block size of %d", err, MinBlockSize)
		}
		return err
	}
	return nil
}
