package aio

import (
	"os"
	"runtime"
	"testing"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// TestApart: if the calling thread has a request in flight, a call that may hang is made on another.
func TestApart(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	r := openRing(t, in)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self := unix.Gettid()
	apart := func() (tid int) {
		Apart(func() { tid = unix.Gettid() })
		return tid
	}
	look := func(when string, here bool) {
		t.Helper()
		if at := apart(); at == 0 || (at == self) != here {
			t.Errorf("%s Apart called on thread %d, of %d: want this one %v", when, at, self, here)
		}
		called := 0
		if got := ApartHere(func() { called = unix.Gettid() }); got != here || got != (called == self) {
			t.Errorf("%s ApartHere says %v, and called on thread %d of %d", when, got, called, self)
		}
	}
	look("before", true)
	b := directio.AlignedBlock(blockSize)[:4] // not on this goroutine's stack, which moves
	if err := r.Submit(transfer(OpRead, 7, b, -1)); err != nil {
		t.Fatal(err)
	}
	look("during a read", false)
	if _, err := out.WriteString("data"); err != nil {
		t.Fatal(err)
	}
	if n := gather(t, r, 1)[7]; n != 4 || string(b) != "data" {
		t.Errorf("the read ends with %d, of %q", n, b)
	}
	look("after it", true)
	shut(t, r)
	for i := range underWay {
		if n := underWay[i].Load(); n != 0 {
			t.Errorf("place %d: %d", i, n)
		}
	}
	if n := openRings.Load(); n != 0 {
		t.Errorf("%d rings are open", n)
	}
}
