package main

import (
	"context"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// altering is a transport to a target that answers differently from ours: answer alters its response to a command.
type altering struct {
	*tcp.Transport
	answer func(r *host.Request, cqe *nvme.Completion)
}

func (a *altering) Dial(ctx context.Context, attr host.QueueAttr) (host.TransportQueue, error) {
	q := &alteredQueue{a: a, Sink: attr.Sink, asked: map[uint16]*host.Request{}}
	attr.Sink = q
	var err error
	q.TransportQueue, err = a.Transport.Dial(ctx, attr)
	return q, err
}

type alteredQueue struct {
	host.TransportQueue
	host.Sink
	a     *altering
	mu    sync.Mutex
	asked map[uint16]*host.Request
}

func (q *alteredQueue) Submit(rs []*host.Request) {
	q.mu.Lock()
	for _, r := range rs {
		q.asked[r.Cmd.CID()] = r
	}
	q.mu.Unlock()
	q.TransportQueue.Submit(rs)
}

func (q *alteredQueue) Completed(cqe *nvme.Completion) bool {
	q.mu.Lock()
	r := q.asked[cqe.CID()]
	delete(q.asked, cqe.CID())
	q.mu.Unlock()
	if r == nil {
		return q.Sink.Completed(cqe)
	}
	altered := *cqe
	q.a.answer(r, &altered)
	return q.Sink.Completed(&altered)
}
