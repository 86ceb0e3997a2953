// Package process runs nvmetgt and nvmeinit for programs that show or measure them.
package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a program may take to begin its work, and to end.
const Patience = 20 * time.Second

// Process is a program that was started.
type Process struct {
	Cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // valid after ended
}

// Start starts a program. It ends with the thread that started it, at the latest.
func Start(cmd *exec.Cmd) (*Process, error) { return start(cmd, func() {}) }

// start calls read, which reads the program's output to its end, in a goroutine.
func start(cmd *exec.Cmd, read func()) (*Process, error) {
	p := &Process{Cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		read()
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Serve starts nvmetgt, and waits until it serves. show gets each line of its output.
func Serve(cmd *exec.Cmd, show func(line string)) (*Process, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	isReady := sync.OnceFunc(func() { close(ready) })
	p, err := start(cmd, func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			show(lines.Text())
			if strings.HasPrefix(lines.Text(), "ready") {
				isReady()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return p, nil
	case <-p.ended:
		err = p.Err()
	case <-time.After(Patience):
		err = p.Stop()
	}
	return nil, errors.Join(fmt.Errorf("%s isn't ready", cmd), err)
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err says how a program that has ended failed, with what it said; nil if it didn't.
func (p *Process) Err() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", p.Cmd, p.err, p.stderr.Bytes())
}

// Stop ends the program as an operator does.
func (p *Process) Stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return p.Err()
	case <-time.After(Patience):
		_ = p.Cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s didn't end within %v of SIGTERM", p.Cmd, Patience)
	}
}

// Output runs a program to its end and returns what it printed. The error has what it said.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, said.Bytes())
	}
	return out, nil
}

// clockTick is the unit of processor times in /proc: 100 a second on every Linux.
const clockTick = 10 * time.Millisecond

// CPU is the processor time that the program has used (proc_pid_stat(5), utime and stime); 0 if it has ended.
func (p *Process) CPU() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if err != nil || len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * clockTick
}

// LoopbackAddr returns a loopback address at random, so that a target there disturbs no other program.
func LoopbackAddr() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(200), rand.IntN(256), 1+rand.IntN(250))
}
