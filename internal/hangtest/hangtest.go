// Package hangtest helps to test what a program does about calls that hang.
package hangtest

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

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
