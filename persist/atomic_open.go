package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// openAtomic opens, or creates with o.Size, a volume that writes out of place.
func openAtomic(path string, o blockdev.Options) (blockdev.Volume, error) {
	if err := o.Validate(); err != nil {
		return nil, blockdev.OpenError(path, blockdev.ErrInvalid, err)
	}
	st, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // whose remedy openFound tells
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, blockdev.OpenError(path, blockdev.KindOf(err), err)
	}
	empty := errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode().IsRegular() && st.Size() == 0
	return openFound(path, o, empty && o.Size > 0 && !o.ReadOnly)
}

// openFound opens, or creates if fresh, which says that there was nothing before the file was locked.
func openFound(path string, o blockdev.Options, fresh bool) (blockdev.Volume, error) {
	locked := o
	locked.Size = 0
	block := o.BlockSizeOr(blockdev.DefaultBlockSize)
	if fresh {
		if err := blockdev.CheckSize(o.Size, block); err != nil {
			return nil, blockdev.OpenError(path, blockdev.ErrInvalid, err)
		}
		if locked.Size = fileSize(o.Size, block, false); locked.Size < o.Size { // with the spare blocks no file can have it
			return nil, blockdev.OpenError(path, blockdev.KindOf(unix.EFBIG), unix.EFBIG)
		}
	}
	f, size, undo, err := blockdev.OpenLocked(path, &locked)
	if err != nil {
		return nil, err
	}
	unfinished := !fresh && o.Size > 0 && !o.ReadOnly && blockdev.CheckSize(o.Size, block) == nil &&
		size <= fileSize(o.Size, block, true) && holdsNothing(f)
	m, err := mapFile(f, size, o.ReadOnly)
	if err != nil {
		undo()
		f.Close()
		return nil, blockdev.OpenError(path, mapKind(err), err)
	}
	fresh = fresh && holdsNoVolume(m) // another program may have created it since
	v, err := openMapped(m, path, o, fresh || unfinished, flusher())
	if err != nil {
		undo()
		_ = m.close()
		return nil, openError(path, err)
	}
	return v, nil
}

// openError returns what a system error, or nil, means for opening a volume, which maps the file again if its size
// changes. Other errors have their kind already.
func openError(path string, err error) error {
	var op *blockdev.OpError
	if err == nil || errors.As(err, &op) {
		return err
	}
	return blockdev.OpenError(path, mapKind(err), err)
}

// openMapped returns the volume of a mapping, whose file is to be formatted if fresh.
func openMapped(m *mapping, path string, o blockdev.Options, fresh bool, lines *lineFlusher) (*atomicVolume, error) {
	if fresh {
		block := o.BlockSizeOr(blockdev.DefaultBlockSize)
		size := fileSize(o.Size, block, m.cached()) // which is only known now
		if size != int64(len(m.mem)) {
			if err := m.resize(size, o.Preallocate); err != nil {
				return nil, err
			}
		}
		rec := layOut(0, headSize, uint64(o.Size/int64(block)), block, m.cached())
		if err := format(m, newID(), rec, block, lines); err != nil {
			return nil, err
		}
	}
	s, errs := readSuper(m)
	if s == nil {
		return nil, unusable(m, path, errs)
	}
	if o.BlockSize != 0 && o.BlockSize != s.blockSize {
		return nil, blockdev.OpenError(path, blockdev.ErrInvalid,
			fmt.Errorf("it has blocks of %d bytes, and %d was asked for", s.blockSize, o.BlockSize))
	}
	v, err := newAtomic(m, s, path, o.ReadOnly, lines)
	if err != nil {
		return nil, err
	}
	if err := v.recover(); err != nil {
		return nil, errors.Join(err, v.unmapOwn())
	}
	if size := v.size.Load(); o.Size != 0 && o.Size != size {
		err := blockdev.OpenError(path, blockdev.ErrInvalid, fmt.Errorf(
			"it exists with %s, and %s was asked for; leave the size out to use it, or remove it first",
			blockdev.FormatSize(size), blockdev.FormatSize(o.Size)))
		if !o.ReadOnly {
			err = errors.Join(err, v.settle())
		}
		return nil, errors.Join(err, v.unmapOwn())
	}
	return v, nil
}

// unusable returns why a file can't be opened neither of whose copies of the superblock counts, and what to do.
func unusable(m *mapping, path string, errs [superCopies]error) error {
	why := fmt.Errorf("%w: pmem:%s,mode=inplace uses it as it is; nvmetgt pmem format %s makes it a volume, and what it holds is lost",
		ErrNoVolume, path, path)
	if err := blockdev.CheckSize(int64(len(m.mem)), blockdev.MinBlockSize); err != nil {
		why = fmt.Errorf("%w, and can't be made one: %w", ErrNoVolume, err)
	}
	for _, err := range errs {
		if errors.Is(err, errFault) {
			return err
		}
		if err != nil && !errors.Is(err, ErrNoVolume) {
			why = err
		}
	}
	return blockdev.OpenError(path, blockdev.ErrInvalid, why)
}
