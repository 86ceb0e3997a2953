// Package hangtest helps to test what a program does about calls that hang.
package hangtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// UnmountAfter has the file system at dir thawed, and unmounted unless it is already, at the test's end, or when this
// program is killed: a frozen one would stay, and hang whoever syncs all of them.
func UnmountAfter(t testing.TB, dir string) {
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

// into is where such requests read to: not on a stack, which moves.
var into byte

// BusyThread keeps the calling goroutine on its thread, and a ring's request that was submitted there under way, until
// the test ends. Where there is no io_uring it skips the test.
func BusyThread(t testing.TB) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := aio.OpenRing(1, int(in.Fd()))
	if err != nil {
		t.Skip(errors.Join(err, in.Close(), out.Close()))
	}
	runtime.LockOSThread()
	read := aio.Request{Op: aio.OpRead, Offset: -1, Addr: uint64(uintptr(unsafe.Pointer(&into))), Len: 1}
	if err := ring.Submit(read); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := out.WriteString("x")
		var event [1]aio.Event
		ring.Wait(event[:])
		ring.Close()
		ring.Wait(event[:])
		if err := errors.Join(err, in.Close(), out.Close()); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// Busy reports whether the calling thread has a ring's request under way, so that it is no thread to hang.
func Busy() bool { return !aio.ApartHere(func() {}) }
