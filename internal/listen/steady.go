package listen

import (
	"errors"
	"log"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How long a server waits after it couldn't accept: twice as long each time, up to a limit.
const (
	steadyPause    = 50 * time.Millisecond
	steadyMaxPause = time.Second
)

// Steady returns l for a server of net/http, which ends for good at an error of Accept that it doesn't know to pass.
// But nearly all do: the system is short of something, or tells what became of a connection before it was accepted
// (accept(2)). Steady says each of the two once, until it can accept again, and tries again after a while. What never
// passes is that l is closed, or that its descriptor is no longer a socket that listens.
func Steady(l net.Listener) net.Listener { return &steady{Listener: l, closed: make(chan struct{})} }

type steady struct {
	net.Listener
	close  sync.Once
	closed chan struct{}
}

func (s *steady) Accept() (net.Conn, error) {
	var saidShort, saidOther bool
	for pause := steadyPause; ; pause = min(2*pause, steadyMaxPause) {
		c, err := s.Listener.Accept()
		if err == nil || final(err) {
			return c, err
		}
		switch short := shortage(err); {
		case short && !saidShort:
			log.Printf("%v; clients wait until that has passed", err)
			saidShort = true
		case !short && !saidOther:
			log.Print(err)
			saidOther = true
		}
		select {
		case <-time.After(pause):
		case <-s.closed:
		}
	}
}

// Close also ends the wait of an Accept.
func (s *steady) Close() error {
	s.close.Do(func() { close(s.closed) })
	return s.Listener.Close()
}

func final(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOTSOCK)
}

// shortage reports whether an error is of whatever connects, and not of one connection.
func shortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) || Unwatched(err)
}
