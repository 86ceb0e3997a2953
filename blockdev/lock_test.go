package blockdev

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockReplaced: the file that is locked is the one that has the name. The previous holder of the lock may have
// removed the file, or replaced it.
func TestLockReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	one := open()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := lock(one, false); !errors.Is(err, ErrBusy) {
		t.Errorf("a file that was removed: %v", err)
	}
	two := open()
	if err := lock(one, false); !errors.Is(err, ErrBusy) {
		t.Errorf("a file that was replaced: %v", err)
	}
	if err := lock(two, false); err != nil {
		t.Error(err)
	}
}

// TestCreatedByTwo: if two openers find no file, one creates it, and the other may get the lock first. Then the other
// keeps the file.
func TestCreatedByTwo(t *testing.T) {
	path, met := filepath.Join(t.TempDir(), "v"), false
	for i := 0; i < 300 && !met; i++ {
		got := make(chan *os.File)
		go func() {
			for {
				f, err := os.OpenFile(path, os.O_RDWR, 0)
				if err == nil && unix.Flock(int(f.Fd()), unix.LOCK_EX) == nil {
					got <- f
					return
				}
			}
		}()
		f, _, _, err := OpenLocked(path, &Options{Size: 1 << 20})
		if err == nil {
			f.Close()
		} else if !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		other := <-got
		if met = err != nil; met {
			mine, _ := other.Stat()
			if st, err := os.Stat(path); err != nil || !os.SameFile(st, mine) {
				t.Errorf("another's file is gone: %v", err)
			}
		}
		other.Close()
		os.Remove(path)
	}
	if !met {
		t.Skip("nobody was quicker")
	}
}
