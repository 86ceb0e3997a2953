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

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// session says where working maps are valid: in the page cache of this machine, since this boot, for this file, as long
// as its file system stays mounted. The zero value means that they aren't valid anywhere.
type session struct {
	boot       [16]byte
	dev, inode uint64
	mount      uint64
}

// unsure takes the place of a session after a sync has failed. The kernel then regards pages as clean that it couldn't
// write. So working maps don't count, and the medium may have entries of the durable maps that the page cache doesn't
// have: they must be written again before a block is used that those entries may name.
var unsure = session{boot: [16]byte(bytes.Repeat([]byte{0xff}, 16))}

// isOpen reports whether the working maps of s are in the page cache that this program sees.
func (s session) isOpen(f *os.File) (bool, error) {
	if s == (session{}) {
		return false, nil
	}
	now, err := currentSession(f)
	return s == now, err
}

// currentSession identifies the page cache that this program sees. It returns the zero session if the system doesn't
// tell. That the system can't tell at the moment, for example because descriptors are used up, is an error: otherwise
// the working maps of a program that was killed would be ignored.
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

// untold turns an error of asking the system into the one to return: nil if the system doesn't tell that at all, or not
// to this program.
func untold(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("finding out whether the page cache has its working map: %w", err)
}

// short reports whether an error is that the system is short of something, so that it may tell later what it doesn't now.
func short(err error) bool { return errors.Is(blockdev.KindOf(err), blockdev.ErrBusy) }

// mountOf returns a number that differs between mounts of the file system: a mount that failed, or whose device went
// away, took pages with it that were never written. It is the inode number of the file system's directory in sysfs, or
// if there is none, of the device's, or without a device, as with NFS and FUSE, of what writes its pages back; sysfs
// assigns a new one to each directory it adds, and unlike a mount identifier it is the same in all namespaces. It is 0
// if the system doesn't tell.
func mountOf(f *os.File, st *unix.Stat_t) (uint64, error) {
	dev := st.Dev
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = st.Rdev
	}
	node := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	id, ok, err := btrfsID(f)
	if err != nil {
		return 0, err
	}
	if ok {
		node = btrfsNode(id)
	} else if name, err := os.Readlink(node); short(err) {
		return 0, untold(err)
	} else if errors.Is(err, fs.ErrNotExist) {
		node = fmt.Sprintf("/sys/class/bdi/%d:%d", unix.Major(dev), unix.Minor(dev))
	} else if err == nil && dev == st.Dev {
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

// btrfsID returns the identifier of the Btrfs that f is on; false if that is another file system, or the system doesn't
// tell. The device that stat reports is a subvolume's, which sysfs doesn't have.
func btrfsID(f *os.File) (id [16]byte, ok bool, err error) {
	var fs unix.Statfs_t
	err = retry("fstatfs", func() error { return unix.Fstatfs(int(f.Fd()), &fs) })
	if short(err) {
		return id, false, untold(err)
	}
	if its := err == nil && fs.Type == unix.BTRFS_SUPER_MAGIC; !its {
		return id, false, nil
	}
	const fsInfo = 0x0400941f | unix.BLKGETSIZE64&0xe0000000 // BTRFS_IOC_FS_INFO; how "reads" is encoded depends on the processor
	var info struct {
		_  [2]uint64 // devices: the highest number, and how many there are
		id [16]byte
		_  [992]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 && short(errno) {
		return id, false, untold(os.NewSyscallError("ioctl BTRFS_IOC_FS_INFO", errno))
	}
	return info.id, errno == 0, nil
}

// btrfsNode returns the directory of a Btrfs in sysfs.
func btrfsNode(id [16]byte) string {
	return fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// mountNodes returns the directories in sysfs of file systems on a device. (filepath.Glob wouldn't report that it
// couldn't look.)
func mountNodes(device string) (found []string, err error) {
	const kindsDir = "/sys/fs"
	kinds, err := os.ReadDir(kindsDir)
	if err != nil {
		return nil, untold(err)
	}
	for _, k := range kinds {
		node := filepath.Join(kindsDir, k.Name(), device)
		switch _, err := os.Lstat(node); {
		case err == nil:
			found = append(found, node)
		case short(err):
			return nil, untold(err)
		}
	}
	return found, nil
}
