package blockdev

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
)

// TestGuardMoved: a reader that looks where a stripe is at the moment when it moves out of a writer's way finds all of
// its content there.
func TestGuardMoved(t *testing.T) {
	opened, err := NewMemory(Options{Size: 250 * stripeSize})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	v := opened.(*memory)
	request := func(op Op, off int64, b []byte, done func()) {
		v.Submit(&Request{Op: op, Offset: off, Length: int64(len(b)), Bufs: [][]byte{b}, Complete: func(*Request) { done() }})
	}
	v.guard.apply = func(r *Request, off, n int64) {
		for i := 1; r.Op == OpRead && int64(v.places.stripe(off>>stripeShift)) == off>>stripeShift+1; i++ { // as at first
			if i%10000 == 0 {
				runtime.Gosched()
			}
		}
		v.apply(r, off, n)
	}
	for off := int64(0); off < v.info.Size; off += stripeSize {
		content := bytes.Repeat([]byte{byte(off>>stripeShift) + 1}, stripeSize)
		var all sync.WaitGroup
		all.Add(3)
		request(OpWrite, off, content, all.Done)
		_, view, err := v.View(nil, off, 4096)
		if err != nil {
			t.Fatal(err)
		}
		request(OpWrite, off+stripeSize-4096, content[:4096], all.Done) // waits for the view
		got := make([]byte, stripeSize)
		go request(OpRead, off, got, all.Done)
		e := v.guard.entry(off >> stripeShift)
		for reads := false; !reads; runtime.Gosched() {
			e.mu.Lock()
			reads = e.views == 2
			e.mu.Unlock()
		}
		v.guard.hurry() // finds that the write waits
		v.guard.hurry()
		all.Wait()
		v.Release(view)
		if !bytes.Equal(got, content) {
			t.Fatalf("stripe %d is read without some of what it holds", off>>stripeShift)
		}
	}
}
