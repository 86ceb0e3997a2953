// Package sandbox lets tests see system calls fail. Such a test runs in a program of its own, where a filter refuses the
// calls that it names, as a container's seccomp profile does.
package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// within names the test that runs in a program of its own.
const within = "NVMEOF_TEST_SANDBOX"

// Inside tells whether the test runs in a program of its own. If not it has it run in one and reports what came of it:
// nothing is left to do.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(within) == t.Name() {
		return true
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v") //nolint:gosec // this very program, and the name of one of its tests
	c.Env = append(os.Environ(), within+"="+t.Name())
	switch out, err := c.CombinedOutput(); {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	return false
}

// Refuse has a system call fail in this program from now on. The test is skipped where the system has no such filter.
func Refuse(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skipf("a filter of system calls: %v", err)
	}
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if err != 0 {
		t.Skipf("a filter of system calls: %v", err)
	}
}
