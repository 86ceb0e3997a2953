package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// TestFigures: the figures follow a run, and keep what it measured when the next one begins.
func TestFigures(t *testing.T) {
	f := new(figures)
	reads := func() uint64 { b := f.bench(); return b.Read.Ops }
	var p loadgen.Progress
	p.Ops[loadgen.Read].IOs = 7
	f.report(&p)
	if n := reads(); n != 7 {
		t.Errorf("%d operations while it runs", n)
	}
	res := &loadgen.Result{Jobs: make([]loadgen.JobResult, 1)}
	res.Jobs[0].Errors = 1
	m := &res.Jobs[0].Ops[loadgen.Read]
	for range 10 {
		m.IOs++
		m.Latency.Record(100_000)
	}
	f.finish(res)
	f.report(&p)
	if n := reads(); n != 17 {
		t.Errorf("%d operations in the second run", n)
	}
	f.finish(res)
	b := f.bench()
	var inBuckets uint64
	for _, n := range b.Read.Latency {
		inBuckets += n
	}
	if b.Read.Ops != 20 || b.Read.Nanos != 20*100_000 || inBuckets != 20 || b.Errors != 2 || b.Write.Ops != 0 {
		t.Errorf("after two runs of 10: %+v", b)
	}
}

// TestFiguresOfWindow: the figures don't decrease if a run that sought a depth measured less than was reported
// about it.
func TestFiguresOfWindow(t *testing.T) {
	f := new(figures)
	var p loadgen.Progress
	p.Ops[loadgen.Read].IOs = 100
	f.report(&p)
	res := &loadgen.Result{Jobs: make([]loadgen.JobResult, 1)}
	res.Jobs[0].Ops[loadgen.Read].IOs = 10
	f.finish(res)
	if n := f.bench().Read.Ops; n != 100 {
		t.Errorf("%d operations after 100", n)
	}
}
