package cm

import (
	"errors"
	"fmt"
	"net/netip"
)

// Causes of an OpError, besides those of verbs.
var (
	// ErrTimeout says that the peer answered none of the tries.
	ErrTimeout = errors.New("no answer")
	// ErrUnreachable says that the device has no way to the address.
	ErrUnreachable = errors.New("address not reachable from this device")
	// ErrAddrInUse says that another identifier listens to the port.
	ErrAddrInUse = errors.New("port already listened to")
	// ErrGaveWay says that too many connections waited to be confirmed by their peers, and that this one's
	// address had most of them, or it was the oldest.
	ErrGaveWay = errors.New("not confirmed yet, and another one needed the place")
)

// OpError is an error of a connection: what was being done, with whom, and why it failed.
type OpError struct {
	Op   string         // "resolve address", "listen", "connect", "accept", …
	Peer netip.AddrPort // of a listener its own address; zero where none is known yet
	Err  error
}

func (e *OpError) Error() string {
	if !e.Peer.IsValid() {
		return fmt.Sprintf("rdma-cm: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("rdma-cm: %s %v: %v", e.Op, e.Peer, e.Err)
}

// Unwrap is the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the peer did not answer (net.Error).
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrTimeout) }
