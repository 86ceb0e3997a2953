package standstill

import (
	"os"
	"runtime"
	"sync"
)

// Spare lets Go run twice as many goroutines at a time as there are processors, unless the user
// has set GOMAXPROCS. It is for programs with threads that wait for disks; a second call does
// nothing.
//
// A goroutine that blocks in a system call keeps its P until the runtime's monitor takes it
// away. If all Ps are held like this, as by an RNIC and a ring on a machine with two
// processors, the monitor looks every 20 µs, and wakes a thread for each P it takes away, which
// finds nothing to do; and workers that read a disk wait for one another. While a P is free the
// monitor sleeps.
func Spare() { spare() }

var spare = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
})
