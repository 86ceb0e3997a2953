package tcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
)

// lingerTime is how long an ending connection waits for the peer to take the last PDUs.
const lingerTime = time.Second

// linger waits, for a limited time, until the peer has closed its side too. Closing a socket with
// unread data would reset the connection, and discard the terminate request.
func linger(c socket.Conn) {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	var discarded [1]unix.Iovec
	setIov(&discarded[0], make([]byte, chunkSize))
	for {
		var n int
		var errno unix.Errno
		err := c.WhenReadable(func() bool { // once: only WhenReadable checks the deadline
			n, _, errno = c.Recv(discarded[:], false)
			return errno != unix.EAGAIN
		})
		if err != nil || n == 0 && errno != unix.EINTR {
			return
		}
	}
}

// abort closes a host's connection by a reset, so that the system sends nothing of what it still holds, and the
// controller knows that nobody waits for the commands that it has received (targetConn.arrived). Those commands have
// failed for their issuers, who may send them again on another connection, and write other data afterwards. If nothing
// is left to discard, the FIN before the reset says that the connection was closed rather than lost.
func abort(c socket.Conn) {
	_ = c.CloseWrite()
	_ = c.Abort()
}
