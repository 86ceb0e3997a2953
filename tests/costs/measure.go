package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// rampTime is how long a load runs before it is measured.
const rampTime = 200 * time.Millisecond

// sample is what a load cost.
type sample struct {
	iops         float64
	host, target figures // per I/O
}

// cpuName is the processor time of a program, in seconds.
const cpuName = "process_cpu_seconds_total"

// cpu returns the processor time of an I/O, in µs, on each side.
func (s sample) cpu() (host, target float64) { return s.host[cpuName] * 1e6, s.target[cpuName] * 1e6 }

// measure runs one load against a target that is running.
func (p *plan) measure(t *program, transport string, args ...string) (s sample, err error) {
	h, err := p.startBench(t, transport, args...)
	if err != nil {
		return s, err
	}
	defer h.Stop()
	if err := h.busy(); err != nil {
		return s, err
	}
	time.Sleep(rampTime)
	began := time.Now()
	var before, after [2]figures
	if before, err = both(h, t); err != nil {
		return s, err
	}
	time.Sleep(p.time)
	took := time.Since(began)
	if after, err = both(h, t); err != nil {
		return s, err
	}
	s.host, s.target = after[0].since(before[0]), after[1].since(before[1])
	n := s.target[commandsName]
	if n == 0 {
		return s, fmt.Errorf("%s: no I/O in %v", h.Cmd, p.time)
	}
	s.host.divide(n)
	s.target.divide(n)
	s.iops = n / took.Seconds()
	return s, nil
}

// commandsName is the figure that counts I/O for both sides. The host publishes its own counts only now and then.
const commandsName = "nvmeof_target_commands_total"

// busy waits until I/O has begun.
func (r *program) busy() error {
	for began := time.Now(); time.Since(began) < process.Patience; time.Sleep(10 * time.Millisecond) {
		f, err := r.figures()
		if err != nil {
			return errors.Join(err, r.Stop())
		}
		if f["nvmeof_bench_ios_total"] > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s: no I/O after %v", r.Cmd, process.Patience)
}

func both(a, b *program) (f [2]figures, err error) {
	if f[0], err = a.figures(); err == nil {
		f[1], err = b.figures()
	}
	return f, err
}

// variant is one line of a table.
type variant struct {
	name      string
	transport string
	target    *program
	args      []string
	run       func() (sample, error) // if it isn't a load of ours
	samples   []sample
}

// inTurns measures all variants in rounds, each in random order.
func (p *plan) inTurns(all []*variant) error {
	for range p.rounds {
		for _, i := range rand.Perm(len(all)) {
			v := all[i]
			run := v.run
			if run == nil {
				run = func() (sample, error) { return p.measure(v.target, v.transport, v.args...) }
			}
			s, err := run()
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			v.samples = append(v.samples, s)
		}
	}
	return nil
}

// median returns the median of what f returns for the samples.
func (v *variant) median(f func(sample) float64) float64 {
	all := make([]float64, len(v.samples))
	for i, s := range v.samples {
		all[i] = f(s)
	}
	return median(all)
}

func (v *variant) iops() float64 { return v.median(func(s sample) float64 { return s.iops }) }

func (v *variant) hostCPU() float64 {
	return v.median(func(s sample) float64 { h, _ := s.cpu(); return h })
}

func (v *variant) targetCPU() float64 {
	return v.median(func(s sample) float64 { _, t := s.cpu(); return t })
}
