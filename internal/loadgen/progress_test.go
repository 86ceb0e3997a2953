package loadgen

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The samples of a run cover what is measured: neither a ramp nor reading back. A remainder at the end that is less
// than half an interval is left out, since it says little about a rate.
func TestSeries(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Spec)
		samples int
	}{
		"whole intervals": {func(s *Spec) { s.Runtime = 3 * time.Second }, 3},
		"a bit more":      {func(s *Spec) { s.Runtime = 3400 * time.Millisecond }, 3},
		"much more":       {func(s *Spec) { s.Runtime = 3600 * time.Millisecond }, 4},
		"after a ramp":    {func(s *Spec) { s.Runtime, s.RampTime = 2600*time.Millisecond, 1600*time.Millisecond }, 2},
		"read back":       {func(s *Spec) { s.RW, s.Verify, s.Size, s.Loops = "write", true, fakeSize, 2 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSeries(t, c.change, c.samples) })
		})
	}
}

func testSeries(t *testing.T, change func(*Spec), samples int) {
	s := spec("randread")
	s.IODepth = 4
	change(&s)
	reports := 0
	// No operation ends when an interval does.
	d := &fakeDevice{delay: 9_999_900, data: make([]byte, fakeSize)}
	res, err := Run(t.Context(), d, []Spec{s}, Options{Report: func(p *Progress) {
		if !p.Ramping && !p.Verifying {
			reports++
		}
	}})
	if s.RampTime > 0 {
		reports-- // of the short remainder of the interval in which the ramp ends
	}
	if err != nil || len(res.Series) != samples || reports != samples || len(res.Jobs[0].Points) != min(samples, 3) {
		t.Fatalf("%v; %d samples, %d reports, %d points of the job", err, len(res.Series), reports, len(res.Jobs[0].Points))
	}
	at := s.RampTime.Round(time.Second)
	for i, p := range res.Series {
		at += p.Length
		if got := p.IOPS(); p.At != at || got < 398 || got > 402 || p.Bandwidth() != 4096*got ||
			p.P50 < 9_900_000 || p.P50 > 10_100_000 || p.P99 != p.P50 {
			t.Errorf("sample %d: %v until %v, %v operations a second, %v bytes, p50 %d", i, p.Length, p.At, got, p.Bandwidth(), p.P50)
		}
	}
}

// The latencies of a sample are those of its interval.
func TestSeriesLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := spec("randread")
		s.Runtime, s.IODepth = 2*time.Second, 1
		d := &fakeDevice{}
		d.seen = func(*IO) {
			d.delay = 5 * time.Millisecond
			if time.Since(began) >= time.Second {
				d.delay = 20 * time.Millisecond
			}
		}
		res, err := Run(t.Context(), d, []Spec{s}, Options{})
		if err != nil || len(res.Series) != 2 {
			t.Fatal(err, res)
		}
		for i, want := range []float64{5e6, 20e6} {
			if p := res.Series[i]; float64(p.P50) < want*0.99 || float64(p.P50) > want*1.01 || float64(p.P99) > want*1.01 {
				t.Errorf("sample %d: p50 %d, p99 %d, want %v", i, p.P50, p.P99, want)
			}
		}
	})
}

func TestProgress(t *testing.T) { synctest.Test(t, testProgress) }

func testProgress(t *testing.T) {
	s := spec("randread")
	s.Runtime, s.RampTime = 200*time.Millisecond, 50*time.Millisecond
	var all []Progress
	o := Options{Interval: 10 * time.Millisecond, Report: func(p *Progress) { all = append(all, *p) }}
	if _, err := Run(context.Background(), &fakeDevice{delay: 50 * time.Microsecond}, []Spec{s}, o); err != nil {
		t.Fatal(err)
	}
	if !all[0].Ramping || all[0].Ops[Read].IOs != 0 {
		t.Errorf("the ramp is not told: %v", all[0].Elapsed)
	}
	i := slices.IndexFunc(all, func(p Progress) bool { return !p.Ramping })
	if i < 0 || i == len(all)-1 {
		t.Fatalf("%d reports, none of the measuring", len(all))
	}
	p := all[i+1] // the first of a whole interval
	if p.Elapsed <= 0 || p.Elapsed+p.Left != s.Runtime || p.Last.IOPS() <= 0 || p.Last.P99 <= 0 || p.Ops[Read].Latency.Count() == 0 {
		t.Errorf("after %v, %v left, %+v", p.Elapsed, p.Left, p.Last)
	}
}

