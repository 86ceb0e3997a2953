package loadgen

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// A group has the sums of its jobs, the time of the longest, the first error, and what all of them reached.
func TestGroup(t *testing.T) {
	first, second := errors.New("the first"), errors.New("the second")
	jobs := []JobResult{
		{Duration: 2 * time.Second, User: 3, System: 5, SoughtDepth: 8, Sought: true},
		{Duration: 4 * time.Second, User: 10, System: 20, Errors: 1, Err: first, Unstarted: 7, Verified: 100, SoughtDepth: 4},
		{Duration: time.Second, User: 1, System: 2, Errors: 2, Err: second, Unstarted: 5, Verified: 50, SoughtDepth: 6, Sought: true},
	}
	jobs[0].Ops[Read] = Measured{IOs: 8, Bytes: 8 * 4096}
	jobs[2].Ops[Write] = Measured{IOs: 5, Bytes: 5 * 4096}
	g := Group(jobs)
	if g.Duration != 4*time.Second || g.CPU() != 41 || g.User != 14 || g.CPUPerIO() != 3 {
		t.Errorf("%v, and %v of processor time, %v by the user, %v per operation", g.Duration, g.CPU(), g.User, g.CPUPerIO())
	}
	if !errors.Is(g.Err, first) || g.Errors != 3 || g.Unstarted != 12 || g.Verified != 150 {
		t.Errorf("%v, %d errors, %d not begun, %d bytes verified", g.Err, g.Errors, g.Unstarted, g.Verified)
	}
	if g.SoughtDepth != 4 || g.Sought {
		t.Errorf("depth %d, sought %v", g.SoughtDepth, g.Sought)
	}
	if total := g.Total(); total.IOs != 13 || total.Bytes != 13*4096 || g.IOPS(&g.Ops[Read]) != 2 || g.Bandwidth(&g.Ops[Write]) != 5120 {
		t.Errorf("%d operations of %d bytes, %v reads and %v bytes written a second", total.IOs, total.Bytes, g.IOPS(&g.Ops[Read]), g.Bandwidth(&g.Ops[Write]))
	}
	if none := (&JobResult{}); none.CPUPerIO() != 0 || none.IOPS(none.Total()) != 0 {
		t.Error("a job that did nothing has figures")
	}
}

// burn uses some processor time.
func burn() {
	for began := processCPU(); ; {
		if c := processCPU().minus(began); c.user+c.system >= 20*time.Millisecond {
			return
		}
	}
}

// TestCPU: clones share the processor time that the program takes while they are measured.
func TestCPU(t *testing.T) {
	burn()
	before := processCPU()
	var once sync.Once
	s := spec("read")
	s.NumJobs = 2
	res, err := Run(t.Context(), &fakeDevice{seen: func(*IO) { once.Do(burn) }}, []Spec{s}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := processCPU().minus(before)
	if sum := res.Jobs[0].CPU() + res.Jobs[1].CPU(); sum < 20*time.Millisecond || sum > all.user+all.system {
		t.Errorf("%v of %v, want those of the run", sum, all)
	}
}

// TestShare: the part of the processor time that a job gets.
func TestShare(t *testing.T) {
	r := &run{jobs: []*job{{}, {}}}
	if a := r.share(r.jobs[0], 0); a != 0.5 {
		t.Errorf("without operations it gets %v, want half of it", a)
	}
	r.jobs[0].ops[Read].IOs, r.jobs[1].ops[Write].IOs = 10, 30
	if a, b := r.share(r.jobs[0], 40), r.share(r.jobs[1], 40); a != 0.25 || b != 0.75 {
		t.Errorf("with 10 and 30 operations they get %v and %v", a, b)
	}
}
