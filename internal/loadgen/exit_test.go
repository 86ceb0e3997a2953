package loadgen

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestExit: when a job ends, those of its group end at once, or all, also those that have not begun; without Exit each
// goes on for itself, as in fio.
func TestExit(t *testing.T) {
	for _, c := range []struct {
		exit Exit
		want string // tens of operations of short, of each of long, of other, of late
	}{
		{ExitNone, "[2 10 10 10 2]"},
		{ExitGroup, "[2 2 2 10 2]"},
		{ExitRun, "[2 2 2 2 0]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			of := func(ios, group int) Spec {
				s := spec("read")
				s.Size, s.IODepth, s.Group = int64(ios)<<12, 1, group
				return s
			}
			specs := []Spec{of(20, 0), of(100, 0), of(100, 1), of(20, 1)}
			specs[0].Exit, specs[1].NumJobs, specs[3].Delay = c.exit, 2, 500*time.Millisecond
			res, err := Run(t.Context(), &fakeDevice{delay: 10 * time.Millisecond}, specs, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for i := range res.Jobs {
				got = append(got, res.Jobs[i].Ops[Read].IOs/10)
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("exit %d: %v operations, want %s", c.exit, got, c.want)
			}
		})
	}
}

// TestExitReadsBack: what jobs have written is read back to the end, whichever of them ended the others.
func TestExitReadsBack(t *testing.T) {
	for range 20 { // whether the end of the last job or its Exit is noticed first is up to chance
		synctest.Test(t, func(t *testing.T) {
			a := verifySpec("write")
			a.Size, a.IODepth, a.Exit = fakeSize/2, 1, ExitRun
			b := a
			b.Offset = fakeSize / 2
			d := &fakeDevice{delay: time.Millisecond, data: make([]byte, fakeSize)}
			res, err := Run(t.Context(), d, []Spec{a, b}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if g := Group(res.Jobs); g.Verified != int64(g.Ops[Write].Bytes) || g.Verified < fakeSize/2 {
				t.Errorf("%d bytes of %d are verified", g.Verified, g.Ops[Write].Bytes)
			}
		})
	}
}
