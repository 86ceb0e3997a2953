package rdma

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Errors of this package, for errors.Is.
var (
	// ErrDisconnected: the peer ended the connection.
	ErrDisconnected = errors.New("the peer disconnected")
	// ErrDeviceRemoval: the connection's device was closed or removed (RDMA_CM_EVENT_DEVICE_REMOVAL).
	ErrDeviceRemoval = errors.New("the RNIC was closed or removed")
	// ErrProtocol: the peer violated NVMe/RDMA.
	ErrProtocol = errors.New("NVMe/RDMA protocol error")
	// ErrClosed: this side closed the connection, or the Transport.
	ErrClosed = errors.New("closed")
	// ErrConfig: a field of TargetConfig or HostConfig can't be used, or what is needed besides it is nil.
	ErrConfig = errors.New("bad configuration")
)

var (
	// errTransportClosed is returned by calls to a Transport after Close.
	errTransportClosed = fmt.Errorf("the transport is %w", ErrClosed)
	// errUnlistened is why the connections of a closed Listener end.
	errUnlistened = fmt.Errorf("%w: %w", ErrClosed, target.ErrEndpointClosed)
	// errShare is why a connection beyond the limits on their number and the memory of their buffers is refused.
	errShare = errors.New("its host's connections, or all, have their share")
	// errUnplugged is why the connections of a Listener end when their device is removed.
	errUnplugged = fmt.Errorf("%w: %w", ErrDeviceRemoval, target.ErrEndpointClosed)
)

// ConnError says at which stage a connection to or from Peer failed.
type ConnError struct {
	Stage string // "resolve address", "connect", "receive", …
	Peer  netip.AddrPort
	QID   uint16 // of the NVMe queue
	Err   error
}

func (e *ConnError) Error() string {
	return fmt.Sprintf("rdma: %s, peer %s, queue %d: %v", e.Stage, e.Peer, e.QID, e.Err)
}

func (e *ConnError) Unwrap() error { return e.Err }

// RejectError is the peer's refusal of a connection.
type RejectError struct {
	Reason verbs.RejectReason // of the REJ (IBTA table 109)
	Status RejectStatus       // with reason 28, if the private data has one; else 0
}

func (e *RejectError) Error() string {
	switch {
	case e.Status != 0:
		return "rejected by the NVMe target: " + e.Status.String()
	case e.Reason == verbs.RejectInvalidServiceID:
		return "rejected: nothing listens on this port there (invalid service ID)"
	case e.Reason == verbs.RejectNoResources:
		return "rejected: the peer has no resources left"
	case e.Reason == verbs.RejectStale:
		return "rejected: the peer takes this for an old connection (stale); try again"
	case e.Reason == verbs.RejectInvalidMTU:
		return "rejected: the peer's interface carries smaller packets than ours (invalid path MTU); give both one MTU, or connect from another address"
	}
	return "rejected by the peer's connection manager: " + e.Reason.String()
}

// undisturbed reports whether a connection ended because either side wanted it to, or with its device, rather than
// because something went wrong on it.
func undisturbed(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrDeviceRemoval)
}

// CompletionError is the failure of a work request.
type CompletionError struct {
	What   string // the work request: "receive", "response", …
	Status verbs.WCStatus
}

func (e *CompletionError) Error() string { return e.What + ": " + e.Status.String() }

// PathMTUError says why a connection's packets no longer get through: the path's MTU has fallen since it was made, or, if
// Path isn't less than Connection, at least below the longer packets that devices of one vendor had agreed on. A new
// connection has packets that fit.
type PathMTUError struct {
	Path, Connection verbs.MTU
}

func (e *PathMTUError) Error() string {
	if e.Path >= e.Connection {
		return fmt.Sprintf("the path carries smaller packets than when the connection was made, though still those of its path MTU of %d",
			e.Connection.Bytes())
	}
	return fmt.Sprintf("the path MTU fell to %d, below the connection's of %d", e.Path.Bytes(), e.Connection.Bytes())
}

// fallen returns err, why the connection of id and qp ends, with a PathMTUError if that explains it: one of the sides
// has retried in vain, and the path has changed.
func fallen(err error, id verbs.CMID, qp verbs.QP) error {
	var failed *CompletionError
	retried := errors.As(err, &failed) && failed.Status == verbs.WCRetryExcErr
	if !retried && !errors.Is(err, ErrDisconnected) {
		return err
	}
	path, options := id.PathMTU()
	if conn := qp.Query(); path != 0 && (path < conn.PathMTU || conn.VendorOptions&^options != 0) {
		return fmt.Errorf("%w (%w)", err, &PathMTUError{path, conn.PathMTU})
	}
	return err
}

// badConfig returns the error for a configuration field that can't be used.
func badConfig(format string, args ...any) error {
	return fmt.Errorf("rdma: %w: %s", ErrConfig, fmt.Sprintf(format, args...))
}
