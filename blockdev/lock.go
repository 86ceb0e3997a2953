package blockdev

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the lock that keeps two programs from exporting one file: an exclusive lock, or for a reader a shared one.
// It lasts until f is closed. The error is an OpError of kind ErrBusy that names the holder if it can be found out.
func lock(f *os.File, readOnly bool) error {
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	err := waitLock(f, how)
	switch {
	case err == nil:
		return stillNamed(f)
	case errors.Is(err, unix.EWOULDBLOCK):
		return OpenError(f.Name(), ErrBusy, errors.New(locked(holder(f))))
	default:
		return &OpError{Op: "lock", Path: f.Name(), Offset: -1, Kind: KindOf(err), Err: err}
	}
}

// udev also locks a device, to read what is on it: when the device appears, and whenever a program that had it open for
// writing has closed it. That takes less than lockTries times lockPause.
const (
	lockTries = 100
	lockPause = 10 * time.Millisecond
)

// waitLock locks f; if f is a device it retries for a while.
func waitLock(f *os.File, how int) error {
	tries := 1
	if st, err := f.Stat(); err == nil && st.Mode()&os.ModeDevice != 0 {
		tries = lockTries
	}
	for {
		err := retry(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
		if tries--; tries == 0 || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		time.Sleep(lockPause) //nolint:forbidigo // to wait in flock is to wait for ever where it isn't udev
	}
}

// stillNamed reports whether f, which is locked now, still has its name. A program that held the lock after we opened f
// may have failed to make a volume of it, and removed it: anything written to it would be lost.
func stillNamed(f *os.File) error {
	one, err := f.Stat()
	if err != nil {
		return OpenError(f.Name(), KindOf(err), err)
	}
	two, err := os.Stat(f.Name())
	if err != nil || !os.SameFile(one, two) {
		return OpenError(f.Name(), ErrBusy, errors.New("it was removed or replaced while it was opened; try again"))
	}
	return nil
}

// locked says what to do if somebody holds the lock.
func locked(by string) string {
	if by == byThis {
		return "it is locked by this program, which has another volume there; name another file, or close that volume first"
	}
	return fmt.Sprintf("it is locked%s; stop that program, or export another file", by)
}

// byThis is what holder returns for this process.
const byThis = " by this process"

// lockLooks is how often /proc/locks is read for a lock that must be listed there: the kernel omits some if others come
// and go meanwhile.
const lockLooks = 5

// holder says which process holds a lock on f, from /proc/locks: " by process 12 (name)".
func holder(f *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	major, minor := mountDevice(f, st.Dev)
	inode := fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino)
	for range lockLooks {
		locks, err := os.Open("/proc/locks")
		if err != nil {
			return ""
		}
		pid := findHolder(locks, inode)
		locks.Close()
		if pid == "" {
			continue
		}
		if pid == strconv.Itoa(os.Getpid()) {
			return byThis
		}
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			return " by process " + pid
		}
		return fmt.Sprintf(" by process %s (%s)", pid, strings.TrimSpace(string(comm)))
	}
	return ""
}

// mountDevice returns the device of f's file system as /proc/locks shows it. The one that stat returns may differ, for
// example on Btrfs, where each subvolume has its own.
func mountDevice(f *os.File, dev uint64) (major, minor uint32) {
	var st unix.Statx_t
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	err = errors.Join(err, unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st))
	if err == nil && st.Mask&unix.STATX_MNT_ID != 0 {
		for line := range strings.Lines(string(mounts)) {
			// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
			var id, parent uint64
			if n, _ := fmt.Sscanf(line, "%d %d %d:%d", &id, &parent, &major, &minor); n == 4 && id == st.Mnt_id {
				return major, minor
			}
		}
	}
	return unix.Major(dev), unix.Minor(dev)
}

// findHolder parses the format of /proc/locks.
func findHolder(locks io.Reader, inode string) (pid string) {
	for s := bufio.NewScanner(locks); s.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 08:02:131090 0 EOF
		if w := strings.Fields(s.Text()); len(w) >= 6 && w[1] == "FLOCK" && w[5] == inode {
			return w[4]
		}
	}
	return ""
}
