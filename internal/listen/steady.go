package listen

import (
	"errors"
	"net"
)

// Steady returns l for a server of net/http, which ends for good at an error of Accept that it doesn't know to pass. But
// all do, except that l is closed: the system is short of something, or tells what became of a connection before it was
// accepted (accept(2)). The server then says so, and tries again after a while.
func Steady(l net.Listener) net.Listener { return steady{l} }

type steady struct{ net.Listener }

func (s steady) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		err = passing{err}
	}
	return c, err
}

// passing is a net.Error for which net/http tries again.
type passing struct{ error }

func (passing) Temporary() bool { return true }
func (passing) Timeout() bool   { return false }
func (e passing) Unwrap() error { return e.error }
