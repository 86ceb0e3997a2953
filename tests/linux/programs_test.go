package linux

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

const testNQN = "nqn.2026-11.io.nvme-anywhere:linux"

// transports are those with which everything is tested.
var transports = []string{"rdma", "tcp"}

// hostAddr is where nvmetgt listens, in addition to IPv6.
var hostAddr = lab.HostAddr.String()

// server is nvmetgt, which may be killed and restarted.
type server struct {
	nqn    string
	args   []string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	killed bool
}

// serve starts nvmetgt on the lab's network, both transports, IPv4 and IPv6, and waits until it
// serves. It ends with the test, which fails if it doesn't end cleanly.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	return serveOn(t, transports, testNQN, args...)
}

// serveOn is serve for other transports, and another name of the subsystem.
func serveOn(t testing.TB, transports []string, nqn string, args ...string) *server {
	t.Helper()
	s := &server{nqn: nqn, args: append([]string{"serve", "--nqn", nqn}, args...)}
	for _, transport := range transports {
		s.args = append(s.args, "--listen", transport+"://"+hostAddr+":4420",
			"--listen", transport+"://["+lab.HostAddr6.String()+"]:4420")
	}
	t.Cleanup(func() { s.stop(t) })
	s.start(t)
	return s
}

// start runs the program.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.cmd, s.killed = exec.Command(filepath.Join(binDir, "nvmetgt"), s.args...), true // until it runs
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.killed = false
	if err := waitFor(out, "ready"); err != nil {
		t.Fatalf("nvmetgt: %v", err)
	}
}

// waitFor waits for a line of a program's output that begins with text, and reads the rest of the output, so that the
// program can go on writing.
func waitFor(out io.Reader, text string) error {
	result := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), text) {
				result <- nil
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
		result <- fmt.Errorf("it ended before a line with %q", text)
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("no line with %q within a minute", text)
	}
}

// kill is kill -9.
func (s *server) kill() {
	s.killed = true
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// stop ends the program as an operator does, unless kill did.
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

// nvmeinit runs it to its end and returns its output and its exit code.
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

// hold connects nvmeinit, from an address that no other program uses, and returns a function that disconnects it.
func hold(t testing.TB, transport, addr, from string) (end func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir, "nvmeinit"), "connect", "--hold",
		"-t", transport, "-a", addr, "-n", testNQN, "-w", from)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait() // an interrupt is no success
	}
	if err := waitFor(out, "connected to"); err != nil {
		end()
		t.Fatalf("nvmeinit connect --hold: %v: %s", err, stderr.String())
	}
	return end
}
