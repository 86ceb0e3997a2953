package tcp

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// Values of TargetConfig.BusyPoll and HostConfig.BusyPoll.
const (
	DefaultBusyPoll = busypoll.Default
	NoBusyPoll      = busypoll.Off
)

// maxLookers is how many connections of this program may look for data at once.
var maxLookers = mostLookers(min(runtime.NumCPU(), runtime.GOMAXPROCS(0)))

// mostLookers is half of the processors that a program has, since what a connection looks for has to be made by
// somebody, often on this machine. Where it has only one, its peer mostly has another: one looks, and finds out where
// that isn't so.
func mostLookers(processors int) int { return max(processors/2, 1) }

// lookers is how many look just now.
var lookers atomic.Int32

// atWork counts the connections of this program that have work.
var atWork = census{began: time.Now()}

// deepTurn is how many commands between two waits are a deep queue: where that many come at once, what comes
// while a program sleeps makes the next batch as long, which costs less than an early wake-up gains.
// Where looks had cut it into batches of some thirty, one that is longer by chance ends that, too.
const deepTurn = 48

// looker is a reader's waiting: it looks for data before the reader sleeps in Go's poller, where the
// last waits were short.
type looker struct {
	longest time.Duration // to look; 0: not at all
	poller  busypoll.Poller
	atWork  *census
	turn    int // commands since the last wait
	waiting bool
	began   time.Time // the wait
	ended   time.Time // the wait before it
	period  int64     // of atWork that this one is counted in
}

// took notes a PDU that was received.
func (l *looker) took(h pdu.Header) {
	switch h.Type {
	case pdu.TypeCapsuleCmd, pdu.TypeCapsuleResp:
		l.turn++
	case pdu.TypeC2HData:
		if h.Flags&pdu.FlagSuccess != 0 {
			l.turn++
		}
	}
}

// begin begins a wait, and says how long to look for data; 0 is not at all. Where the reader also
// looks for what disks have done, and they have something to do, it is as long as may be.
func (l *looker) begin(disks bool) time.Duration {
	turn := l.turn
	l.turn = 0
	if l.longest == 0 {
		return 0
	}
	l.waiting, l.began = true, time.Now()
	if turn >= deepTurn && !disks {
		return 0
	}
	limit := l.poller.Limit(l.began.Sub(l.ended), l.longest)
	if disks {
		limit = l.longest
	}
	if !l.poller.Look(limit) {
		return 0
	}
	return limit
}

// end ends a wait, if there is one.
func (l *looker) end() {
	if !l.waiting {
		return
	}
	l.waiting, l.ended = false, time.Now()
	l.poller.Waited(l.ended.Sub(l.began))
	if p := l.atWork.at(l.ended); p != l.period {
		l.period = p
		l.atWork.count(p)
	}
}

// lookFor receives, again and again for as long as limit. It returns EAGAIN where nothing came, where more
// connections have work than may look, and where the reader is asked for something else. Other
// goroutines run in between, but not while disks are waited for: to wake a thread for them, which mostly finds none,
// keeps the answer waiting for longer. Other programs aren't offered the processor (sched_yield), which on a
// busy machine costs a whole time slice.
func (r *reader) lookFor(fd uintptr, limit time.Duration) (int, unix.Errno) {
	defer lookers.Add(-1)
	if lookers.Add(1) > int32(maxLookers) {
		return 0, unix.EAGAIN
	}
	disks := r.onDuty && r.attendant.Awaits()
	for !r.stopped.Load() && r.look.atWork.most() <= maxLookers {
		n, errno := r.receive(fd)
		if errno != unix.EAGAIN {
			r.look.poller.Looked(true)
			return n, errno
		}
		if r.onDuty && r.attendant.Look() {
			r.look.began = time.Now()
		}
		if r.onDuty && duty.Offered() {
			break
		}
		if time.Since(r.look.began) >= limit {
			r.look.poller.Looked(false)
			break
		}
		if !disks {
			runtime.Gosched()
		}
	}
	return 0, unix.EAGAIN
}
