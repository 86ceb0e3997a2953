package fault

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm wakes one waiter, at a given time or when it rings. Go's own timers wake an idle
// program a millisecond late, which is more than many a delay; futex(2) is exact, and there is
// nothing to close.
type alarm struct{ rings atomic.Uint32 }

// Operations of futex(2), on memory of this process only.
const (
	futexWaitPrivate = 0 | 128
	futexWakePrivate = 1 | 128
)

// now returns the value to pass to wait: a ring after it ends the wait.
func (a *alarm) now() uint32 { return a.rings.Load() }

// wait returns at the first ring since seen, after timeout (negative: never), or spuriously.
func (a *alarm) wait(seen uint32, timeout time.Duration) {
	var until *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		until = &t
	}
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&a.rings)), futexWaitPrivate,
		uintptr(seen), uintptr(unsafe.Pointer(until)), 0, 0)
}

func (a *alarm) ring() {
	a.rings.Add(1)
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&a.rings)), futexWakePrivate, 1, 0, 0, 0)
}
