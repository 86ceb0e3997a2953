package listen

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Unwatched reports whether an error, of package net, is that the system watches no more sockets for this user
// (epoll_ctl(2)): it is ENOSPC, without the call that an ENOSPC of another one, such as bind, comes with.
func Unwatched(err error) bool {
	var op *net.OpError
	var call *os.SyscallError
	return errors.As(err, &op) && errors.Is(op.Err, unix.ENOSPC) && !errors.As(op.Err, &call)
}
