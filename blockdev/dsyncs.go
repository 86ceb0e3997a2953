package blockdev

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dsyncs counts the writes with RWF_DSYNC that the system is doing, so that a flush can wait for them. If a disk can't
// empty its cache for one of them, it may drop what it holds of all writes, and then succeed for the flush. Linux
// passes that error on to the one that it belongs to, and keeps no record of it for others, unlike that of a failed
// write-back. So the flush promises nothing until those that were under way when its own sync ended have ended too, and
// their failures are recorded.
type dsyncs struct {
	turn  atomic.Uint32    // changed by each flush that waits
	under [2]atomic.Uint32 // way, begun in an even or odd turn

	mu    sync.Mutex
	ended sync.Cond // the last of a turn that is over
}

// begin says that a transfer with these flags (RWF_*) begins, and returns its turn, for end. Only writes with RWF_DSYNC
// are counted.
func (d *dsyncs) begin(flags int) (turn uint32) {
	for flags&unix.RWF_DSYNC != 0 {
		turn = d.turn.Load()
		d.under[turn&1].Add(1)
		if d.turn.Load() == turn {
			break
		}
		d.end(flags, turn) // whoever waits for the next turn wouldn't notice it
	}
	return turn
}

// end says that the transfer has ended. If it failed, that is recorded.
func (d *dsyncs) end(flags int, turn uint32) {
	if flags&unix.RWF_DSYNC == 0 {
		return
	}
	if d.under[turn&1].Add(^uint32(0)) == 0 && d.turn.Load() != turn {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended.Signal()
	}
}

// wait waits until all writes that are under way have ended, but not for those that begin meanwhile. Only one flush
// waits at a time, so nothing of the turn before is under way.
func (d *dsyncs) wait() {
	under := &d.under[(d.turn.Add(1)-1)&1]
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended.L = &d.mu
	for under.Load() > 0 {
		d.ended.Wait()
	}
}
