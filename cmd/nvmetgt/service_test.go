package main

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// A target doesn't wait for a supervisor that no longer receives what it is told.
func TestSupervisorStalls(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	t.Setenv("NOTIFY_SOCKET", at.Name)
	supervisor, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer supervisor.Close()
	fillSocket(t, at)
	said := make(chan struct{})
	go func() {
		new(service).stopping(time.Second)
		close(said)
	}()
	if _, ok := soon.Receive(said); !ok {
		t.Error("it waits for the supervisor")
	}
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
