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

// deviceDiscards tells whether a block device, or the whole disk of a partition, takes
// discards.
func deviceDiscards(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	for _, queue := range []string{"queue/", "../queue/"} {
		if s, err := os.ReadFile(dir + queue + "discard_max_bytes"); err == nil {
			return strings.TrimSpace(string(s)) != "0"
		}
	}
	return false
}

// deviceNode is where sysfs has a block device while it is there; empty where it is not seen.
func deviceNode(f *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	return sysfsNode(st.Rdev)
}

func sysfsNode(dev uint64) string {
	node := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	if _, err := os.Stat(node); err != nil {
		return ""
	}
	return node
}

// Below is where sysfs has the block device that a file is, or that its file system lies on; empty where it is not seen.
type Below string

// BelowFile looks what is below a file.
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

// KindOf is the kind of an error of the system, as KindOf gives it. Where the device was taken away it is ErrGone: the
// system still takes requests for one that is open, and answers them with EIO, or that there is no space.
func (b Below) KindOf(err error) error {
	if b != "" {
		if _, err := os.Stat(string(b)); errors.Is(err, fs.ErrNotExist) {
			return ErrGone
		}
	}
	return KindOf(err)
}

// physicalSector is the smallest unit, in bytes, that the device below a file writes whole also
// when the power fails, as the system knows it; 0 where it doesn't.
func physicalSector(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	// A file's blocks lie at multiples of the file system's block.
	dev, most := st.Dev, int(st.Blksize)
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev, most = st.Rdev, MaxBlockSize
	}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(dev), unix.Minor(dev))
	if s, err := os.ReadFile(dir + "alignment_offset"); err != nil || strings.TrimSpace(string(s)) != "0" {
		return 0
	}
	for _, queue := range []string{"queue/", "../queue/"} {
		if s, err := os.ReadFile(dir + queue + "physical_block_size"); err == nil {
			n, _ := strconv.Atoi(strings.TrimSpace(string(s)))
			return min(n, most)
		}
	}
	return 0
}
