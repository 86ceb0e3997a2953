package wrap

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// Delay is a volume whose answers come late.
type Delay struct {
	layer
	least, most time.Duration

	soonMu  sync.Mutex
	soon    pqueue.Queue[*delayed] // answers that wait for less than late, ordered by due time
	napping bool                   // nap runs, or is about to
	napper  func()                 // nap
}

// delayed is what a Delay has for each call.
type delayed struct {
	call  *call
	timer *time.Timer
	due   int64 // in soon: when the answer is due, by monotonic
}

// NewDelay delays each answer of v by a random time from least to most. Less than a millisecond is real time even in a
// bubble of testing/synctest, whose clock stands still meanwhile.
func NewDelay(v blockdev.Volume, least, most time.Duration) *Delay {
	mode := fmt.Sprintf("delayed by %v", least)
	if most > least {
		mode = fmt.Sprintf("%s to %v", mode, most)
	}
	d := &Delay{least: least, most: max(least, most)}
	d.soon = pqueue.New(func(a, b *delayed) bool { return a.due < b.due }, nil)
	d.napper = d.nap
	d.layer = newLayer(v, mode, d.made, d.back)
	return d
}

// Submit passes r on; its answer waits.
func (d *Delay) Submit(r *blockdev.Request) {
	if c := d.enter(r); c != nil {
		d.below.Submit(&c.down)
	}
}

// made gives a call its timer, which is reused.
func (d *Delay) made(c *call) {
	t := time.AfterFunc(time.Hour, func() { d.leave(c, c.down.Err) })
	t.Stop()
	c.data = &delayed{call: c, timer: t}
}

// late is how much later than they should the runtime's own timers may go off, if the program is idle.
const late = time.Millisecond

func (d *Delay) back(c *call) {
	x, _ := c.data.(*delayed)
	wait := d.least + time.Duration(rand.Uint64N(uint64(d.most-d.least)+1))
	if wait >= late {
		x.timer.Reset(wait)
		return
	}
	x.due = monotonic() + int64(wait)
	d.soonMu.Lock()
	d.soon.Push(x)
	begin := !d.napping
	d.napping = true
	d.soonMu.Unlock()
	if begin {
		go d.napper()
	}
}

// shortestNap leaves the processor to others where least is next to nothing.
const shortestNap = 10 * time.Microsecond

// nap gives the answers of soon, on the kernel's high-resolution timers, until none is left. It sleeps no longer than
// the least delay at a time: what comes meanwhile may be due sooner.
func (d *Delay) nap() {
	for {
		d.soonMu.Lock()
		if d.soon.Len() == 0 {
			d.napping = false
			d.soonMu.Unlock()
			return
		}
		x := d.soon.First()
		left := time.Duration(x.due - monotonic())
		if left <= 0 {
			d.soon.Pop()
		}
		d.soonMu.Unlock()
		if left <= 0 {
			d.leave(x.call, x.call.down.Err)
			continue
		}
		ts := unix.NsecToTimespec(int64(min(left, max(d.least, shortestNap))))
		_ = unix.Nanosleep(&ts, nil) // a signal only makes it look sooner
	}
}

// monotonic returns nanoseconds of the clock by which Nanosleep sleeps, also in a testing/synctest bubble.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// parseDelay parses "2ms" or "1ms-5ms".
func parseDelay(s string) (least, most time.Duration, err error) {
	first, last, isRange := strings.Cut(s, "-")
	if least, err = time.ParseDuration(first); err == nil {
		if most = least; isRange {
			most, err = time.ParseDuration(last)
		}
	}
	if err != nil || most < least { // neither can be negative: the sign would separate them
		return 0, 0, fmt.Errorf("delay %q: write a time as 2ms, or two as 1ms-5ms", s)
	}
	return least, most, nil
}
