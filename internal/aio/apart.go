package aio

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A ring's request is finished on the thread that submitted it. A call that may wait for a disk or a file system, and
// can't be interrupted, is made on another thread, so that no unrelated request waits with it.

// openRings counts open rings. If there are none any thread will do.
var openRings atomic.Int32

// underWay counts rings' requests whose events haven't been taken, per thread that submitted them. Threads that share a
// place merely regard each other as busy.
var underWay [1 << placeBits]atomic.Int32

const (
	placeBits  = 12
	placeShift = 64 - 16 // of a place within a request's userData; one marked closing has none
	dataMask   = 1<<placeShift - 1
)

// threadPlace returns the calling thread's place. Threads with consecutive numbers don't share cache lines.
func threadPlace() uint64 {
	tid := uint64(unix.Gettid())
	const line = 16 // counters
	return (tid*line | tid>>(placeBits-4)%line) % (1 << placeBits)
}

// Apart calls f on a thread that has no requests of rings in flight, as long as there is a ring. f may wait for a disk
// or a file system.
func Apart(f func()) {
	if openRings.Load() == 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if underWay[threadPlace()].Load() == 0 {
		f()
		return
	}
	d, ok := deputies.Get().(*deputy)
	if !ok {
		d = newDeputy()
	}
	d.f = f
	go d.call() // on another thread, since this one is locked to this goroutine
	<-d.done
	d.f = nil
	deputies.Put(d)
}

// deputy calls f for a goroutine whose thread won't do.
type deputy struct {
	f    func()
	call func() // run, made once
	done chan struct{}
}

var deputies sync.Pool // unused ones

func newDeputy() *deputy {
	d := &deputy{done: make(chan struct{}, 1)}
	d.call = d.run
	return d
}

func (d *deputy) run() {
	Apart(d.f)
	d.done <- struct{}{}
}

// ApartHere calls f, as Apart does, if the calling thread will do. It returns false if not.
func ApartHere(f func()) bool {
	if openRings.Load() > 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if underWay[threadPlace()].Load() > 0 {
			return false
		}
	}
	f()
	return true
}
