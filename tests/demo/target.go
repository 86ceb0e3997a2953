package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is a running nvmetgt.
type target struct {
	cmd  *exec.Cmd
	addr string
	log  string        // path of its output
	done chan struct{} // closed when it has ended
	err  error         // of its end
}

const nqn = "nqn.2026-11.io.nvme-anywhere:demo"

// volumes are the namespaces of the demo, in the order of their NSID.
var volumes = []string{"file", "pmem"}

// startTarget starts nvmetgt on a loopback address of its own, so that the demo disturbs no other program, and waits
// until it serves.
func startTarget(ctx context.Context, bin, dir string) (*target, error) {
	t := &target{
		addr: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(200), rand.IntN(256), 1+rand.IntN(250)),
		log:  filepath.Join(dir, "nvmetgt.log"),
		done: make(chan struct{}),
	}
	log, err := os.Create(t.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"serve", "--nqn", nqn,
		"--volume", filepath.Join(dir, "disk.img"), "--volume", "pmem:" + filepath.Join(dir, "pmem.img"),
		"--size", strconv.Itoa(volumeSize),
		"--listen", "rdma://" + t.addr + ":4420", "--listen", "tcp://" + t.addr + ":4420"}
	step("nvmetgt %s", strings.Join(args, " "))
	t.cmd = exec.CommandContext(ctx, filepath.Join(bin, "nvmetgt"), args...)
	t.cmd.Cancel = func() error { return t.cmd.Process.Signal(syscall.SIGTERM) }
	t.cmd.Stderr = log
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start nvmetgt: %w", err)
	}
	ready := make(chan struct{})
	go t.follow(bufio.NewScanner(out), ready)
	select {
	case <-ready:
		return t, nil
	case <-t.done:
	case <-time.After(10 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.done
	}
	said, _ := os.ReadFile(t.log)
	return nil, fmt.Errorf("nvmetgt did not start: %w\n%s", t.err, said)
}

// follow shows nvmetgt's output, closes ready at the line that says that it serves, and waits for its end.
func (t *target) follow(lines *bufio.Scanner, ready chan struct{}) {
	open := true
	for lines.Scan() {
		fmt.Println("   " + lines.Text())
		if open && strings.HasPrefix(lines.Text(), "ready") {
			open = false
			close(ready)
		}
	}
	t.err = t.cmd.Wait()
	close(t.done)
}

// stop ends nvmetgt as an operator would; it must end cleanly.
func (t *target) stop() error {
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-t.done:
	case <-time.After(10 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.done
		return fmt.Errorf("nvmetgt did not stop within 10 s of SIGTERM")
	}
	if t.err != nil {
		said, _ := os.ReadFile(t.log)
		return fmt.Errorf("nvmetgt ended with %w\n%s", t.err, said)
	}
	return nil
}

// clockTick is the unit of processor times in /proc: 100 a second on every Linux.
const clockTick = 10 * time.Millisecond

// cpu returns the processor time that nvmetgt has used (proc_pid_stat(5), fields utime and stime).
func (t *target) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * clockTick
}
