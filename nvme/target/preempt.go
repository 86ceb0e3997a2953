package target

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// preemptPatience is how long Preempt and Abort waits for preempted hosts that have yet to send or take data before it
// ends their connections. Most are preempted because they are dead, and everything else waits for the namespace
// meanwhile.
const preemptPatience = time.Second

// abortPreempted ends Preempt and Abort: commands of the preempted hosts that wait or take long are aborted, and it is
// answered when all other commands that had begun before it have ended, so that nothing from those hosts reaches the
// volume afterwards.
func (r *Request) abortPreempted(notices []resvNotice) {
	ns := r.engine.ns
	preempted := map[nvme.HostID]bool{}
	for _, n := range notices {
		preempted[n.host] = n.kind == nvme.ResvNoticeRegistrationPreempted || preempted[n.host]
	}
	all := slices.DeleteFunc(ns.sub.t.controllersOf(ns.sub), func(c *controller) bool { return !preempted[c.hostID] })
	for _, c := range all {
		c.abortAll(ns, nvme.StatusAbortPreempt)
	}
	r.unuse()
	var alone atomic.Bool
	ns.exclude(r, func() {
		alone.Store(true)
		ns.include()
		r.respond(nvme.StatusSuccess)
	})
	if len(all) > 0 && !alone.Load() {
		time.AfterFunc(preemptPatience, func() { ns.endPreempted(all, &alone) })
	}
}

// endPreempted ends the controllers of preempted hosts that still use the namespace. While the volume has commands of
// theirs that wouldn't help, so it waits again.
func (ns *Namespace) endPreempted(all []*controller, alone *atomic.Bool) {
	if alone.Load() || !ns.excluded() {
		return
	}
	all = slices.DeleteFunc(all, func(c *controller) bool { return !ns.usedBy(c) })
	var queues []*Queue
	for _, c := range all {
		queues = append(queues, c.ioQueues()...)
	}
	if at, _, _ := whereabouts(queues); at.has(ns.nsid) {
		time.AfterFunc(preemptPatience, func() { ns.endPreempted(all, alone) })
		return
	}
	for _, c := range all {
		c.fatal(ErrPreempted)
	}
}

// usedBy reports whether a controller's I/O queues use the namespace, or others that share their counters.
func (ns *Namespace) usedBy(c *controller) bool {
	return slices.ContainsFunc(c.ioQueues(), func(q *Queue) bool { return ns.shards[q.shard].users.Load() > 0 })
}
