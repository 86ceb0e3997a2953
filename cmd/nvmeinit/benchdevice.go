package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// benchDevice is a namespace as the load generator sees it: through one or more controllers over one fabric, or
// through several paths.
type benchDevice struct {
	sessions []*session // the first owns the fabric
	ns       []*host.Namespace

	multi *multiSession // instead of sessions
	by    *multipath.Namespace
}

// open connects, and checks the jobs against the namespace.
func (f *benchFlags) open(ctx context.Context) (*benchDevice, error) {
	if f.conn.paths.wanted() {
		return f.openPaths(ctx)
	}
	s, err := f.conn.connect(ctx, f.shape)
	if err != nil {
		return nil, err
	}
	d := &benchDevice{sessions: []*session{s}}
	if err = d.connectMore(ctx, f.controllers-1); err == nil {
		err = d.openNamespaces(ctx, f.nsid)
	}
	if err == nil {
		err = f.fits(d.ns[0])
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openPaths is open for several paths.
func (f *benchFlags) openPaths(ctx context.Context) (*benchDevice, error) {
	s, err := f.conn.connectPaths(ctx, f.shape)
	if err != nil {
		return nil, err
	}
	d := &benchDevice{multi: s}
	d.by, err = s.namespace(ctx, f.nsid)
	if err == nil {
		d.ns = []*host.Namespace{d.by.Namespace}
		err = f.fits(d.ns[0])
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// fits checks every job against the namespace, at every depth that it will run at.
func (f *benchFlags) fits(ns *host.Namespace) error {
	for _, jobs := range fio.Phases(f.jobs) {
		for _, depth := range f.depthsOf(jobs) {
			for _, j := range f.jobsAt(jobs, depth) {
				err := j.Fit(ns.Size(), ns.BlockSize())
				if err == nil {
					err = fitsCommand(j, ns)
				}
				if err != nil {
					return cli.Usage("%s%w", f.origin(j), err)
				}
			}
		}
	}
	return nil
}

// fitsCommand checks that each operation of a job fits in one command.
func fitsCommand(j *fio.Job, ns *host.Namespace) error {
	if bs := j.LargestTransfer(); bs > ns.MaxTransfer() {
		return fmt.Errorf("bs=%d: the controller takes at most %s a command (MDTS)", bs, blockdev.FormatSize(int64(ns.MaxTransfer())))
	}
	if !j.Does(loadgen.Trim) {
		return nil
	}
	most, err := ns.MaxDiscard()
	if err != nil {
		return fmt.Errorf("rw=%s: %w", j.Pattern(), err)
	}
	if bs := j.LargestTrim(); int64(bs) > most {
		return fmt.Errorf("bs=%d: the controller trims at most %s a command", bs, blockdev.FormatSize(most))
	}
	return nil
}

// connecting is how many controllers are connected to at the same time.
const connecting = 16

// connectMore makes n more connections like the first one.
func (d *benchDevice) connectMore(ctx context.Context, n int) error {
	more := make([]*session, n)
	err := atOnce(n, func(i int) error {
		c, err := host.Connect(ctx, d.sessions[0].Config())
		if err != nil {
			return fmt.Errorf("controller %d of %d: %w", i+2, n+1, err)
		}
		more[i] = &session{c, d.sessions[0].fabric}
		return nil
	})
	for _, s := range more {
		if s != nil {
			d.sessions = append(d.sessions, s)
		}
	}
	return err
}

func (d *benchDevice) openNamespaces(ctx context.Context, nsid uint32) error {
	d.ns = make([]*host.Namespace, len(d.sessions))
	return atOnce(len(d.sessions), func(i int) (err error) {
		d.ns[i], err = d.sessions[i].namespace(ctx, nsid)
		return err
	})
}

// atOnce calls do for 0 to n-1, several at a time, and returns the first error.
func atOnce(n int, do func(int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	tokens := make(chan struct{}, connecting)
	for i := range n {
		tokens <- struct{}{}
		all.Go(func() {
			errs[i] = do(i)
			<-tokens
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// Close shuts every controller down, and frees the fabric.
func (d *benchDevice) Close() error {
	if d.multi != nil {
		return d.multi.Close()
	}
	err := atOnce(len(d.sessions)-1, func(i int) error { return d.sessions[i+1].Controller.Close() })
	return errors.Join(err, d.sessions[0].Close())
}

// interruptGrace is how long outstanding operations have to end when a run is interrupted. A volume that hangs may
// hold them forever while its target keeps the connection.
const interruptGrace = 5 * time.Second

// watch makes a live line show the paths, and makes sure that an interrupted run neither waits for lost paths nor
// waits forever for outstanding operations. Calling end stops that.
func (d *benchDevice) watch(ctx context.Context, l *live) (end func()) {
	if d.multi != nil && l != nil {
		l.paths = d.multi.Subsystem
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		if d.multi != nil {
			d.multi.StopWaiting()
		}
		select {
		case <-over:
		case <-time.After(interruptGrace):
			d.cut()
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// cut ends outstanding operations. Close must still be called.
func (d *benchDevice) cut() {
	if d.multi != nil {
		_ = d.multi.Subsystem.Close() // this ends the operations
		return
	}
	_ = atOnce(len(d.sessions), func(i int) error { return d.sessions[i].Controller.Close() })
}

// controllers returns the controllers that take I/O.
func (d *benchDevice) controllers() []*host.Controller {
	if d.multi != nil {
		return d.multi.Controllers()
	}
	all := make([]*host.Controller, len(d.sessions))
	for i, s := range d.sessions {
		all[i] = s.Controller
	}
	return all
}

func (d *benchDevice) Size() int64    { return d.ns[0].Size() }
func (d *benchDevice) BlockSize() int { return d.ns[0].BlockSize() }

// OpenQueue returns the I/O queue of job i.
func (d *benchDevice) OpenQueue(i int) (loadgen.Queue, error) {
	if d.multi != nil {
		return &benchQueue{memory: d.multi, q: d.by.Lane(i), nsid: d.by.ID, block: d.by.BlockSize()}, nil
	}
	queues := make([]int, len(d.ns))
	for k, ns := range d.ns {
		queues[k] = len(ns.Controller().Queues())
	}
	at := queueOf(i, queues)
	ns := d.ns[at.controller]
	c := ns.Controller()
	return &benchQueue{memory: c, q: c.Queues()[at.queue], nsid: ns.ID, block: ns.BlockSize()}, nil
}

// memory allocates buffers that transfer at the least cost.
type memory interface {
	Alloc(n int) ([]byte, error)
	Free(b []byte)
}

// submitter is an I/O queue, or a lane of several paths.
type submitter interface{ SubmitOne(r *host.Request) }

// benchQueue submits the operations of a job as commands on one I/O queue or lane.
type benchQueue struct {
	memory
	q     submitter
	nsid  uint32
	block int
}

// benchRequest is the request of an operation, with the range list of a trim.
type benchRequest struct {
	host.Request
	ranges [nvme.DSMRangeSize]byte
}

// Submit starts io with its request, which is made at first use.
func (q *benchQueue) Submit(io *loadgen.IO) {
	r, ok := io.Private.(*benchRequest)
	if !ok {
		r = &benchRequest{}
		r.Done = func(r *host.Request) {
			io.Err = r.Check()
			io.Done(io)
		}
		io.Private = r
	}
	r.Data = io.Buf
	slba, blocks := uint64(io.Offset)/uint64(q.block), uint32(io.Length/q.block)
	switch {
	case io.Op == loadgen.Flush:
		r.Cmd.SetFlush(q.nsid)
	case io.Op == loadgen.Trim:
		r.Cmd.SetDSM(q.nsid, 1, nvme.DSMDeallocate)
		r.Data = nvme.DSMRange{SLBA: slba, Blocks: blocks}.AppendTo(r.ranges[:0])
	case io.Op == loadgen.Read:
		r.Cmd.SetIO(nvme.OpRead, q.nsid, slba, blocks, 0)
	case io.FUA:
		r.Cmd.SetIO(nvme.OpWrite, q.nsid, slba, blocks, nvme.ControlFUA)
	default:
		r.Cmd.SetIO(nvme.OpWrite, q.nsid, slba, blocks, 0)
	}
	q.q.SubmitOne(&r.Request)
}
