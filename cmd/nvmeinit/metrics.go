package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/metrics"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// figures holds what --metrics serves about a device and its load generator. A nil *figures, for when the flag
// isn't given, does nothing.
type figures struct {
	server *metrics.Server

	mu    sync.Mutex
	ended metrics.Bench // runs that are over
	live  metrics.Bench // the current run
}

// serveFigures serves on addr, and says where on w: the port may be 0. It returns nil if addr is empty.
func serveFigures(addr string, d *benchDevice, w io.Writer) (*figures, error) {
	if addr == "" {
		return nil, nil
	}
	m := metrics.New()
	if d.multi != nil {
		m.AddSubsystem(d.multi.Subsystem)
		for _, f := range d.multi.fabrics.open {
			addFabric(m, f)
		}
	} else {
		for _, s := range d.sessions {
			m.AddController(s.Controller)
		}
		addFabric(m, d.sessions[0].fabric)
	}
	f := new(figures)
	m.AddBench(f.bench)
	var err error
	if f.server, err = m.Serve(addr); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "metrics http://%s/metrics\n", f.server.Addr())
	return f, nil
}

func addFabric(m *metrics.Set, f *fabric) {
	if f.rnics != nil {
		f.rnics.Watch(func(nic *softrnic.RNIC) { m.AddRNIC(nic.Name(), nic) })
		m.AddRDMA(metrics.Host, f.rdma.Counters())
	} else {
		m.AddTCP(metrics.Host, f.tcp.Counters())
	}
}

// bench returns what all runs measured.
func (f *figures) bench() metrics.Bench {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.ended
	b.Read.Add(&f.live.Read)
	b.Write.Add(&f.live.Write)
	b.Trim.Add(&f.live.Trim)
	return b
}

// report updates the figures from a run in progress.
func (f *figures) report(p *loadgen.Progress) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = metrics.Bench{
		Read: opStats(&p.Ops[loadgen.Read]), Write: opStats(&p.Ops[loadgen.Write]), Trim: opStats(&p.Ops[loadgen.Trim]),
	}
}

// finish replaces what was reported about a run by what it measured. If a job sought a depth, that covers only its
// last window: then the reported figures are kept, since Prometheus takes a counter that decreases for a restart.
func (f *figures) finish(r *loadgen.Result) {
	if f == nil {
		return
	}
	var b metrics.Bench
	for i := range r.Jobs {
		j := &r.Jobs[i]
		read, write, trim := opStats(&j.Ops[loadgen.Read]), opStats(&j.Ops[loadgen.Write]), opStats(&j.Ops[loadgen.Trim])
		b.Read.Add(&read)
		b.Write.Add(&write)
		b.Trim.Add(&trim)
		b.Errors += j.Errors
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended.Read.Add(fuller(&b.Read, &f.live.Read))
	f.ended.Write.Add(fuller(&b.Write, &f.live.Write))
	f.ended.Trim.Add(fuller(&b.Trim, &f.live.Trim))
	f.ended.Errors += b.Errors
	f.live = metrics.Bench{}
}

// fuller returns the one with the larger count.
func fuller(a, b *target.OpStats) *target.OpStats {
	if a.Ops >= b.Ops {
		return a
	}
	return b
}

func opStats(m *loadgen.Measured) target.OpStats {
	s := target.OpStats{Ops: m.IOs, Bytes: m.Bytes, Nanos: uint64(m.Latency.Sum())}
	for ns, n := range m.Latency.Bins() {
		s.Latency[target.LatencyBucket(time.Duration(ns))] += n
	}
	return s
}

// close ends the server.
func (f *figures) close() error {
	if f == nil {
		return nil
	}
	return f.server.Close()
}
