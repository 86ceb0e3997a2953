package blockdev_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// inSandbox says to the test that it runs in a program of its own.
const inSandbox = "BLOCKDEV_TEST_SANDBOX"

// forbid has a system call fail in this program from now on, as a container's seccomp profile does.
func forbid(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// TestForbidden: where asynchronous I/O is forbidden io_uring does direct I/O, and where that is too
// workers do, and say why; asked for io_uring, the volume isn't opened.
func TestForbidden(t *testing.T) {
	if os.Getenv(inSandbox) == "" {
		c := exec.Command(os.Args[0], "-test.run", "^TestForbidden$", "-test.v")
		c.Env = append(os.Environ(), inSandbox+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	o := blockdev.Options{Size: mib, IO: blockdev.IODirect}
	if err := tryOpen(t, path, o); err != nil {
		t.Skip(err)
	}
	o.IO = blockdev.IOUring
	ring := tryOpen(t, path, o) == nil
	for _, x := range []struct {
		call       uint32
		mode, ring string // how the volume is reached, with and without io_uring
	}{
		{unix.SYS_IO_SETUP, "direct I/O, workers: asynchronous I/O: ", "direct I/O, io_uring with "},
		{unix.SYS_IO_URING_SETUP, "direct I/O, workers: asynchronous I/O: ", ""},
	} {
		if err := forbid(x.call); err != nil {
			t.Skipf("a filter of system calls: %v", err)
		}
		if ring && x.ring != "" {
			x.mode = x.ring
		}
		o.IO = blockdev.IOAuto
		v, err := blockdev.OpenFile(path, o)
		if err != nil {
			t.Fatal(err)
		}
		if m := v.Info().Mode; !strings.HasPrefix(m, x.mode) {
			t.Errorf("mode %q, want %q", m, x.mode)
		}
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, true); err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	o.IO = blockdev.IOUring
	mustFail(t, tryOpen(t, path, o), blockdev.ErrUnsupported, path, "io_uring is forbidden")
}
