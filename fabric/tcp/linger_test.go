package tcp

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

// torrent is a connection whose peer sends without a pause, so that Recv never returns EAGAIN.
type torrent struct {
	socket.Conn
	until    time.Time
	deadline time.Time
}

func (*torrent) CloseWrite() error { return nil }

func (c *torrent) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *torrent) WhenReadable(f func() bool) error {
	for time.Now().Before(c.deadline) {
		if f() {
			return nil
		}
	}
	return os.ErrDeadlineExceeded
}

func (c *torrent) Recv([]unix.Iovec, bool) (n, left int, errno unix.Errno) {
	if time.Now().After(c.until) {
		return 0, 0, 0
	}
	time.Sleep(time.Millisecond)
	return 1, 1, 0
}

// TestLingerIsLimited: a peer that is told of its fault, and goes on sending without a pause, doesn't keep its connection
// for longer than one that is silent.
func TestLingerIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		linger(&torrent{until: began.Add(time.Hour)})
		if took := time.Since(began); took > lingerTime {
			t.Errorf("it took %v, want %v", took, lingerTime)
		}
	})
}
