package loadgen

import (
	"container/heap"
	"errors"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// pacer tells jobs with a rate when their operations are due. The runtime's own timers may be
// a millisecond late, which would be charged to the device, so it waits in a thread of its own,
// by the kernel's high-resolution timers.
type pacer struct {
	due  dueJobs
	wake int // eventfd that ends the wait
	over chan struct{}
}

// leastWait is how long the pacer sleeps at least, in nanoseconds: at high rates it starts
// several operations at a time, and leaves the processor to those who carry them.
const leastWait = 10_000

// dueJob is a job and when its next operation is due, by its own copy of the job's plan.
type dueJob struct {
	job  *job
	plan *schedule
	at   int64 // nanoseconds
}

// dueJobs is a heap, the next that is due on top.
type dueJobs []*dueJob

func (d dueJobs) Len() int           { return len(d) }
func (d dueJobs) Less(i, k int) bool { return d[i].at < d[k].at }
func (d dueJobs) Swap(i, k int)      { d[i], d[k] = d[k], d[i] }
func (d *dueJobs) Push(x any)        { *d = append(*d, x.(*dueJob)) }

func (d *dueJobs) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// startPacer paces jobs, all of which have begun, until it is stopped. It is nil where none of
// them has a rate.
func startPacer(jobs []*job) (*pacer, error) {
	p := &pacer{over: make(chan struct{})}
	for _, j := range jobs {
		if j.plan == nil {
			continue
		}
		d := &dueJob{job: j, plan: newSchedule(j.task.spec, j.clone)}
		d.at = j.start + d.plan.peek()
		p.due = append(p.due, d)
	}
	if len(p.due) == 0 {
		return nil, nil
	}
	var err error
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, err
	}
	heap.Init(&p.due)
	go p.run()
	return p, nil
}

// stop ends the pacing. A nil pacer has none.
func (p *pacer) stop() {
	if p == nil {
		return
	}
	_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.over
	_ = unix.Close(p.wake)
}

func (p *pacer) run() {
	defer close(p.over)
	standstill.Enter()
	defer standstill.Leave()
	// The thread ends with the goroutine, and its timer slack, by default 50 µs, with it.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}}
	for len(p.due) > 0 {
		d := p.due[0]
		now := nanotime()
		if left := d.at - now; left > 0 {
			standstill.Blocks()
			ts := unix.NsecToTimespec(max(left, leastWait))
			n, err := unix.Ppoll(fds, &ts, nil)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			continue
		}
		if !d.job.arrive() {
			heap.Pop(&p.due)
			continue
		}
		for d.at <= now {
			d.plan.next()
			d.at = d.job.start + d.plan.peek()
		}
		heap.Fix(&p.due, 0)
	}
	// Nothing is due any more: wait for stop, which writes.
	_, _ = unix.Ppoll(fds, nil, nil)
}
