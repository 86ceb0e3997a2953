package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
)

// besideFIO fills a table with the volume and fio, turn by turn.
func (p *plan) besideFIO(t table.Writer) (s score, err error) {
	fio, err := exec.LookPath("fio")
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes: without fio there is nothing to compare with: apt install fio")
	}
	t.AppendHeader(table.Row{"path", "pattern", "block", "depth", "volume/s", "fio/s", "ratio", ""})
	return s, p.each(func(w work) error {
		var ours, theirs []float64
		for range p.rounds {
			n, err := w.volume()
			if err != nil {
				return err
			}
			ours = append(ours, n)
			if fio == "" {
				continue
			}
			if n, err = w.fio(fio); err != nil {
				return err
			}
			theirs = append(theirs, n)
		}
		row := append(w.row(), fmt.Sprintf("%.0f", median(ours)))
		if fio != "" {
			row = append(row, fmt.Sprintf("%.0f", median(theirs)))
			row = append(row, s.judge(median(ours)/median(theirs))...)
		}
		t.AppendRow(row)
		return nil
	})
}

// fio measures the same with fio: requests a second.
func (w *work) fio(program string) (float64, error) {
	args := []string{
		"--name=volumes", "--filename=" + w.file, "--rw=" + w.pattern(), "--bs=" + strconv.Itoa(w.bs),
		"--size=" + strconv.FormatInt(w.size, 10), "--ioengine=" + w.path.engine,
		fmt.Sprintf("--runtime=%dms", w.runtime.Milliseconds()), "--time_based",
		"--norandommap", "--randrepeat=0", "--invalidate=0", "--thread", "--group_reporting", "--output-format=json",
	}
	if w.path.direct {
		args = append(args, "--direct=1")
	}
	if w.path.engine == "psync" {
		args = append(args, "--numjobs="+strconv.Itoa(w.depth))
	} else {
		args = append(args, "--iodepth="+strconv.Itoa(w.depth), "--registerfiles=1", "--fixedbufs=1")
	}
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w", err)
	}
	return w.iops(out)
}

// iops reads fio's JSON, which nvmeinit writes too: requests a second.
func (w *work) iops(out []byte) (float64, error) {
	type side struct {
		IOPS float64 `json:"iops"`
	}
	var result struct {
		Jobs []struct{ Read, Write side }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return 0, fmt.Errorf("JSON of a benchmark that isn't understood: %w", err)
	}
	if len(result.Jobs) != 1 {
		return 0, fmt.Errorf("%d jobs are reported, not one", len(result.Jobs))
	}
	if w.write {
		return result.Jobs[0].Write.IOPS, nil
	}
	return result.Jobs[0].Read.IOPS, nil
}