// The time left of a job that is limited by operations is reported as for one limited by bytes.
func TestLeft(t *testing.T) { synctest.Test(t, testLeft) }

func testLeft(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"operations":         func(s *Spec) { s.NumberIOs = 100 },
		"bytes":              func(s *Spec) { s.IOSize = 100 << 12 },
		"operations or time": func(s *Spec) { s.NumberIOs, s.Runtime = 100, time.Hour },
		"time or operations": func(s *Spec) { s.NumberIOs, s.Runtime = 1000, 10*time.Second },
		"trims and writes":   func(s *Spec) { s.RW, s.NumberIOs = "trimwrite", 50 },
	} {
		s := spec("randread")
		s.IODepth, s.NumJobs = 1, 2
		change(&s)
		var all []Progress
		o := Options{Interval: 500 * time.Millisecond, Report: func(p *Progress) { all = append(all, *p) }}
		if _, err := Run(context.Background(), &fakeDevice{delay: 100 * time.Millisecond}, []Spec{s}, o); err != nil {
			t.Fatal(err)
		}
		if len(all) < 10 {
			t.Fatalf("%d reports in ten seconds", len(all))
		}
		if p := all[9]; p.Left < 4500*time.Millisecond || p.Left > 5500*time.Millisecond {
			t.Errorf("%s: %v left after %v of 10 s", name, p.Left, p.Elapsed)
		}
	}
}

// TestLeftOfHuge: what is left of a range that takes longer than a time.Duration can say isn't known, but when the job's
// time is over is.
func TestLeftOfHuge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec("randread")
		s.IODepth, s.Runtime, s.Loops = 1, 3200*time.Millisecond, 1
		var left []time.Duration
		o := Options{Report: func(p *Progress) { left = append(left, p.Left) }}
		if _, err := Run(t.Context(), hugeDevice{&fakeDevice{delay: 100 * time.Millisecond}}, []Spec{s}, o); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{2200 * time.Millisecond, 1200 * time.Millisecond, 200 * time.Millisecond}; !slices.Equal(left, want) {
			t.Errorf("%v are left after each second, want %v", left, want)
		}
	})
}

// The time left of several jobs is that of the longest one, and isn't known while that of any isn't.
func TestLeftOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long, ramped := spec("read"), spec("read"), spec("read")
		short.Runtime, long.Runtime, ramped.Runtime = 2*time.Second, 20*time.Second, time.Second
		ramped.RampTime = 4500 * time.Millisecond
		for _, specs := range [][]Spec{{short, ramped, long}, {long, ramped, short}} {
			var left []time.Duration
			o := Options{Report: func(p *Progress) { left = append(left, p.Left) }}
			if _, err := Run(t.Context(), &fakeDevice{delay: 20 * time.Millisecond}, specs, o); err != nil {
				t.Fatal(err)
			}
			for i, got := range left {
				want := long.Runtime - time.Duration(i+1)*time.Second
				if i+1 <= 4 {
					want = -1
				}
				if got != want {
					t.Errorf("%v are left after %d s, want %v", got, i+1, want)
				}
			}
		}
	})
}

// TestStatusAsked: what was measured so far is told when somebody asks for it, and not otherwise.
func TestStatusAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec("randread")
		s.IODepth, s.Runtime = 1, 2*time.Second
		asked := make(chan os.Signal)
		want := []time.Duration{500 * time.Millisecond, 1200 * time.Millisecond}
		for _, after := range want {
			time.AfterFunc(after, func() { asked <- os.Interrupt })
		}
		var took []time.Duration
		_, err := Run(t.Context(), &fakeDevice{delay: 9_999_000}, []Spec{s}, Options{StatusAsked: asked, Status: func(r *Result) {
			took = append(took, r.Jobs[0].Duration)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(took, want) {
			t.Errorf("it is told after %v, want %v", took, want)
		}
	})
}

