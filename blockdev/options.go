package blockdev

import (
	"errors"
	"fmt"
	"math/bits"
)

// Options is how a volume is opened. The zero value opens what exists, read-write, with
// blocks of DefaultBlockSize and direct I/O where that works.
type Options struct {
	// Size in bytes. A file that doesn't exist is created with it; one that exists must
	// have it. 0 takes the size that is there.
	Size int64
	// BlockSize is the logical block in bytes, a power of two from 512 to MaxBlockSize;
	// 0 is DefaultBlockSize, or the logical block of a block device.
	BlockSize int
	ReadOnly  bool
	// Preallocate reserves the space of a file that is created; otherwise that is sparse.
	Preallocate bool
	// IO chooses how a file is reached.
	IO IOMode
}

// IOMode is how a file is reached.
type IOMode uint8

// I/O modes.
const (
	IOAuto     IOMode = iota // as IODirect, by io_uring before workers, else buffered
	IODirect                 // direct by asynchronous I/O, where that doesn't work by workers, or an error
	IOBuffered               // through the page cache
	IOUring                  // direct by io_uring, or an error
)

// Block sizes.
const (
	DefaultBlockSize = 4096
	MinBlockSize     = 512
)

// Validate tells what is wrong with the options by themselves.
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

// BlockSizeOr gives the block size, or def where none was chosen.
func (o *Options) BlockSizeOr(def int) int {
	if o.BlockSize != 0 {
		return o.BlockSize
	}
	return def
}

// CheckSize tells whether a volume can have size bytes in blocks of blockSize, with what to
// do where it can't.
func CheckSize(size int64, blockSize int) error {
	switch {
	case size <= 0:
		return errors.New("a volume needs a size of at least one block")
	case size%int64(blockSize) != 0:
		down := size - size%int64(blockSize)
		next := fmt.Sprint(down + int64(blockSize))
		if down > 0 {
			next = fmt.Sprintf("%d or %s", down, next)
		}
		err := fmt.Errorf("size of %d bytes is not a multiple of the block size %d: take %s", size, blockSize, next)
		if blockSize > MinBlockSize && size%MinBlockSize == 0 {
			err = fmt.Errorf("%w, or a block size of %d", err, MinBlockSize)
		}
		return err
	}
	return nil
}
