package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// target is a running nvmetgt.
type target struct {
	*process.Process
	addr string
}

const nqn = "nqn.2026-11.io.nvme-anywhere:demo"

// volumes are the namespaces of the demo, in the order of their NSID.
var volumes = []string{"file", "pmem"}

// startTarget starts nvmetgt on a loopback address of its own, and waits until it serves.
func startTarget(bin, dir string) (*target, error) {
	addr := process.LoopbackAddr()
	args := []string{"serve", "--nqn", nqn,
		"--volume", filepath.Join(dir, "disk.img"), "--volume", "pmem:" + filepath.Join(dir, "pmem.img"),
		"--size", strconv.Itoa(volumeSize),
		"--listen", "rdma://" + addr + ":4420", "--listen", "tcp://" + addr + ":4420"}
	step("nvmetgt %s", strings.Join(args, " "))
	p, err := process.Serve(exec.Command(filepath.Join(bin, "nvmetgt"), args...), func(line string) { fmt.Println("   " + line) })
	return &target{p, addr}, err
}
