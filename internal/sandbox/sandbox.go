// Package sandbox lets tests make system calls fail, or hang. Such a test runs in a process of its own, where a filter
// refuses the calls that it names, as a container's seccomp profile does. Modes of files refuse them to root, too, in a
// goroutine that ObeyModes runs.
package sandbox

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// within names the test that runs in a process of its own.
const within = "NVMEOF_TEST_SANDBOX"

// Inside reports whether the test runs in a process of its own. If not, it runs the test in one and reports the result:
// the caller has nothing left to do.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(within) == t.Name() {
		return true
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v") //nolint:gosec // this very program, and the name of one of its tests
	c.Env = append(os.Environ(), within+"="+t.Name())
	// What may hang for ever ends with this program, or rather with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch out, err := c.CombinedOutput(); {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	return false
}

// Refuse makes a system call fail in this process from now on. The test is skipped if the system has no such filter.
func Refuse(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	filter(t, call, unix.SECCOMP_RET_ERRNO|uint32(errno), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// FailOnce makes a system call fail the next time that this process makes it; failed reports whether it has. A test can
// use it only once, as a process can have only one such filter; the test is skipped if the system has none.
func FailOnce(t *testing.T, call uint32, errno unix.Errno) (failed func() bool) {
	t.Helper()
	return FailLater(t, call, errno, 0)
}

// FailLater is FailOnce, except that the call succeeds the given number of times first.
func FailLater(t *testing.T, call uint32, errno unix.Errno, before int) (failed func() bool) {
	t.Helper()
	asked := Decide(t, call, func(n int) unix.Errno {
		if n == before {
			return errno
		}
		return 0
	})
	return func() bool { return asked() > before }
}

// Decide has decide say, each time that this process makes a system call, with what that fails; 0 lets it go on.
// decide is told how often the process has made the call before, perhaps several times the same, and asked returns how
// often it has. The rest is as with FailOnce.
func Decide(t *testing.T, call uint32, decide func(before int) unix.Errno) (asked func() int) {
	t.Helper()
	listener := ask(t, call)
	var stop atomic.Bool
	var noting sync.Mutex // so that after the answer nobody asks before it is counted
	n := 0
	var answering sync.WaitGroup
	answering.Go(func() {
		for !stop.Load() {
			if ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, 10); ready > 0 {
				noting.Lock()
				if answer(listener, decide(n)) {
					n++
				}
				noting.Unlock()
			}
		}
	})
	t.Cleanup(func() { stop.Store(true); answering.Wait() })
	return func() int {
		noting.Lock()
		defer noting.Unlock()
		return n
	}
}

// Hang makes a system call hang wherever this process makes it until the test ends, as the system does when a disk or a
// server of files doesn't answer; then it fails. await returns when the process has made it. The rest is as with FailOnce.
func Hang(t *testing.T, call uint32) (await func()) {
	t.Helper()
	listener := ask(t, call)
	t.Cleanup(func() { _ = unix.Close(int(listener)) })
	return func() {
		for n := 0; n != 1; {
			n, _ = unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, -1)
		}
	}
}

// ask makes a system call wait until what it is to do is said at the listener.
func ask(t *testing.T, call uint32) (listener uintptr) {
	t.Helper()
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // the scheduler isn't told of some calls, which then keep their processor
	return filter(t, call, unix.SECCOMP_RET_USER_NOTIF,
		unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
}

// answer makes the system call that is waiting at a listener fail, or go on if errno is 0. It returns false if the
// caller was interrupted, and asks again.
func answer(listener uintptr, errno unix.Errno) bool {
	var asked [80]byte // struct seccomp_notif
	if _, _, err := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&asked))); err != 0 {
		return false
	}
	answer := struct { // struct seccomp_notif_resp
		id    uint64
		val   int64
		error int32
		flags uint32
	}{id: binary.NativeEndian.Uint64(asked[:]), flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if errno != 0 {
		answer.error, answer.flags = -int32(errno), 0
	}
	_, _, err := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
	return err == 0
}

// filter applies action to a system call of this process.
func filter(t *testing.T, call, action uint32, flags uintptr) (listener uintptr) {
	t.Helper()
	time.AfterFunc(time.Hour, func() {}).Stop() // with the first timer the runtime makes descriptors that it needs
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skipf("a filter of system calls: %v", err)
	}
	listener, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if err != 0 {
		t.Skipf("a filter of system calls: %v", err)
	}
	return listener
}

// ObeyModes calls f on a thread that has no more rights to files than their modes give it, even if it is root's.
func ObeyModes(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends without what it has given up
		if err := giveUpOverride(); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Skipf("giving up capabilities: %v", err)
	}
}

// giveUpOverride gives up this thread's capabilities to ignore modes of files.
func giveUpOverride() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&head, &caps[0])
}
