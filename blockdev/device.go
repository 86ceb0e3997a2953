package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceDiscards reports whether a block device, or the whole disk that a partition is on, supports discards.
func deviceDiscards(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	most := queueLimit(st.Rdev, "discard_max_bytes")
	return most != "" && most != "0"
}

// queueLimit returns a limit of a block device's queue, or of that of the whole disk that a partition is on; empty if
// sysfs doesn't have it.
func queueLimit(dev uint64, name string) string {
	for _, queue := range []string{"/queue/", "/../queue/"} {
		if s, err := os.ReadFile(sysfsPath(dev) + queue + name); err == nil {
			return strings.TrimSpace(string(s))
		}
	}
	return ""
}

// sysfsPath returns where sysfs has a block device, if there is one.
func sysfsPath(dev uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
}

// deviceNode returns the directory that sysfs has for a block device while the device exists; empty if there is none.
func deviceNode(f *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	return sysfsNode(st.Rdev)
}

func sysfsNode(dev uint64) string {
	node := sysfsPath(dev)
	if _, err := os.Stat(node); err != nil {
		return ""
	}
	return node
}

// Below is the directory that sysfs has for the block device that a file is, or that its file system is on; empty if
// there is none.
type Below string

// BelowFile returns what is below a file.
func BelowFile(f *os.File) Below {
	var st unix.Stat_t
	switch {
	case unix.Fstat(int(f.Fd()), &st) != nil:
		return ""
	case st.Mode&unix.S_IFMT == unix.S_IFBLK:
		return Below(sysfsNode(st.Rdev))
	}
	return Below(sysfsNode(st.Dev))
}

// KindOf returns the kind of a system error, as the function KindOf does, except that it is ErrGone if the device was
// removed: the system still accepts requests for an open device, and answers them with EIO or ENOSPC.
func (b Below) KindOf(err error) error {
	if b != "" {
		if _, err := os.Stat(string(b)); errors.Is(err, fs.ErrNotExist) {
			return ErrGone
		}
	}
	return KindOf(err)
}

// physicalSector returns the smallest unit, in bytes, that the device below a file writes whole even if the power
// fails, as far as the system knows; 0 if it doesn't know.
func physicalSector(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	dev, most := st.Rdev, MaxBlockSize
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		dev, most = st.Dev, fileSystemBlock(f)
	}
	if s, err := os.ReadFile(sysfsPath(dev) + "/alignment_offset"); err != nil || strings.TrimSpace(string(s)) != "0" {
		return 0
	}
	n, _ := strconv.Atoi(queueLimit(dev, "physical_block_size"))
	return min(n, most)
}

// fileSystemBlock returns the size of the file system's blocks, at multiples of which those of a file lie; 0 if the
// system doesn't know. The Blksize of stat is the best size for transfers, which on XFS is a page at least.
func fileSystemBlock(f *os.File) int {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return 0
	}
	return int(fs.Frsize)
}
