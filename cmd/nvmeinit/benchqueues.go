package main

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// shape requests the queues that the jobs can use: one for each job, and with room for the depths of all jobs that
// share it, unless the user said otherwise. One entry of a queue always stays free.
func (f *benchFlags) shape(cfg *host.Config) {
	if f.conn.queues == 0 {
		cfg.Queues = min((f.mostJobs()+f.controllers-1)/f.controllers, maxQueues)
	}
	if f.queueSizeGiven {
		return
	}
	queues := make([]int, f.controllers)
	for i := range queues {
		queues[i] = cfg.Queues
	}
	cfg.QueueSize = min(max(cfg.QueueSize, f.fullest(queues)+1), maxQueueSize)
}

// mostJobs returns how many jobs run at once.
func (f *benchFlags) mostJobs() int {
	most := 1
	for _, jobs := range fio.Phases(f.jobs) {
		n := 0
		for _, j := range jobs {
			n += j.NumJobs
		}
		most = max(most, n)
	}
	return most
}

// fullest returns the largest number of operations to be outstanding at once on one queue, given the number of
// queues of each controller.
func (f *benchFlags) fullest(queues []int) int {
	most := 0
	for _, jobs := range fio.Phases(f.jobs) {
		for _, depth := range f.depthsOf(jobs) {
			load := map[jobQueue]int{}
			number := 0
			for _, j := range f.jobsAt(jobs, depth) {
				for range j.NumJobs {
					at := queueOf(number, queues)
					load[at] += j.IODepth
					most = max(most, load[at])
					number++
				}
			}
		}
	}
	return most
}

// jobQueue identifies a queue: the index of its controller, and its index there.
type jobQueue struct{ controller, queue int }

// queueOf returns the queue of job i, given the number of queues of each controller: each job takes the next
// controller and, once all had their turn, its next queue. Jobs share queues if there are too few.
func queueOf(i int, queues []int) jobQueue {
	n := len(queues)
	return jobQueue{i % n, i / n % queues[i%n]}
}

// crowded explains what happens if the queues have less room than the depth that the jobs ask for; it returns "" if
// there is enough.
func (f *benchFlags) crowded(d *benchDevice) string {
	controllers := d.controllers()
	var queues []int
	room := 0
	for _, c := range controllers {
		if len(c.Queues()) == 0 {
			return "" // a lost path
		}
		queues = append(queues, len(c.Queues()))
		room += c.Queues()[0].Depth()
	}
	switch {
	case len(queues) == 0:
		return ""
	case d.multi != nil:
		queues = queues[:1] // every job may use all paths, and all of their room
	default:
		room /= len(controllers) // all of them are alike
	}
	most := f.fullest(queues)
	if most <= room {
		return ""
	}
	return fmt.Sprintf("%d operations are to be under way on one I/O queue, which takes %d; the others wait in this host, and latencies include that: %s",
		most, room, f.roomier(controllers[0], queues))
}

// roomier says how to get queues with enough room.
func (f *benchFlags) roomier(c *host.Controller, queues []int) string {
	size := c.Queues()[0].Size()
	switch jobs := f.mostJobs(); {
	case f.queueSizeGiven && size >= f.conn.queueSize:
		return fmt.Sprintf("raise -Q %d", f.conn.queueSize)
	case jobs > total(queues) && f.conn.queues > 0:
		return fmt.Sprintf("raise -i %d, as %d jobs share queues", f.conn.queues, jobs)
	case jobs > total(queues):
		return fmt.Sprintf("the target gives %d queues of %d entries for %d jobs; connect more often by --controllers", total(queues), size, jobs)
	}
	return fmt.Sprintf("the target's queues have at most %d entries; spread the depth over more jobs by --numjobs, each of which has a queue (with nvmetgt, serve --queue-depth sets how many)", size)
}

func total(n []int) (sum int) {
	for _, v := range n {
		sum += v
	}
	return sum
}
