package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// besideFIO fills a table with the volume and fio, measured alternately. The ratio is taken within a turn, since the
// speed of a disk drifts, and which of them begins alternates.
func (p *plan) besideFIO(t table.Writer) (s score, err error) {
	fio, err := exec.LookPath("fio")
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes: without fio there is nothing to compare with: apt install fio")
	}
	t.AppendHeader(table.Row{"path", "pattern", "block", "depth", "volume/s", "fio/s", "ratio", ""})
	return s, p.each(func(w work) error {
		var ours, theirs, ratios []float64
		for round := range p.rounds {
			o, f, err := w.pair(fio, round%2 == 1)
			if err != nil {
				return err
			}
			ours, theirs, ratios = append(ours, o), append(theirs, f), append(ratios, o/f)
		}
		row := append(w.row(), fmt.Sprintf("%.0f", median(ours)))
		if fio != "" {
			row = append(row, fmt.Sprintf("%.0f", median(theirs)))
			row = append(row, s.judge(median(ratios))...)
		}
		t.AppendRow(row)
		return nil
	})
}

// pair measures the volume once, and fio, if it is there.
func (w *work) pair(program string, fioFirst bool) (ours, theirs float64, err error) {
	if fioFirst && program != "" {
		if theirs, err = w.fio(program); err != nil {
			return 0, 0, err
		}
	}
	if ours, err = w.volume(); err != nil {
		return 0, 0, err
	}
	if !fioFirst && program != "" {
		theirs, err = w.fio(program)
	}
	return ours, theirs, err
}

// fio measures the same with fio, in requests a second. With several threads the result is the difference between a run
// and one of half its length: fio adds up what each thread did in a period of its own, and the last of 128 begins about
// a second after the first, so that some have the processors to themselves before that, and the last one has them after
// the others have ended.
func (w *work) fio(program string) (float64, error) {
	once, err := w.runFIO(program, w.runtime)
	if err != nil || !w.threads() {
		return once.IOPS, err
	}
	twice, err := w.runFIO(program, 2*w.runtime)
	return (twice.Requests - once.Requests) / w.runtime.Seconds(), err
}

// threads reports whether fio has a thread for each concurrent request.
func (w *work) threads() bool { return w.path.engine == "psync" && w.depth > 1 }

func (w *work) runFIO(program string, runtime time.Duration) (done, error) {
	if err := w.warm(); err != nil {
		return done{}, err
	}
	args := []string{
		"--name=volumes", "--filename=" + w.file, "--rw=" + w.pattern(), "--bs=" + strconv.Itoa(w.bs),
		"--size=" + strconv.FormatInt(w.size, 10), "--ioengine=" + w.path.engine,
		fmt.Sprintf("--runtime=%dms", runtime.Milliseconds()), "--time_based",
		"--norandommap", "--randrepeat=0", "--invalidate=0", "--thread", "--group_reporting", "--output-format=json",
		"--iomem_align=4096", // as the volume's has to be: the kernel fills lines of the cache that begin elsewhere faster
	}
	if w.path.direct {
		args = append(args, "--direct=1")
	}
	switch w.path.engine {
	case "psync":
		args = append(args, "--numjobs="+strconv.Itoa(w.depth))
	case "io_uring":
		args = append(args, "--iodepth="+strconv.Itoa(w.depth), "--registerfiles=1", "--fixedbufs=1")
	default:
		args = append(args, "--iodepth="+strconv.Itoa(w.depth))
	}
	out, err := process.Output(exec.Command(program, args...))
	if err != nil {
		return done{}, err
	}
	return w.done(out)
}

// done is what a benchmark did.
type done struct {
	IOPS     float64 `json:"iops"`
	Requests float64 `json:"total_ios"`
}

// done parses fio's JSON, which nvmeinit writes too.
func (w *work) done(out []byte) (done, error) {
	var result struct {
		Jobs []struct{ Read, Write done }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return done{}, fmt.Errorf("JSON of a benchmark that isn't understood: %w", err)
	}
	if len(result.Jobs) != 1 {
		return done{}, fmt.Errorf("%d jobs are reported, not one", len(result.Jobs))
	}
	if w.write {
		return result.Jobs[0].Write, nil
	}
	return result.Jobs[0].Read, nil
}
