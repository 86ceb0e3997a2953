package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// speed compares RDMA, with and without ICRC, through sockets and through shared memory, with NVMe/TCP, with and
// without digests, and with bare sockets that move the same packets, with and without CRC.
func speed(p *plan) error {
	if err := p.buildCeiling(); err != nil {
		return err
	}
	targets, err := p.targetsOfWays()
	if err != nil {
		return err
	}
	defer stopAll(targets)
	rates := newTable("IOPS", "load", "RDMA", "no ICRC", "local memory", "and no ICRC", "TCP", "TCP, digests",
		"bare sockets, CRC", "bare sockets")
	ratios := newTable("Ratios within a round: median (range)", "load", "RDMA / TCP", "no ICRC / TCP", "local memory / TCP",
		"and no ICRC / TCP", "RDMA / TCP with digests", "local memory / TCP with digests", "RDMA / bare with CRC", "no ICRC / bare")
	for _, load := range loads {
		all := paths(load, targets)
		for _, v := range all {
			v.run = func() (sample, error) { return p.rate(v) }
		}
		if strings.Contains(load, "read") && p.volume == defaultVolume {
			all = append(all, p.ceiling(load, false), p.ceiling(load, true))
		}
		if err := p.inTurns(all); err != nil {
			return fmt.Errorf("%s: %w", load, err)
		}
		rdma, noICRC, memory, memoryNoICRC, tcp, digests := all[0], all[1], all[2], all[3], all[4], all[5]
		rate := table.Row{load}
		ratio := table.Row{load, against(rdma, tcp), against(noICRC, tcp), against(memory, tcp), against(memoryNoICRC, tcp),
			against(rdma, digests), against(memory, digests)}
		for _, v := range all {
			rate = append(rate, fmt.Sprintf("%.0f", v.iops()))
		}
		if sockets := all[len(ways):]; len(sockets) > 0 {
			ratio = append(ratio, against(rdma, sockets[0]), against(noICRC, sockets[1]))
		}
		rates.AppendRow(rate)
		ratios.AppendRow(ratio)
	}
	rates.Render()
	ratios.Render()
	return nil
}

// rate measures a load as its user would. Neither side is queried for its figures meanwhile: at depth 1 that makes the
// kernel put both on one processor for the rest of the measurement.
func (p *plan) rate(v *variant) (s sample, err error) {
	args := slices.Concat(v.target.hosts, []string{filepath.Join(p.bin, "nvmeinit")},
		benchArgs(v.target, v.transport, p.time, v.args), []string{"--ramp_time", rampTime.String()})
	cmd := exec.Command(args[0], args[1:]...)
	out, err := process.Output(cmd)
	if err != nil {
		return s, err
	}
	var results struct {
		Jobs []struct{ Read, Write struct{ IOPS float64 } }
	}
	if err := json.Unmarshal(out, &results); err != nil {
		return s, fmt.Errorf("%s: %w in %q", cmd, err, out)
	}
	if len(results.Jobs) != 1 {
		return s, fmt.Errorf("%s: %d jobs, want one", cmd, len(results.Jobs))
	}
	s.iops = results.Jobs[0].Read.IOPS + results.Jobs[0].Write.IOPS
	return s, nil
}

// ceiling measures a load on bare sockets, whose data comes from as much memory as the volume has, and in the same
// order.
func (p *plan) ceiling(load string, bare bool) *variant {
	f := strings.Fields(load)
	return &variant{name: "bare sockets", run: func() (sample, error) {
		return p.runCeiling("-bs", f[1], "-depth", f[2], fmt.Sprintf("-bare=%t", bare),
			fmt.Sprintf("-random=%t", strings.HasPrefix(f[0], "rand")))
	}}
}

// buildCeiling makes the program that measures bare sockets.
func (p *plan) buildCeiling() error {
	_, err := process.Output(exec.Command("go", "build", "-o", filepath.Join(p.dir, "ceiling"), "./tests/ceiling"))
	return err
}

// runCeiling measures one load with it. Each side's share is half of the processor time that it reports.
func (p *plan) runCeiling(args ...string) (s sample, err error) {
	out, err := process.Output(exec.Command(filepath.Join(p.dir, "ceiling"), append(args, "-json", "-time", p.time.String())...))
	if err != nil {
		return s, err
	}
	var results []struct {
		PerSecond float64 `json:"requests_per_second"`
		CPUMicros float64 `json:"cpu_us_per_request"`
	}
	if err := json.Unmarshal(out, &results); err != nil {
		return s, fmt.Errorf("ceiling: %w in %q", err, out)
	}
	if len(results) != 1 {
		return s, fmt.Errorf("ceiling: %d results, want one", len(results))
	}
	s.iops = results[0].PerSecond
	s.host = figures{cpuName: results[0].CPUMicros / 2e6}
	s.target = s.host
	return s, nil
}

// against returns the ratio of two variants, round by round.
func against(a, b *variant) string {
	all := make([]float64, len(a.samples))
	for i := range all {
		all[i] = a.samples[i].iops / b.samples[i].iops
	}
	slices.Sort(all)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", all[len(all)/2], all[0], all[len(all)-1])
}
