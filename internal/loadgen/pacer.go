package loadgen

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// pacer tells jobs with a rate when their operations are due.
type pacer struct {
	due pqueue.Queue[*dueJob] // ordered by due time
}

// dueJob is a job with the time at which its next operation is due, according to its own copy of the job's plan.
type dueJob struct {
	job  *job
	plan *schedule
	at   int64 // nanoseconds
}

// newPacer returns a pacer for those of jobs whose operations all come by a plan. All of them are held.
func newPacer(jobs []*job) *pacer {
	p := &pacer{due: pqueue.New(func(a, b *dueJob) bool { return a.at < b.at }, nil)}
	for _, j := range jobs {
		if !j.planned() {
			continue
		}
		d := &dueJob{job: j, plan: newSchedule(j.task.spec, j.clone)}
		d.at = j.start + d.plan.peek()
		p.due.Push(d)
	}
	return p
}

// step starts what is due, and returns the nanoseconds until it is needed again; negative if it never will be.
func (p *pacer) step() int64 {
	for p.due.Len() > 0 {
		d, now := p.due.First(), nanotime()
		if left := d.at - now; left > 0 {
			return left
		}
		if !d.job.arrive() {
			p.due.Pop()
			continue
		}
		now += d.job.catchUp() // nothing that is due until then needs this goroutine
		for n := 0; d.at <= now && n < atOnce; n++ {
			d.plan.next()
			d.at = d.job.start + d.plan.peek()
		}
		p.due.Fix(0)
		if d.at <= now {
			return 1
		}
	}
	return -1
}

// atOnce is how many operations of a plan are skipped before the pacer checks whether it should stop. A rate may be
// higher than its operations can be counted.
const atOnce = 10_000

// leastWait is the minimum time that a pacer sleeps, in nanoseconds: at high rates it starts several operations at
// a time, and leaves the processor to those that carry them out.
const leastWait = 10_000

// paceByThread calls p.step until stop is called. The runtime's own timers may be a millisecond late, which would
// be charged to the device, so it waits in a thread of its own, on the kernel's high-resolution timers.
func paceByThread(p *pacer) (stop func(), err error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, refused("eventfd2", err)
	}
	// Later, operations would silently come no more.
	if _, err := unix.Ppoll(nil, new(unix.Timespec), nil); err != nil && !errors.Is(err, unix.EINTR) {
		_ = unix.Close(wake)
		return nil, refused("ppoll", err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.stepUntil(wake)
	}()
	return func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-over
		_ = unix.Close(wake)
	}, nil
}

// refused is the error where the system doesn't do what a pacer needs.
func refused(call string, err error) error {
	return fmt.Errorf("starting operations at a rate: %w", os.NewSyscallError(call, err))
}

// stepUntil runs p until nothing will be due any more, or the descriptor wake is readable.
func (p *pacer) stepUntil(wake int) {
	standstill.Enter()
	defer standstill.Leave()
	// The thread ends with the goroutine, and so does its timer slack, which is 50 µs by default.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for left := p.step(); left >= 0; left = p.step() {
		standstill.Blocks()
		ts := unix.NsecToTimespec(max(left, leastWait))
		if n, err := unix.Ppoll(fds, &ts, nil); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
