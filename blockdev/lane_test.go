package blockdev

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestLanesFiles: each lane has its own open file of the volume's file, read-only, even if another file has its name by
// now; Close closes them, and releases the lock.
func TestLanesFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	o := Options{Size: 1 << 20}
	f, _, _, err := OpenLocked(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+"old"), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l := newLanes()
	l.open(f)
	seen := map[int]bool{int(f.Fd()): true}
	for _, n := range l.all {
		if seen[n.fd] || n.again == nil {
			t.Fatal("a lane shares its file")
		}
		seen[n.fd] = true
		want, _ := f.Stat()
		if got, err := n.again.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("a lane has another file, or %v", err)
		}
		mode, err := unix.FcntlInt(uintptr(n.fd), unix.F_GETFL, 0)
		if err != nil || mode&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("flags %#x, %v", mode, err)
		}
	}
	if err := l.closeFiles(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := OpenLocked(path+"old", &Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("closing the lanes' files took the lock away: %v", err)
	}
	f.Close()
	for fd := range seen {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("a file is still open: %v", err)
		}
	}
}

// TestLanesShare: if no more files can be opened, a volume does without lanes of its own.
func TestLanesShare(t *testing.T) {
	v := openInternal(t, IOBuffered)
	if err := v.lanes.closeFiles(); err != nil {
		t.Fatal(err)
	}
	v.lanes = newLanes()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	v.lanes.open(v.locked)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, n := range v.lanes.all {
		if n.again != nil || n.fd != v.store.(*kernel).ioFD {
			t.Error("a lane has a file that couldn't be opened")
		}
	}
	r := &Request{Op: OpRead, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}}
	if await(t, v, r); r.Err != nil {
		t.Error(r.Err)
	}
}

// TestLanesClose: Close waits for the users of each lane, and lets no more into any.
func TestLanesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		users := map[*lane]int{}
		for i := range 3 * len(l.all) {
			n := l.all[i%len(l.all)]
			if i%2 == 0 {
				n = l.enter()
			} else {
				n.Enter()
			}
			users[n]++
		}
		closed := false
		go func() { closed = l.close() }()
		for n, k := range users {
			for range k {
				synctest.Wait()
				if closed {
					t.Fatal("closed though it is used")
				}
				if l.close() {
					t.Error("closed twice")
				}
				if l.enter() != nil {
					t.Error("a user was let in after Close")
				}
				n.Leave()
			}
		}
		synctest.Wait()
		if !closed || l.close() {
			t.Error("not closed, or twice")
		}
	})
}
