package cm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Causes of an OpError, in addition to those of verbs.
var (
	// ErrTimeout says that the peer answered none of the attempts.
	ErrTimeout = errors.New("no answer")
	// ErrUnreachable says that the device can't reach the address.
	ErrUnreachable = errors.New("address not reachable from this device")
	// ErrAddrInUse says that another identifier listens on the port.
	ErrAddrInUse = errors.New("port already listened to")
	// ErrGaveWay says that too many connections waited for confirmation by their peers, and that this one's address had
	// the most of them, of which it was the oldest.
	ErrGaveWay = errors.New("not confirmed yet, and another one needed the place")
)

// OpError is a failed operation of a connection: what was being done, with which peer, and why it failed.
type OpError struct {
	Op   string         // "resolve address", "listen on", "connect to", "accept", …
	Peer netip.AddrPort // for a listener its own address; zero if none is known yet
	Err  error
}

func (e *OpError) Error() string {
	if !e.Peer.IsValid() {
		return fmt.Sprintf("rdma-cm: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("rdma-cm: %s %v: %v", e.Op, e.Peer, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

var _ net.Error = (*OpError)(nil)

// Timeout reports whether the peer did not answer.
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrTimeout) }

// Temporary is what else net.Error demands.
func (e *OpError) Temporary() bool { return e.Timeout() }
