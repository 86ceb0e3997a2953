package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// Namespaces of the target.
const (
	fileNSID = iota + 1
	nullNSID
)

// throughTarget fills a table with the volume by itself, the network by itself, which is a null volume behind the
// target, and the volume behind the target. The latter should take no longer per request than the two together: that is
// the ratio.
func (p *plan) throughTarget(t table.Writer) (s score, err error) {
	t.AppendHeader(table.Row{"path", "pattern", "block", "depth", "over", "volume/s", "network/s", "both/s", "through target/s", "ratio", ""})
	return s, p.each(func(w work) error {
		var volume []float64
		over := make([]turns, len(p.through))
		for range p.rounds {
			n, err := w.volume()
			if err != nil {
				return err
			}
			volume = append(volume, n)
			if err := p.turn(&w, n, over); err != nil {
				return err
			}
		}
		for i, transport := range p.through {
			row := append(w.row(), transport)
			for _, all := range [][]float64{volume, over[i].network, over[i].both, over[i].through} {
				row = append(row, fmt.Sprintf("%.0f", median(all)))
			}
			t.AppendRow(append(row, s.judge(median(over[i].ratio))...))
		}
		return nil
	})
}

// turns are the results over a transport, turn by turn. The ratio is taken within a turn, since the speed of a disk
// drifts.
type turns struct{ network, both, through, ratio []float64 }

func (t *turns) add(volume, network, through float64) {
	both := 1 / (1/volume + 1/network)
	t.network, t.both, t.through = append(t.network, network), append(t.both, both), append(t.through, through)
	t.ratio = append(t.ratio, through/both)
}

// turn starts a target, and measures both of its volumes over each transport.
func (p *plan) turn(w *work, volume float64, over []turns) error {
	addr := process.LoopbackAddr()
	target, err := p.startTarget(w, addr)
	if err != nil {
		return err
	}
	defer target.Stop() // the file is free then
	for i, transport := range p.through {
		network, err := p.bench(w, addr, transport, nullNSID)
		if err != nil {
			return fmt.Errorf("a null volume over %s: %w", transport, err)
		}
		if err := w.warm(); err != nil {
			return err
		}
		through, err := p.bench(w, addr, transport, fileNSID)
		if err != nil {
			return fmt.Errorf("the file over %s: %w", transport, err)
		}
		over[i].add(volume, network, through)
	}
	return nil
}

// startTarget starts nvmetgt at addr, with the file and a null volume.
func (p *plan) startTarget(w *work, addr string) (*process.Process, error) {
	return process.Serve(exec.Command(filepath.Join(p.bin, "nvmetgt"), append(p.looking("serve"), "--log-level", "error",
		"--listen", "rdma://"+addr+":4420", "--listen", "tcp://"+addr+":4420",
		"--io", w.path.name, "--volume", "file:"+w.file, "--volume", "null:"+strconv.FormatInt(w.size, 10))...), func(string) {})
}

// looking returns a program's first arguments, including its flag for -busy-poll.
func (p *plan) looking(command string) []string {
	if p.look < 0 {
		return []string{command}
	}
	return []string{command, "--busy-poll", p.look.String()}
}

// bench measures a namespace with nvmeinit: requests a second.
func (p *plan) bench(w *work, addr, transport string, nsid int) (float64, error) {
	ctx, end := context.WithTimeout(context.Background(), w.runtime+process.Patience)
	defer end()
	program := filepath.Join(p.bin, "nvmeinit")
	args := append(p.looking("bench"), "-t", transport, "-a", addr, "--nsid", strconv.Itoa(nsid),
		"--rw", w.pattern(), "--bs", strconv.Itoa(w.bs), "--iodepth", strconv.Itoa(w.depth), "--size", strconv.FormatInt(w.size, 10),
		"--runtime", fmt.Sprintf("%dms", w.runtime.Milliseconds()), "--ramp_time", "200ms", "--time_based", "--norandommap", "-o", "json")
	out, err := process.Output(exec.CommandContext(ctx, program, args...))
	if err != nil {
		return 0, err
	}
	d, err := w.done(out)
	return d.IOPS, err
}
