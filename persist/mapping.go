package persist

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a file in memory.
type mapping struct {
	file *os.File
	mem  []byte
	dax  bool   // mapped with MAP_SYNC: the lines of mem are the medium
	fs   string // the file system's name, for people
	ram  bool   // it lies in the machine's ordinary memory
}

// mapFile maps size bytes of f, with MAP_SYNC where that is offered.
func mapFile(f *os.File, size int64, readOnly bool) (*mapping, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes are more than this processor can map", size)
	}
	m := &mapping{file: f}
	m.fs, m.ram = fileSystem(f)
	prot := unix.PROT_READ | unix.PROT_WRITE
	if readOnly {
		prot = unix.PROT_READ
	}
	fd := int(f.Fd())
	var err error
	m.mem, err = unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	if err == nil {
		m.dax = true
		return m, nil
	}
	// EOPNOTSUPP: not on DAX. EINVAL: a kernel before 4.15, or a file that can't be mapped,
	// of which the second try tells.
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	if m.mem, err = unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	return m, nil
}

// fileSystem names the file system that f lies on.
func fileSystem(f *os.File) (name string, ram bool) {
	if st, err := f.Stat(); err == nil && !st.Mode().IsRegular() {
		return "block device", false
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return "file system", false
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", false
	case unix.XFS_SUPER_MAGIC:
		return "XFS", false
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", false
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", false
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "tmpfs", true
	}
	return "file system", false
}

// sync makes the whole mapping durable by the kernel's account of dirty pages.
func (m *mapping) sync() error { return m.syncRange(0, int64(len(m.mem))) }

// syncRange makes a range durable.
func (m *mapping) syncRange(off, n int64) error {
	if n == 0 {
		return nil
	}
	from := off &^ int64(os.Getpagesize()-1)
	for {
		if err := unix.Msync(m.mem[from:off+n], unix.MS_SYNC); err != unix.EINTR {
			return err
		}
	}
}

// punch gives the space of a range back to the file system; it reads as zeroes.
func (m *mapping) punch(off, n int64) error {
	for {
		err := unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if err != unix.EINTR {
			return err
		}
	}
}

func (m *mapping) close() error {
	return errors.Join(unix.Munmap(m.mem), m.file.Close())
}
