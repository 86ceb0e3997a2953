package softrnic

import (
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/capture"
)

// Capture is a pcapng file that RNICs, and TCP connections, write to.
type Capture struct{ file *capture.File }

// CreateCapture creates the file, which must not exist unless it is a named pipe, accessible to its owner alone.
func CreateCapture(path, application string) (*Capture, error) {
	f, err := capture.Create(path, application)
	if err != nil {
		return nil, err
	}
	return &Capture{f}, nil
}

// Stream is a tcp.Tap (package fabric/tcp) that records one connection.
type Stream interface {
	Sent(parts [][]byte)
	Received(parts [][]byte, n int)
	Close()
}

// Stream records a TCP connection in the same file, so that one file shows both transports;
// client says that this side opened it.
func (c *Capture) Stream(local, remote netip.AddrPort, client bool) Stream {
	return c.file.Stream(local, remote, client)
}

// Done is closed when nothing is written any more: after Close, or where the file can't be written, as Close says then.
func (c *Capture) Done() <-chan struct{} { return c.file.Done() }

// Close ends the file, and reports packets that could not be written.
func (c *Capture) Close() error {
	err := c.file.Close()
	if n := c.file.Dropped(); n > 0 && err == nil {
		err = fmt.Errorf("capture: %d packets came faster than they could be written and are missing", n)
	}
	return err
}
