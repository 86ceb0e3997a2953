// Package disktest gives tests block devices and file systems of their own, which are made of files. Where the system
// refuses that, as it does to ordinary users, the test is skipped.
package disktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Image makes a file of the given size, in bytes, that takes no space yet.
func Image(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	return path
}

// LoopDevice makes a loop device of a file, or of a device, with options of losetup. It is detached at the test's end.
func LoopDevice(t testing.TB, backing string, options ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", append(options, "--find", "--show", backing)...).CombinedOutput()
	dev := strings.TrimSpace(string(out))
	if err != nil {
		t.Skipf("no loop device to be had: %v %s", err, dev)
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", dev, err, out)
		}
	})
	return dev
}

// Mount makes a file system on a device or in a file, which is the last argument of mkfs, and mounts it. When the test
// ends nothing may hold it any more; it is thawed and unmounted then, and also when this program is killed.
func Mount(t testing.TB, device string, mkfs ...string) (dir string) {
	t.Helper()
	return mount(t, device, "defaults", mkfs)
}

func mount(t testing.TB, device, options string, mkfs []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, line := range [][]string{append(mkfs, device), {"mount", "-o", options, device, dir}} {
		out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput()
		switch {
		case err == nil:
		case line[0] != "mount" && os.Geteuid() == 0 && !errors.Is(err, exec.ErrNotFound): // it takes no right to mount
			t.Fatalf("%v: %v: %s", line, err, out)
		default:
			t.Skipf("%v: %v: %s", line, err, out)
		}
	}
	mustUnmount(t, dir)
	return dir
}

// Tmpfs mounts a file system in memory of the given size, as 1m, and ends it as Mount does.
func Tmpfs(t testing.TB, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	mustUnmount(t, dir)
	return dir
}

// HugePages mounts a file system of huge pages, of which there may be none, and ends it as Mount does.
func HugePages(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("test", dir, "hugetlbfs", 0, ""); err != nil {
		t.Skipf("mounting a hugetlbfs: %v", err)
	}
	mustUnmount(t, dir)
	return dir
}

// mustUnmount unmounts at the test's end what nothing may hold then.
func mustUnmount(t testing.TB, dir string) {
	t.Helper()
	unmountAfter(t, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EINVAL) { // the test may have unmounted it
			t.Errorf("unmounting after all was closed: %v", err)
		}
	})
}

// unmountAfter has the file system at dir thawed, and unmounted unless it is already, at the test's end, or when this
// program is killed: a frozen one would stay, and hang whoever syncs all of them.
func unmountAfter(t testing.TB, dir string) {
	t.Helper()
	const script = `trap "" HUP INT QUIT TERM; trap : USR1; exec 3<&0; cat <&3 & wait $!
		fsfreeze -u "$0" 2>/dev/null; ! mountpoint -q "$0" || umount "$0" || umount -l "$0"`
	keeper := exec.CommandContext(context.Background(), "sh", "-c", script, dir)
	keeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGUSR1}
	var said bytes.Buffer
	keeper.Stderr = &said
	end, err := keeper.StdinPipe()
	if err == nil {
		err = keep(t, keeper)
	}
	if err != nil {
		t.Fatal(errors.Join(err, unix.Unmount(dir, 0)))
	}
	t.Cleanup(func() {
		_ = end.Close()
		if err := keeper.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("umount: %v: %s", err, said.String())
		}
	})
}

// keep starts a program on a thread that does nothing else until the test's end. When this one is killed, threads that
// hang stay, and keep its files open, but that one ends, and the program is sent its Pdeathsig.
func keep(t testing.TB, program *exec.Cmd) error {
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- program.Start()
		<-over
	}()
	t.Cleanup(func() { close(over) })
	return <-started
}

// Freezer returns what makes everything that changes the file system at dir wait, and what lets it go on.
func Freezer(t testing.TB, dir string) (freeze, thaw func()) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	frozen := false
	set := func(yes bool) {
		const fiFreeze, fiThaw = 0xc0045877, 0xc0045878
		request := uint(fiThaw)
		if yes {
			request = fiFreeze
		}
		if frozen == yes {
			return
		}
		if err := unix.IoctlSetInt(int(d.Fd()), request, 0); err != nil {
			t.Fatal(err)
		}
		frozen = yes
	}
	t.Cleanup(func() {
		set(false)
		_ = d.Close()
	})
	return func() { set(true) }, func() { set(false) }
}

// FailingFS mounts an ext4 of 32 MiB that becomes read-only when it finds an error; fail makes it find one.
func FailingFS(t testing.TB) (dir string, fail func()) {
	t.Helper()
	dir = mount(t, Image(t, 32<<20), "errors=remount-ro", []string{"mkfs.ext4", "-q", "-F"})
	return dir, func() {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		dev, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("/sys/fs/ext4/"+filepath.Base(dev)+"/trigger_fs_error", []byte("on purpose"), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Skipf("this kernel's file system has another end: %v", err)
		}
	}
}
