package persist

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// currentSession is where the page cache is that this program sees. It is none where the system
// doesn't tell.
func currentSession(f *os.File) (s session) {
	if f == nil {
		return s
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return s
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return s
	}
	boot, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || copy(s.boot[:], boot) != len(s.boot) {
		return session{}
	}
	s.dev, s.inode, s.mount = st.Dev, st.Ino, mountOf(&st)
	return s
}

// mountOf is a number that another mount of the file system doesn't have: one that failed, or whose device
// went away, took pages with it that were never written. It is that of the file system's directory
// in sysfs, or where it has none, of the device's; sysfs gives a new one to each that comes, and
// unlike a mount identifier it is the same in all name spaces. It is 0 where the system doesn't
// tell.
func mountOf(st *unix.Stat_t) uint64 {
	dev := st.Dev
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = st.Rdev
	}
	node := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	if name, err := os.Readlink(node); err == nil && dev == st.Dev {
		if found, _ := filepath.Glob("/sys/fs/*/" + filepath.Base(name)); len(found) == 1 {
			node = found[0]
		}
	}
	var at unix.Stat_t
	if unix.Stat(node, &at) != nil {
		return 0
	}
	return at.Ino
}
