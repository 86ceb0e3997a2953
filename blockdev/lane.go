package blockdev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// lane is the part of a file volume that is best kept per processor: a count of users, and an open file through which
// the page cache answers at once. The kernel also counts users of an open file, and notes in it what was read last. If
// processors share such words, each request has to fetch them from another's cache.
type lane struct {
	*Lifetime
	fd    int
	again *os.File // fd's, if it isn't the volume's own file
}

// mostLanes limits how many files a volume opens.
const mostLanes = 16

// lanes are all lanes of a volume.
type lanes struct {
	all  []*lane
	here sync.Pool // one of all, chosen separately for each processor
	next atomic.Uint32
}

// newLanes returns a lane for each processor.
func newLanes() *lanes {
	l := &lanes{all: make([]*lane, min(runtime.GOMAXPROCS(0), mostLanes))}
	for i := range l.all {
		l.all[i] = &lane{Lifetime: NewLifetime()}
	}
	l.here.New = func() any { return l.all[l.next.Add(1)%uint32(len(l.all))] }
	return l
}

// open gives each lane its own open file of f, read-only: closing a device that was open for writing makes udev look at
// it. Lanes for which f can't be reopened, for example because descriptors have run out, share f. Only f holds the
// lock.
func (l *lanes) open(f *os.File) {
	fd := int(f.Fd())
	self := fmt.Sprintf("/proc/self/fd/%d", fd) // the same file, whatever has its name now
	for _, n := range l.all {
		n.fd = fd
		if again, err := os.Open(self); err == nil {
			n.fd, n.again = int(again.Fd()), again
		}
	}
}

// enter counts a user in this processor's lane, until its Leave. After close was called it returns nil, and counts
// nothing.
func (l *lanes) enter() *lane {
	n := l.here.Get().(*lane)
	l.here.Put(n)
	if !n.Enter() {
		return nil
	}
	return n
}

// close lets no more users in and waits until the last has left. If it was called before, it returns false at once.
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

// closeFiles closes the files that open has opened.
func (l *lanes) closeFiles() error {
	var err error
	for _, n := range l.all {
		if n.again != nil {
			err = errors.Join(err, n.again.Close())
		}
	}
	return err
}
