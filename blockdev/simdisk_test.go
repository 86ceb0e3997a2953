package blockdev

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// simDisk is a storage that loses power. What the volume asks of it waits until the test lets it happen, one operation
// at a time, in an order that depends on the test's seed.
type simDisk struct {
	m      *crash.Medium
	faults simFaults
	rnd    *rand.Rand // the test's, which runs alone while operations wait

	mu      sync.Mutex
	waiting []*simOp
	absent  error // a write-back error that the system hasn't reported yet
	failed  int   // syncs and writes that were made to fail

	whole       int64 // what transfers should be multiples of, unless it is 0
	moved, torn int   // all transfers, and those that aren't such multiples
}

// simFaults are what may go wrong, and the mistakes that the tests must notice.
type simFaults struct {
	errors      bool // transfers and syncs fail now and then
	cut         bool // transfers are cut short
	noDsync     bool // the file system doesn't know RWF_DSYNC
	failDsync   bool // writes with RWF_DSYNC fail
	brokenSync  bool // syncs do nothing
	brokenDsync bool // RWF_DSYNC is ignored
}

// simOp is an operation that waits.
type simOp struct {
	kind   int
	off, n int64
	run    func()
}

const (
	simTransfer = iota
	simAnswer   // of a write with RWF_DSYNC
	simSync
	simAllocate
)

// ask lets an operation wait, and runs it when the test lets it.
func (d *simDisk) ask(kind int, off, n int64, run func()) {
	done := make(chan struct{})
	d.enqueue(&simOp{kind, off, n, func() { run(); close(done) }})
	<-done
}

func (d *simDisk) enqueue(op *simOp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, op)
}

// step lets one of the waiting operations happen, of certain kinds if there are any. It returns false if there is none.
// What runs between two steps is all the volume can do without the disk.
func (d *simDisk) step(kinds ...int) bool {
	synctest.Wait()
	op := d.next(kinds)
	if op == nil {
		return false
	}
	op.run()
	synctest.Wait()
	return true
}

// next takes one of the waiting operations.
func (d *simDisk) next(kinds []int) *simOp {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.waiting, func(a, b *simOp) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.off, b.off), cmp.Compare(a.n, b.n))
	})
	var some []int
	for i, op := range d.waiting {
		if len(kinds) == 0 || slices.Contains(kinds, op.kind) {
			some = append(some, i)
		}
	}
	if len(some) == 0 {
		return nil
	}
	i := some[d.rnd.IntN(len(some))]
	op := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return op
}

func (d *simDisk) transfer(op Op, iov []unix.Iovec, off int64, flags int) (n int64, err error) {
	ended := make(chan struct{})
	d.enqueue(&simOp{simTransfer, off, int64(len(iov))<<8 | int64(op), func() {
		d.start(op, iov, off, flags, func(m int64, e error) {
			n, err = m, e
			close(ended)
		})
	}})
	<-ended
	return n, err
}

// start has a transfer happen, and passes its result to done: in a step of its own for RWF_DSYNC, so that a sync that
// begins after it may end before it.
func (d *simDisk) start(op Op, iov []unix.Iovec, off int64, flags int, done func(int64, error)) {
	n, err := d.move(op, iov, off, flags)
	if flags&unix.RWF_DSYNC == 0 {
		done(n, err)
		return
	}
	d.enqueue(&simOp{simAnswer, off, n, func() { done(n, err) }})
}

// move is a transfer that happens.
func (d *simDisk) move(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	if flags&unix.RWF_DSYNC != 0 && d.faults.noDsync {
		return 0, unix.EOPNOTSUPP
	}
	durable := flags&unix.RWF_DSYNC != 0
	if op == OpWrite && (d.fails() || durable && d.faults.failDsync) {
		if durable {
			d.m.Forget() // the disk failed to empty its cache, and reports that to nobody else
		}
		return 0, unix.EIO
	}
	var n int64
	for _, v := range iov {
		b := unsafe.Slice(v.Base, v.Len)
		if d.faults.cut && n > 0 && d.rnd.IntN(4) == 0 {
			break
		}
		if op == OpRead {
			d.m.ReadAt(b, off+n)
		} else {
			d.m.WriteAt(b, off+n)
		}
		n += int64(len(b))
	}
	if d.moved++; d.whole > 0 && (off|n)%d.whole != 0 {
		d.torn++
	}
	if op == OpWrite && durable && !d.faults.brokenDsync {
		d.m.WriteBack(off, n)
		d.m.Fence()
	}
	return n, nil
}

func (d *simDisk) fails() bool {
	if d.faults.errors && d.rnd.IntN(40) == 0 {
		d.failed++
		return true
	}
	return false
}

// sync takes time: it covers what was written when it began, and perhaps some of what is written until it ends.
func (d *simDisk) sync() (err error) {
	d.ask(simSync, 0, 0, func() {
		if !d.faults.brokenSync {
			d.m.WriteBack(0, d.m.Size())
		}
	})
	d.ask(simSync, 0, 0, func() {
		if err, d.absent = d.absent, nil; err != nil {
			return
		}
		if d.fails() {
			d.m.Forget()
			err = unix.EIO
			return
		}
		if !d.faults.brokenSync {
			d.m.Fence()
		}
	})
	return err
}

// writeBackFails makes the system lose data that it had accepted, which it reports to the next sync.
func (d *simDisk) writeBackFails() {
	d.failed++
	d.m.Forget()
	d.absent = unix.EIO
}

func (d *simDisk) allocate(_ uint32, off, n int64) error {
	d.ask(simAllocate, off, n, func() { d.m.Zero(off, n) })
	return nil
}

func (d *simDisk) discard(off, n int64) error { return d.allocate(0, off, n) }

func (d *simDisk) close() error { return nil }

// queued executes a request of the kernel's queue, and passes its result to done.
func (d *simDisk) queued(op Op, vector bool, addr, n uint64, off int64, flags int, done func(int64)) {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	one := unix.Iovec{Base: (*byte)(p)}
	one.SetLen(int(n))
	iov := []unix.Iovec{one}
	if vector {
		iov = unsafe.Slice((*unix.Iovec)(p), n)
	}
	if d.faults.cut && d.rnd.IntN(8) == 0 {
		done(-int64(unix.EAGAIN)) // a worker must do it
		return
	}
	d.start(op, iov, off, flags, func(n int64, err error) {
		var errno unix.Errno
		if errors.As(err, &errno) {
			n = -int64(errno)
		}
		done(n)
	})
}
