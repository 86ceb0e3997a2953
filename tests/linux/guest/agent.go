package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/control"
)

// agent runs the lab's commands.
type agent struct {
	mu      sync.Mutex // guards out and running
	out     *gob.Encoder
	running map[uint64]*exec.Cmd
}

// serveLab serves the control port until the lab goes away.
func serveLab() error {
	port, err := openPort(control.PortName)
	if err != nil {
		return err
	}
	a := &agent{out: gob.NewEncoder(port), running: map[uint64]*exec.Cmd{}}
	if err := a.send(control.Reply{}); err != nil {
		return err
	}
	in := gob.NewDecoder(port)
	for {
		var q control.Request
		if err := in.Decode(&q); err != nil {
			return fmt.Errorf("control port: %w", err)
		}
		if q.Cancel {
			a.cancel(q.ID)
		} else {
			go a.run(q)
		}
	}
}

// openPort opens the virtio-serial port of that name; the kernel numbers them as it likes.
func openPort(name string) (*os.File, error) {
	for range 500 {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, f := range names {
			if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == name {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(f)), os.O_RDWR, 0)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.New("no virtio-serial port " + name)
}

func (a *agent) send(r control.Reply) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Encode(r)
}

// cancel kills a command and what it started.
func (a *agent) cancel(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.running[id]; c != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
}

// run runs one command to its end.
func (a *agent) run(q control.Request) {
	c := exec.Command("/bin/sh", "-c", q.Line)
	c.Dir = "/root"
	c.Stdout = stream(func(b []byte) error { return a.send(control.Reply{ID: q.ID, Stdout: b}) })
	c.Stderr = stream(func(b []byte) error { return a.send(control.Reply{ID: q.ID, Stderr: b}) })
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = time.Second // a daemon may hold the output open
	a.mu.Lock()
	err := c.Start()
	if err == nil {
		a.running[q.ID] = c
	}
	a.mu.Unlock()
	end := control.Reply{ID: q.ID, Ended: true}
	if err != nil {
		end.Code, end.Err = 127, err.Error()
	} else {
		_ = c.Wait()
		end.Code = exitCode(c.ProcessState)
	}
	a.mu.Lock()
	delete(a.running, q.ID)
	a.mu.Unlock()
	_ = a.send(end)
}

// exitCode returns a shell's exit code: 128 plus the signal for a command that a signal ended.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// stream is a writer made of a function.
type stream func([]byte) error

func (s stream) Write(b []byte) (int, error) {
	if err := s(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