// TestStatusAskedOutside: what was asked before the jobs begin isn't answered, and while they read back, it is what was
// measured of all jobs, those without anything to read back too.
func TestStatusAskedOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan os.Signal, 1)
		asked <- os.Interrupt
		writer, reader := spec("write"), spec("read")
		writer.Verify, writer.IODepth, reader.IODepth, reader.NumberIOs = true, 1, 1, 100
		const each = 10 * time.Millisecond
		time.AfterFunc(300*each, func() { asked <- os.Interrupt }) // of 256 writes and as many reads of them
		var told []uint64
		d := &fakeDevice{delay: each, data: make([]byte, fakeSize)}
		_, err := Run(t.Context(), d, []Spec{reader, writer}, Options{StatusAsked: asked, Status: func(r *Result) {
			for i := range r.Jobs {
				told = append(told, countIOs(&r.Jobs[i].Ops))
			}
		}})
		if err != nil || !slices.Equal(told, []uint64{100, 256}) {
			t.Errorf("%v; operations %v, want 100 and 256, once", err, told)
		}
	})
}

// TestStatus: what was measured so far is told every so often, for each job, while its log goes on; not what precedes
// the measuring, and nothing, unasked, while what was written is read back.
func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Spec)
		took   []float64 // seconds, of both jobs, one after another, at each time
		ios    []uint64
	}{
		"two jobs": {func(*Spec) {}, []float64{1, 1, 2, 1.5, 3, 1.5}, []uint64{100, 100, 200, 150, 300, 150}},
		"a rate": {
			func(s *Spec) { s.RateIOPS[Write] = 50 },
			[]float64{1, 1, 2, 1.5, 3, 1.5}, []uint64{50, 100, 100, 150, 150, 150},
		},
		"a ramp": {
			func(s *Spec) { s.RampTime = 2 * time.Second },
			[]float64{0, 1, 0, 1.5, 1, 1.5, 2, 1.5, 3, 1.5}, []uint64{0, 100, 0, 150, 100, 150, 200, 150, 300, 150},
		},
		"a delay": {
			func(s *Spec) { s.Delay, s.RateIOPS[Write] = 2*time.Second, 50 },
			[]float64{0, 1, 0, 1.5, 1, 1.5, 2, 1.5, 3, 1.5}, []uint64{0, 100, 0, 150, 50, 150, 100, 150, 150, 150},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				long, short := spec("randwrite"), spec("randread")
				long.IODepth, long.Runtime, long.Verify, long.LogEach = 1, 3500*time.Millisecond, true, true
				short.IODepth, short.Runtime = 1, 1500*time.Millisecond
				c.change(&long)
				var took []float64
				var ios []uint64
				// No operation ends when an interval does.
				d := &fakeDevice{delay: 9_999_000, data: make([]byte, fakeSize)}
				res, err := Run(t.Context(), d, []Spec{long, short}, Options{pace: paceByTimer, StatusEach: time.Second, Status: func(r *Result) {
					for i := range r.Jobs {
						j := &r.Jobs[i]
						// The last operation of a job may end after its time.
						took, ios = append(took, j.Duration.Truncate(100*time.Millisecond).Seconds()), append(ios, countIOs(&j.Ops))
						if j.Entries != nil || j.Err != nil || j.Unstarted != 0 || j.Ops[Write].Latency.Count() != j.Ops[Write].IOs {
							t.Errorf("%+v", j)
						}
					}
				}})
				if err != nil || !slices.Equal(took, c.took) || len(ios) != len(c.ios) {
					t.Fatalf("%v; lengths %v, want %v", err, took, c.took)
				}
				for i, n := range ios {
					if n < c.ios[i] || n > c.ios[i]+1 {
						t.Errorf("operations %v, want %v", ios, c.ios)
						break
					}
				}
				j := &res.Jobs[0]
				entries := 0
				for _, e := range j.Entries {
					entries += len(e)
				}
				if entries != int(j.Ops[Write].IOs) || j.Verified == 0 || j.Duration < long.Runtime {
					t.Errorf("%d lines of the log, %d operations in %v", entries, j.Ops[Write].IOs, j.Duration)
				}
			})
		})
	}
}
