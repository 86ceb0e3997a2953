package blockdev

import (
	"errors"
	"fmt"
	"os"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// alignment is what direct I/O requires of a request: addresses in multiples of mem bytes, offsets and lengths in
// multiples of unit.
type alignment struct {
	mem, unit int
	assumed   bool // the system doesn't say
}

// openDirect reopens f's file for direct I/O and tries it with one block. An error says why that isn't possible.
func openDirect(f *os.File, readOnly bool, blockSize int) (*os.File, alignment, error) {
	a, err := directAlignment(f, blockSize)
	if err != nil {
		return nil, a, err
	}
	if a.unit > blockSize {
		return nil, a, fmt.Errorf("direct I/O needs blocks of %d bytes here", a.unit)
	}
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	d, err := directio.OpenFile(f.Name(), flag, 0)
	if err != nil {
		return nil, a, noDirect(err)
	}
	if err := probeDirect(f, d, blockSize); err != nil {
		d.Close()
		return nil, a, err
	}
	return d, a, nil
}

// probeDirect reads the first block, which fails on file systems that only seem to support direct I/O, and checks that
// the name still refers to the same file.
func probeDirect(f, d *os.File, blockSize int) error {
	one, err := f.Stat()
	if err != nil {
		return err
	}
	two, err := d.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(one, two) {
		return errors.New("the file was replaced while it was opened")
	}
	if _, err := d.ReadAt(directio.AlignedBlock(blockSize), 0); err != nil {
		return noDirect(err)
	}
	return nil
}

func noDirect(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return errors.New("the file system has no direct I/O")
	}
	return fmt.Errorf("direct I/O fails: %w", err)
}

// directAlignment asks the file system by statx, which Linux answers since 6.1. If it doesn't, it assumes an alignment
// that every device accepts.
func directAlignment(f *os.File, blockSize int) (alignment, error) {
	if inMemory(f) {
		return alignment{}, errors.New("the file system is in memory")
	}
	var st unix.Statx_t
	if unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) == nil &&
		st.Mask&unix.STATX_DIOALIGN != 0 {
		if st.Dio_mem_align == 0 || st.Dio_offset_align == 0 {
			return alignment{}, errors.New("the file system has no direct I/O for this file")
		}
		return alignment{mem: int(st.Dio_mem_align), unit: int(st.Dio_offset_align)}, nil
	}
	return alignment{mem: directio.AlignSize, unit: blockSize, assumed: true}, nil
}

// inMemory reports whether a regular file is on a tmpfs, which accepts the flag and ignores it.
func inMemory(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false // the node of a block device may lie in a tmpfs
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// sector returns how many bytes the device below is known to write whole: its physical sector, or the logical one,
// which is the unit of direct I/O, or the smallest that exists.
func (a *alignment) sector(f *os.File) int {
	switch n := physicalSector(f); {
	case n > 0:
		return n
	case a.assumed:
		return MinBlockSize
	}
	return a.unit
}
