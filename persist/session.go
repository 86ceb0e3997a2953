package persist

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// session says where working maps are valid: in the page cache of this machine, since that
// boot, for this file, for as long as its file system stays mounted. Its zero value is none.
type session struct {
	boot       [16]byte
	dev, inode uint64
	mount      uint64
}

// unsure is in the place of a session after a sync has failed. The kernel takes pages for clean then that it couldn't
// write. So working maps don't count, and of the durable ones the medium may have entries that the page cache hasn't:
// they have to be written again before a block is used that those may name.
var unsure = session{boot: [16]byte(bytes.Repeat([]byte{0xff}, 16))}

// isOpen tells whether what working maps of s have is in the page cache that this program sees.
func (s session) isOpen(f *os.File) (bool, error) {
	if s == (session{}) {
		return false, nil
	}
	now, err := currentSession(f)
	return s == now, err
}

// currentSession is where the page cache is that this program sees. It is none where the system doesn't tell; that it
// can't at the moment, as where descriptors are used up, is an error: taken for none, it would have the working maps of a
// program that was killed forgotten.
func currentSession(f *os.File) (s session, err error) {
	if f == nil {
		return s, nil
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return s, untold(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return s, untold(err)
	}
	boot, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || copy(s.boot[:], boot) != len(s.boot) {
		return session{}, nil //nolint:nilerr // it tells something else
	}
	s.dev, s.inode = st.Dev, st.Ino
	if s.mount, err = mountOf(f, &st); err != nil {
		return session{}, err
	}
	return s, nil
}

// untold is the error of a look at what the system tells; nil where it doesn't tell that, or not to this program.
func untold(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("finding out whether the page cache has its working map: %w", err)
}

// mountOf is a number that another mount of the file system doesn't have: one that failed, or whose device
// went away, took pages with it that were never written. It is that of the file system's directory
// in sysfs, or where it has none, of the device's; sysfs gives a new one to each that comes, and
// unlike a mount identifier it is the same in all name spaces. It is 0 where the system doesn't
// tell.
func mountOf(f *os.File, st *unix.Stat_t) (uint64, error) {
	dev := st.Dev
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = st.Rdev
	}
	node := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	if id, ok := btrfsID(f); ok {
		node = btrfsNode(id)
	} else if name, err := os.Readlink(node); err == nil && dev == st.Dev {
		found, err := mountNodes(filepath.Base(name))
		if err != nil {
			return 0, err
		}
		if len(found) == 1 {
			node = found[0]
		}
	}
	var at unix.Stat_t
	if err := unix.Stat(node, &at); err != nil {
		return 0, untold(err)
	}
	return at.Ino, nil
}

// btrfsID identifies the Btrfs that f lies on; false where that is another file system. The device that stat tells of is a
// subvolume's, and none in sysfs.
func btrfsID(f *os.File) (id [16]byte, ok bool) {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type != unix.BTRFS_SUPER_MAGIC {
		return id, false
	}
	const fsInfo = 0x8400941f // BTRFS_IOC_FS_INFO
	var info struct {
		_  [2]uint64 // devices: the highest number, and how many there are
		id [16]byte
		_  [992]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsInfo, uintptr(unsafe.Pointer(&info)))
	return info.id, errno == 0
}

// btrfsNode is the directory of a Btrfs in sysfs.
func btrfsNode(id [16]byte) string {
	return fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// mountNodes are the directories in sysfs of file systems on a device. (filepath.Glob wouldn't say that it couldn't look.)
func mountNodes(device string) (found []string, err error) {
	const kindsDir = "/sys/fs"
	kinds, err := os.ReadDir(kindsDir)
	if err != nil {
		return nil, untold(err)
	}
	for _, k := range kinds {
		node := filepath.Join(kindsDir, k.Name(), device)
		if _, err := os.Lstat(node); err == nil {
			found = append(found, node)
		}
	}
	return found, nil
}
