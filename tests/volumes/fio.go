package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
)

// fio measures the same with fio: requests a second.
func (w *work) fio(program string) (float64, error) {
	rw := "randread"
	if w.write {
		rw = "randwrite"
	}
	args := []string{
		"--name=volumes", "--filename=" + w.file, "--rw=" + rw, "--bs=" + strconv.Itoa(w.bs),
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
	type side struct {
		IOPS float64 `json:"iops"`
	}
	var result struct {
		Jobs []struct{ Read, Write side }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return 0, fmt.Errorf("fio's output isn't understood: %w", err)
	}
	if len(result.Jobs) != 1 {
		return 0, fmt.Errorf("fio reports %d jobs, not one", len(result.Jobs))
	}
	if w.write {
		return result.Jobs[0].Write.IOPS, nil
	}
	return result.Jobs[0].Read.IOPS, nil
}
