package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// transports are compared side by side.
var transports = []string{"rdma", "tcp"}

// demo is the state that the steps share.
type demo struct {
	bin, dir string
	target   *target
	archive  string
	size     int64
	sum      string
	runtime  time.Duration
	results  map[string]map[string]figures // by work load, by transport
}

// nvmeinit runs one command of nvmeinit against the target, and returns what it printed.
func (d *demo) nvmeinit(ctx context.Context, transport, verb string, args ...string) ([]byte, error) {
	args = append([]string{verb, "-t", transport, "-a", d.target.addr, "-s", "4420"}, args...)
	if verb != "discover" {
		args = append(args, "-n", nqn)
	}
	return process.Output(exec.CommandContext(ctx, filepath.Join(d.bin, "nvmeinit"), args...))
}

// use finds the target over a transport, and copies the file to each volume and back.
func (d *demo) use(ctx context.Context, transport string) error {
	step("Over %s: discover, connect, copy the file to each volume and back", strings.ToUpper(transport))
	for _, verb := range []string{"discover", "connect"} {
		out, err := d.nvmeinit(ctx, transport, verb)
		if err != nil {
			return err
		}
		fmt.Print(indent(out))
	}
	for i, volume := range volumes {
		if err := d.copyAndCompare(ctx, transport, i+1, volume); err != nil {
			return fmt.Errorf("%s volume: %w", volume, err)
		}
	}
	return nil
}

func (d *demo) copyAndCompare(ctx context.Context, transport string, nsid int, volume string) error {
	back := filepath.Join(d.dir, fmt.Sprintf("back-%s-%s.tar", transport, volume))
	ns := []string{"--nsid", strconv.Itoa(nsid), "--length", strconv.FormatInt(d.size, 10)}
	if _, err := d.nvmeinit(ctx, transport, "write", append(ns, "--input", d.archive, "--verify")...); err != nil {
		return err
	}
	if _, err := d.nvmeinit(ctx, transport, "read", append(ns, "--output", back)...); err != nil {
		return err
	}
	sum, err := sumFile(back, d.size)
	if err != nil {
		return err
	}
	if sum != d.sum {
		return fmt.Errorf("what came back has SHA-256 %s, what was written %s", sum, d.sum)
	}
	fmt.Printf("   %-4s volume: written, read back, SHA-256 %.16s… as it was\n", volume, sum)
	return nil
}

func indent(b []byte) string {
	s := strings.TrimRight(string(b), "\n")
	return "   " + strings.ReplaceAll(s, "\n", "\n   ") + "\n"
}

// fioJob is the part of fio's JSON that the table shows.
type fioJob struct {
	Read  fioSide `json:"read"`
	Write fioSide `json:"write"`
	User  float64 `json:"usr_cpu"` // percent
	Sys   float64 `json:"sys_cpu"`
}

type fioSide struct {
	IOs       uint64  `json:"total_ios"`
	IOPS      float64 `json:"iops"`
	Bandwidth float64 `json:"bw_bytes"`
	Runtime   float64 `json:"runtime"` // ms
	Latency   struct {
		Percentile map[string]float64 `json:"percentile"` // ns
	} `json:"clat_ns"`
}

func parseBench(b []byte) (fioJob, error) {
	var out struct {
		Jobs []fioJob `json:"jobs"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return fioJob{}, fmt.Errorf("bench printed no JSON: %w", err)
	}
	if len(out.Jobs) != 1 {
		return fioJob{}, fmt.Errorf("bench reported %d jobs, want 1", len(out.Jobs))
	}
	return out.Jobs[0], nil
}
