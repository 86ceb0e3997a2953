package main

import (
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// benchDevice is a namespace as the load generator sees it.
type benchDevice struct{ ns *host.Namespace }

func (d *benchDevice) Size() int64    { return d.ns.Size() }
func (d *benchDevice) BlockSize() int { return d.ns.BlockSize() }

// OpenQueue gives job i an I/O queue; jobs share them where there are fewer.
func (d *benchDevice) OpenQueue(i int) (loadgen.Queue, error) {
	c := d.ns.Controller()
	return &benchQueue{
		c: c, q: c.Queues()[i%len(c.Queues())], nsid: d.ns.ID, block: d.ns.BlockSize(),
	}, nil
}

// benchQueue submits the operations of a job as commands of one I/O queue.
type benchQueue struct {
	c     *host.Controller
	q     *host.Queue
	nsid  uint32
	block int
}

func (q *benchQueue) Alloc(n int) ([]byte, error) { return q.c.Alloc(n) }
func (q *benchQueue) Free(b []byte)               { q.c.Free(b) }

// Submit starts io with the request that was made for it at first use.
func (q *benchQueue) Submit(io *loadgen.IO) {
	r, ok := io.Private.(*host.Request)
	if !ok {
		r = &host.Request{Data: io.Buf}
		r.Done = func(r *host.Request) {
			io.Err = r.Check()
			io.Done(io)
		}
		io.Private = r
	}
	op := nvme.OpRead
	if io.Op == loadgen.Write {
		op = nvme.OpWrite
	}
	r.Cmd.SetIO(op, q.nsid, uint64(io.Offset)/uint64(q.block), uint32(len(io.Buf)/q.block), 0)
	q.q.SubmitOne(r)
}
