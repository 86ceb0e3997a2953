package persist

import (
	"errors"
	"fmt"
	"os"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// openAtomic opens, or creates with o.Size, a volume that writes out of place.
func openAtomic(path string, o blockdev.Options) (blockdev.Volume, error) {
	if err := o.Validate(); err != nil {
		return nil, blockdev.OpenError(path, blockdev.ErrInvalid, err)
	}
	fresh := false
	st, err := os.Stat(path)
	if err != nil || st.Mode().IsRegular() && st.Size() == 0 {
		fresh = o.Size > 0 && !o.ReadOnly
	}
	return openFound(path, o, fresh)
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
		locked.Size = fileSize(o.Size, block, false)
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
		var op *blockdev.OpError
		if !errors.As(err, &op) {
			err = blockdev.OpenError(path, blockdev.KindOf(err), err)
		}
		return nil, err
	}
	return v, nil
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
		if err := format(m, newID(), uint64(o.Size/int64(block)), block, lines); err != nil {
			return nil, err
		}
	}
	s, err := usableSuper(m, path)
	switch {
	case errors.Is(err, errFault):
		return nil, err
	case err != nil:
		return nil, blockdev.OpenError(path, blockdev.ErrInvalid, err)
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

// usableSuper reads the superblock; if there is none, the error says what to do.
func usableSuper(m *mapping, path string) (*superblock, error) {
	s, errs := readSuper(m)
	if s != nil {
		return s, nil
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrNoVolume) {
			return nil, err
		}
	}
	if err := blockdev.CheckSize(int64(len(m.mem)), blockdev.MinBlockSize); err != nil {
		return nil, fmt.Errorf("%w, and can't be made one: %w", ErrNoVolume, err)
	}
	return nil, fmt.Errorf("%w: pmem:%s,mode=inplace uses it as it is; nvmetgt pmem format %s makes it a volume, and what it holds is lost",
		ErrNoVolume, path, path)
}
