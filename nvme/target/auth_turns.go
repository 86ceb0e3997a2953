package target

import (
	"net/netip"
	"runtime"
	"sync"
)

// authTurns bounds how many authentications are computed at once. Those that wait go on by address in turn, however many
// of one address there are: anyone may begin authentications, and those of one address must not keep the others out.
type authTurns struct {
	mu      sync.Mutex
	free    int                            // places that nobody has
	waiting map[netip.Addr][]chan struct{} // by address; each is closed when it has a place
	next    []netip.Addr                   // those in waiting, in the order of their turns
}

// computingPlaces is how many authentications of all hosts are computed at once: one less than there are processors, so
// that one is left for everything else.
func computingPlaces() int { return max(1, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))-1) }

// take waits for a place.
func (a *authTurns) take(peer netip.Addr) {
	a.mu.Lock()
	if a.free > 0 {
		a.free--
		a.mu.Unlock()
		return
	}
	mine := make(chan struct{})
	if len(a.waiting[peer]) == 0 {
		a.next = append(a.next, peer)
	}
	a.waiting[peer] = append(a.waiting[peer], mine)
	a.mu.Unlock()
	<-mine
}

// leave gives a place to the address whose turn it is.
func (a *authTurns) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.next) == 0 {
		a.free++
		return
	}
	peer := a.next[0]
	a.next = a.next[1:]
	all := a.waiting[peer]
	close(all[0])
	if len(all) == 1 {
		delete(a.waiting, peer)
		return
	}
	a.waiting[peer] = all[1:]
	a.next = append(a.next, peer)
}
