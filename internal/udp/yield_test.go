//go:build linux

package udp

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// onOnePlace has Go run one goroutine at a time until the test ends.
func onOnePlace(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// TestOthersRunBeforeSleep: a goroutine that the caller has made runnable runs before Recv may
// block, and needn't wait until the runtime notices that it has blocked.
func TestOthersRunBeforeSleep(t *testing.T) {
	onOnePlace(t)
	const rounds = 50
	c := listen(t, loop4, Config{BusyPoll: NoBusyPoll})
	ran := 0
	for range rounds {
		send(t, c, trainOf(c.LocalAddr(), []byte{1}, 1)) // so that Recv returns at once
		var did atomic.Bool
		go did.Store(true)
		if _, err := c.Recv(make([]Received, 1)); err != nil {
			t.Fatal(err)
		}
		if did.Load() {
			ran++
		}
	}
	if ran < rounds*9/10 { // now and then the scheduler asks its other queue first
		t.Errorf("%d of %d goroutines ran before Recv returned", ran, rounds)
	}
}

// TestOthersRunWhileLooking: the goroutine that has to send what is polled for gets to run.
func TestOthersRunWhileLooking(t *testing.T) {
	onOnePlace(t)
	c := listen(t, loop4, Config{BusyPoll: time.Second})
	done := make(chan error, 1)
	go func() {
		_, err := c.Send([]Train{trainOf(c.LocalAddr(), []byte{1}, 1)})
		done <- err
	}()
	if _, err := c.Recv(make([]Received, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := c.Counters().RxEmpty.Load(); n > 100 { // in 10 ms, when the runtime interrupts a look, there are thousands
		t.Errorf("%d looks in vain before the sender ran", n)
	}
}
