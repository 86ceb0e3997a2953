package main

import (
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/metrics"
)

// figures are what --metrics serves of a device and of its load generator. A nil *figures,
// where the flag isn't given, does nothing.
type figures struct {
	bench  *metrics.Bench
	server *metrics.Server
}

// serveFigures serves on addr; it gives nil for an empty one.
func serveFigures(addr string, d *benchDevice) (*figures, error) {
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
		m.AddController(d.sessions[0].Controller)
		addFabric(m, d.sessions[0].fabric)
	}
	b := m.AddBench()
	srv, err := m.Serve(addr)
	if err != nil {
		return nil, err
	}
	return &figures{b, srv}, nil
}

func addFabric(m *metrics.Set, f *fabric) {
	if f.rnic != nil {
		m.AddRNIC(f.local.String(), f.rnic)
		m.AddRDMA(metrics.Host, f.rdma.Stats())
	} else {
		m.AddTCP(metrics.Host, f.tcp.Counters())
	}
}

// report has the figures follow a run.
func (f *figures) report(p *loadgen.Progress) {
	if f != nil {
		f.bench.Report(p)
	}
}

// finish has them keep what a run measured.
func (f *figures) finish(r *loadgen.Result) {
	if f != nil {
		f.bench.Finish(r)
	}
}

// close ends the server.
func (f *figures) close() error {
	if f == nil {
		return nil
	}
	return f.server.Close()
}
