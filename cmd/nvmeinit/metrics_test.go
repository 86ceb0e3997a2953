package main

import (
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/metrics"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestFigures: the figures of each kind of operation follow a run, and keep what it measured when the next one begins.
func TestFigures(t *testing.T) {
	for _, op := range []loadgen.Op{loadgen.Read, loadgen.Write, loadgen.Trim} {
		f := new(figures)
		all := func() (b metrics.Bench, of *target.OpStats) {
			b = f.bench()
			return b, map[loadgen.Op]*target.OpStats{loadgen.Read: &b.Read, loadgen.Write: &b.Write, loadgen.Trim: &b.Trim}[op]
		}
		var p loadgen.Progress
		p.Ops[op].IOs = 7
		f.report(&p)
		if _, of := all(); of.Ops != 7 {
			t.Errorf("%v: %d operations while it runs", op, of.Ops)
		}
		res := &loadgen.Result{Jobs: make([]loadgen.JobResult, 1)}
		res.Jobs[0].Errors = 1
		m := &res.Jobs[0].Ops[op]
		for range 10 {
			m.IOs++
			m.Latency.Record(100_000)
		}
		f.finish(res)
		f.report(&p)
		if _, of := all(); of.Ops != 17 {
			t.Errorf("%v: %d operations in the second run", op, of.Ops)
		}
		p.Ops[op].IOs = 10 // the last report may have counted all
		f.report(&p)
		f.finish(res)
		b, of := all()
		var inBuckets uint64
		for _, n := range of.Latency {
			inBuckets += n
		}
		if of.Ops != 20 || of.Nanos != 20*100_000 || inBuckets != 20 || b.Errors != 2 || b.Read.Ops+b.Write.Ops+b.Trim.Ops != 20 {
			t.Errorf("%v: after two runs of 10: %+v", op, b)
		}
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

// TestFiguresAnnounced: bench says where its figures are, which the user can't know of port 0.
func TestFiguresAnnounced(t *testing.T) {
	const disk = "nqn.2026-11.org.example:disk"
	_, l := serveSubsystems(t, disk)
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetArgs([]string{"bench", "-t", "tcp", "-a", "127.0.0.1", "-s", strconv.Itoa(int(l.Addr().Port())),
		"-n", disk, "-q", nvme.NewHostID().NQN(), "--rw", "read", "--size", "4k", "--metrics", "127.0.0.1:0"})
	var stderr strings.Builder
	code := cli.Execute(t.Context(), root, &stderr)
	if at := regexp.MustCompile(`(?m)^metrics http://127\.0\.0\.1:[1-9][0-9]*/metrics$`); code != cli.ExitOK || !at.MatchString(stderr.String()) {
		t.Errorf("code %d, stderr:\n%s", code, stderr.String())
	}
}
