package main

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// supervise makes a service manager's socket, to which the target says how it is.
func supervise(t *testing.T) *net.UnixConn {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	t.Setenv("NOTIFY_SOCKET", at.Name)
	c, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A target doesn't wait for a supervisor that no longer receives what it is told.
func TestSupervisorStalls(t *testing.T) {
	supervisor := supervise(t)
	fillSocket(t, supervisor.LocalAddr().(*net.UnixAddr))
	said := make(chan struct{})
	go func() {
		new(service).stopping(time.Second)
		close(said)
	}()
	if _, ok := soon.Receive(said); !ok {
		t.Error("it waits for the supervisor")
	}
}

// TestWatchdogWithoutDescriptors: hosts that use up the target's descriptors don't have systemd's watchdog end it; and a
// supervisor that makes its socket anew is told on.
func TestWatchdogWithoutDescriptors(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	supervisor := supervise(t)
	t.Setenv("WATCHDOG_USEC", "100000")
	told := func(what string) {
		t.Helper()
		b := make([]byte, 256)
		_ = supervisor.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := supervisor.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), what) {
			t.Errorf("it is told %q, %v, want %s", b[:n], err, what)
		}
	}
	var s service
	s.ready("", func() {})
	told("READY=1")
	told("WATCHDOG=1")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // more than can have been sent before
		told("WATCHDOG=1")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	supervisor.Close()
	supervisor = supervise(t)
	told("WATCHDOG=1")
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// TestSocketKept: what the system refuses to send, as for lack of memory, or here because it is too long, doesn't cost
// the socket, for which there may be no descriptor again.
func TestSocketKept(t *testing.T) {
	supervisor := supervise(t)
	var s service
	defer s.close()
	s.say("first")
	kept := s.to
	s.say(strings.Repeat("x", 64<<20))
	if s.to != kept || kept == nil {
		t.Errorf("the socket was %p and is %p", kept, s.to)
	}
	s.say("last")
	for _, want := range []string{"first", "last"} {
		b := make([]byte, 256)
		_ = supervisor.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := supervisor.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("it is told %q, %v, want %s", b[:n], err, want)
		}
	}
}

// TestStatusAfterChange: systemd shows what is exported since the last change, not when the target started; or, until
// hosts are taken again, that it drains.
func TestStatusAfterChange(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}, freeEndpoint(t))
	defer s.close()
	supervisor := supervise(t)
	shows := func(want string) {
		t.Helper()
		b := make([]byte, 256)
		_ = supervisor.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := supervisor.Read(b); err != nil || string(b[:n]) != "STATUS="+want {
			t.Errorf("it is told %q, %v, want %s", b[:n], err, want)
		}
	}
	export := func(nqns ...string) {
		t.Helper()
		next := s.cfg.Clone()
		next.Subsystems = nil
		for _, nqn := range nqns {
			next.Subsystems = append(next.Subsystems, config.Subsystem{NQN: nqn})
		}
		if err := s.Apply(next, ""); err != nil {
			t.Fatal(err)
		}
	}
	export("nqn.2026-11.org.example:a", "nqn.2026-11.org.example:b")
	shows("2 subsystems")
	export("nqn.2026-11.org.example:b")
	shows("nqn.2026-11.org.example:b")
	if err := s.Drain(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	shows("draining")
	export("nqn.2026-11.org.example:c")
	s.Resume()
	shows("nqn.2026-11.org.example:c")
}

// fillSocket sends messages to a socket until it takes no more. What a sender may have under way can be less than what
// the socket takes, so there are several.
func fillSocket(t *testing.T, to *net.UnixAddr) {
	t.Helper()
	for sent := true; sent; {
		sent = sendAll(t, to)
	}
}

// sendAll sends messages from a socket of its own until it can't send more, and reports whether it could send any. They
// stay when their sender is gone.
func sendAll(t *testing.T, to *net.UnixAddr) (sent bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		switch err := unix.Sendto(fd, []byte("STATUS=busy"), 0, &unix.SockaddrUnix{Name: to.Name}); {
		case errors.Is(err, unix.EAGAIN):
			return sent
		case err != nil:
			t.Fatal(err)
		}
		sent = true
	}
}
