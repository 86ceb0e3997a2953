package udp

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// DedicateThread gives the calling goroutine a thread of its own, for as long as it lives, and
// asks the kernel to run that as batch work: being woken by a datagram, it does not push aside
// the sender in the middle of what it sends, and so finds more to do when it runs. It costs
// nothing on an idle processor. A kernel that refuses leaves the thread as it is.
func DedicateThread() {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}
	_ = unix.SchedSetAttr(0, &attr, 0)
}
