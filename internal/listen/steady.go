package listen

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Steady returns l for a server of net/http, which ends for good at an error of Accept that it doesn't know to pass. But
// nearly all do: the system is short of something, or tells what became of a connection before it was accepted
// (accept(2)). The server then says so, and tries again after a while. What never passes is that l is closed, or that
// its descriptor is no longer a socket that listens.
func Steady(l net.Listener) net.Listener { return steady{l} }

type steady struct{ net.Listener }

func (s steady) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil && !final(err) {
		err = passing{err}
	}
	return c, err
}

func final(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOTSOCK)
}

// passing is a net.Error for which net/http tries again.
type passing struct{ error }

func (passing) Temporary() bool { return true }
func (passing) Timeout() bool   { return false }
func (e passing) Unwrap() error { return e.error }
