package standstill

import (
	"os"
	"runtime"
	"sync"
)

// Spare has Go run twice as many goroutines at a time as there are processors, unless the user
// has set GOMAXPROCS. It is for programs with threads that wait for disks; a second call does
// nothing.
//
// A goroutine that blocks in a system call keeps its place among those that run until the
// runtime's monitor takes it away. Where all places are kept so, as by an RNIC and a ring on a
// machine of two processors, the monitor looks every 20 µs, and wakes a thread for each place it
// takes, which finds nothing to do; and workers that read a disk wait for one another. While a
// place is free the monitor sleeps.
func Spare() { spare() }

var spare = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
})
