package aio

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A ring's request is done on the thread that submitted it. What may wait for a disk or a file system, in a call that
// can't be interrupted, is called on another thread, so that no request waits with it that has nothing to do with it.

// openRings counts them. Where there are none any thread will do.
var openRings atomic.Int32

// underWay counts rings' requests whose events haven't been taken, by the threads that submitted them. Threads that
// share a place only take each other for busy.
var underWay [1 << placeBits]atomic.Int32

const (
	placeBits  = 12
	placeShift = 64 - 16 // of a place within a request's userData; what is marked closing has none
	dataMask   = 1<<placeShift - 1
)

// threadPlace is the calling thread's. Threads that follow one another don't share lines of the processors' caches.
func threadPlace() uint64 {
	tid := uint64(unix.Gettid())
	const line = 16 // counters
	return (tid*line | tid>>(placeBits-4)%line) % (1 << placeBits)
}

// Apart calls f on a thread that has no requests of rings under way, for as long as there is a ring. f may wait for a
// disk or a file system.
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
	go d.call() // on another thread, since nobody else gets this one
	<-d.done
	d.f = nil
	deputies.Put(d)
}

// deputy calls f for somebody whose thread won't do.
type deputy struct {
	f    func()
	call func() // run, made once
	done chan struct{}
}

var deputies sync.Pool // that nobody needs

func newDeputy() *deputy {
	d := &deputy{done: make(chan struct{}, 1)}
	d.call = d.run
	return d
}

func (d *deputy) run() {
	Apart(d.f)
	d.done <- struct{}{}
}

// ApartHere calls f, as Apart does, if the calling thread is such a one. It returns false if not.
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
