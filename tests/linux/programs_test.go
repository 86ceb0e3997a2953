package linux

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

const testNQN = "nqn.2026-11.io.nvme-anywhere:linux"

// server is a running nvmetgt.
type server struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	killed bool
}

// serve starts nvmetgt on the lab's network, both transports, IPv4 and IPv6, and waits until it
// serves. It ends with the test, which fails if it doesn't end cleanly.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	args = append([]string{"serve", "--nqn", testNQN}, args...)
	for _, transport := range []string{"rdma", "tcp"} {
		args = append(args, "--listen", transport+"://"+lab.HostAddr.String()+":4420",
			"--listen", transport+"://["+lab.HostAddr6.String()+"]:4420")
	}
	s := &server{cmd: exec.Command(filepath.Join(binDir, "nvmetgt"), args...)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") {
				ready <- true
			}
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("nvmetgt ended before it was ready")
		}
	case <-time.After(time.Minute):
		t.Fatal("nvmetgt was not ready within a minute")
	}
	return s
}

// kill is kill -9.
func (s *server) kill() {
	s.killed = true
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// stop ends the program as an operator does, if kill didn't.
func (s *server) stop(t testing.TB) {
	if !s.killed {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
		err := s.cmd.Wait()
		kill.Stop()
		if err != nil {
			t.Errorf("nvmetgt after SIGTERM: %v", err)
		}
	}
	if t.Failed() {
		t.Logf("nvmetgt said:\n%s", s.stderr.String())
	}
}

// nvmeinit runs it to its end and returns what it wrote and its exit code.
func nvmeinit(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "nvmeinit"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
