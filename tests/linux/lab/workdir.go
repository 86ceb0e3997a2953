package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// workPrefix begins the name of the directory in which a run keeps its files.
const workPrefix = "nvmeof-lab-"

// WorkDir makes the directory for everything that this run writes, and makes it the one for temporary files, so that a
// run leaves nothing behind that remove doesn't remove. What a killed run left is removed by the next one: a run holds
// a lock on the directory that it uses. In the process that Isolate started it is the parent's directory.
func WorkDir() (dir string, remove func(), err error) {
	if Isolated() {
		return os.TempDir(), func() {}, nil
	}
	sweep(os.TempDir())
	if dir, err = os.MkdirTemp("", workPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return "", nil, err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}, nil
}

// lockDir locks a directory for as long as the file is open; it fails if another process has the lock.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock of %s: %w", dir, err)
	}
	return f, nil
}

// unlockedFor is the age from which an unlocked directory is that of a run that was killed, and not of one that is
// about to lock it.
const unlockedFor = time.Minute

// sweep removes the directories of runs that were killed.
func sweep(tmp string) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, workPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < unlockedFor {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}
