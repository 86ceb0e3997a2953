package blockdev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// lane is what a file volume's requests need of which each processor had better have its own: a count of users, and an
// open file through which the page cache answers at once. The kernel counts users of an open file, too, and notes in it
// what was read last. Where processors share such words, each request takes them from another's cache.
type lane struct {
	*Lifetime
	fd    int
	again *os.File // fd's, where it isn't the volume's own
}

// mostLanes bounds how many files a volume opens.
const mostLanes = 16

// lanes are those of a volume.
type lanes struct {
	all  []*lane
	here sync.Pool // one of all, by itself for each processor
	next atomic.Uint32
}

// newLanes makes a lane for each processor.
func newLanes() *lanes {
	l := &lanes{all: make([]*lane, min(runtime.GOMAXPROCS(0), mostLanes))}
	for i := range l.all {
		l.all[i] = &lane{Lifetime: NewLifetime()}
	}
	l.here.New = func() any { return l.all[l.next.Add(1)%uint32(len(l.all))] }
	return l
}

// open gives the lanes f, each opened by itself, to read: whoever closes a device that could be written has udev look at
// it. What can't be opened again, as where there are no more descriptors, they share. The lock is f's alone.
func (l *lanes) open(f *os.File) {
	fd := int(f.Fd())
	self := fmt.Sprintf("/proc/self/fd/%d", fd) // the same file, whatever has its name by now
	for _, n := range l.all {
		n.fd = fd
		if again, err := os.Open(self); err == nil {
			n.fd, n.again = int(again.Fd()), again
		}
	}
}

// enter counts a user in the processor's lane, until its Leave. It gives nil, and counts nothing, after close was called.
func (l *lanes) enter() *lane {
	n := l.here.Get().(*lane)
	l.here.Put(n)
	if !n.Enter() {
		return nil
	}
	return n
}

// close lets no more users in and waits until the last has left. It returns false at once where it was called before.
func (l *lanes) close() bool {
	for _, n := range l.all {
		if !n.shut() {
			return false
		}
	}
	for _, n := range l.all {
		n.wait()
	}
	return true
}

// closeFiles closes what open has opened.
func (l *lanes) closeFiles() error {
	var err error
	for _, n := range l.all {
		if n.again != nil {
			err = errors.Join(err, n.again.Close())
		}
	}
	return err
}
