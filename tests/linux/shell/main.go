// Command shell boots one lab machine and opens a shell in it, on this terminal. The command after --, if there is one,
// runs on the host's side of its network:
//
//	go run ./tests/linux/shell -kernel 6.12 -- bin/nvmetgt serve -v mem:1GiB -l rdma://198.18.0.1:4420 -l tcp://198.18.0.1:4420
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

func main() {
	version := flag.String("kernel", "6.12", "Debian's kernel, of those that apt has")
	mtu := flag.Int("mtu", 1500, "`bytes` of an IP packet")
	flag.Parse()
	if err := run(*version, *mtu, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start runs a program alongside the machine; it writes to the terminal, and so does its end if it isn't stopped.
func start(line []string) (stop func(), err error) {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var stopped atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.Wait(); !stopped.Load() {
			fmt.Fprintf(os.Stderr, "\r\n%s has ended: %v\r\n", line[0], err)
		}
	}()
	return func() {
		stopped.Store(true)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	}, nil
}

func run(version string, mtu int, beside []string) error {
	ctx := context.Background()
	_, remove, err := lab.WorkDir()
	if err != nil {
		return err
	}
	defer remove()
	images, err := lab.Prepare(ctx, version)
	if err != nil {
		return err
	}
	if !lab.Isolated() {
		if code := lab.Isolate(); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	}
	if err := lab.Network(ctx, mtu); err != nil {
		return err
	}
	if len(beside) > 0 {
		stop, err := start(beside)
		if err != nil {
			return err
		}
		defer stop()
	}
	m, err := lab.Boot(ctx, lab.Config{Name: "lab", Number: 2, MTU: mtu, Image: images[version], Shell: true})
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Wait()
}
