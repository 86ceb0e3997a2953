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

// mostLookers returns half of the processors that a program has: somebody has to produce the data that a connection
// looks for, often on this machine. If the program has only one, its peer usually runs on another: one connection
// looks, and package busypoll notices if that isn't so.
func mostLookers(processors int) int { return max(processors/2, 1) }

// lookers is how many connections are looking now.
var lookers atomic.Int32

// atWork counts the connections of this program that have work.
var atWork = census{began: time.Now()}

// deepTurn is how many commands between two waits mean a deep queue. If that many arrive at once, those that
// arrive while the program sleeps make the next batch as long, and long batches save more than an early wake-up
// gains. If looks had split the queue into batches of about thirty, one that happens to be longer ends that, too.
const deepTurn = 48

// looker decides for a reader how long to look for data before it sleeps in Go's poller: to look is to
// receive again and again, which pays if the last waits were short.
type looker struct {
	longest time.Duration // to look; 0 means not at all
	poller  busypoll.Poller
	atWork  *census
	turn    int // commands since the last wait
	waiting bool
	began   time.Time // when the wait began
	ended   time.Time // when the wait before it ended
	period  int64     // of atWork in which this connection was last counted
}

// took records a received PDU.
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

// begin begins a wait, and returns how long to look for data; 0 means not at all. disks says that the
// reader also looks for answers of disks, and that some are pending: then it looks for as long as allowed.
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

// lookFor receives again and again, for as long as limit. It returns EAGAIN if nothing arrived, if more
// connections have work than may look, or if the reader is asked for something else. Other goroutines run in
// between, except while disks are waited for: that would wake a thread, which mostly finds no goroutine to run and
// delays the answer. The processor isn't offered to other programs (sched_yield): on a busy machine that costs a
// whole time slice.
func (r *reader) lookFor(limit time.Duration) (int, unix.Errno) {
	defer lookers.Add(-1)
	if lookers.Add(1) > int32(maxLookers) {
		return 0, unix.EAGAIN
	}
	disks := r.onDuty && r.attendant.Awaits()
	for !r.stopped.Load() && r.look.atWork.most() <= maxLookers {
		n, errno := r.receive()
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
