package tcp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Kinds of failure, for errors.Is.
var (
	// ErrProtocol: the peer violated NVMe/TCP. The error is a *ProtocolError.
	ErrProtocol = errors.New("protocol error")
	// ErrTerminated: the peer sent a terminate request. The error is a *TerminatedError.
	ErrTerminated = errors.New("terminated by the peer")
	// ErrDataDigest: a data digest didn't match. It fails one command, not the connection.
	ErrDataDigest = errors.New("data digest error")
	// ErrClosed: the connection, the listener or the transport is closed.
	ErrClosed = errors.New("connection is closed")
	// ErrPeerClosed: the peer closed the connection.
	ErrPeerClosed = errors.New("closed by the peer")
	// ErrHandshake: the exchange of ICReq and ICResp failed.
	ErrHandshake = errors.New("connection could not be initialized")
	// ErrTooMany: a limit on connections is reached.
	ErrTooMany = errors.New("too many connections")
	// ErrConfig: a field of TargetConfig or HostConfig can't be used, or what is needed besides it is nil.
	ErrConfig = errors.New("bad configuration")
	// ErrStalled: the host didn't send the data that it was asked for, or the peer didn't take the
	// data that was sent to it.
	ErrStalled = errors.New("stalled")
)

// errTransportClosed is the error of calls to a Transport after Close.
var errTransportClosed = fmt.Errorf("the transport was closed: %w", ErrClosed)

// ProtocolError says that the peer violated the protocol. The connection is dead, and the peer was
// told so with a terminate request.
type ProtocolError struct {
	Peer  netip.AddrPort
	PDU   pdu.Type // the PDU at fault
	Cause *pdu.FieldError
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("nvme/tcp peer %v: %v: %v", e.Peer, e.PDU, e.Cause)
}

// Unwrap returns the kind and the field.
func (e *ProtocolError) Unwrap() []error { return []error{ErrProtocol, e.Cause} }

// TerminatedError says that the peer ended the connection with a terminate request.
type TerminatedError struct {
	Peer    netip.AddrPort
	FES     pdu.FES // Fatal Error Status
	FEI     uint32  // Fatal Error Information, as pdu.FES says
	Offence string  // the type of the PDU that the peer objects to; empty if it didn't say
}

func (e *TerminatedError) Error() string {
	s := fmt.Sprintf("nvme/tcp peer %v ended the connection: %v (FEI %#x)", e.Peer, e.FES, e.FEI)
	if e.Offence != "" {
		s += " in our " + e.Offence
	}
	return s
}

// Unwrap returns the kind.
func (e *TerminatedError) Unwrap() error { return ErrTerminated }

// terminatedBy returns the error for a terminate request of the peer.
func terminatedBy(peer netip.AddrPort, b []byte) error {
	p, err := pdu.ParseTermReq(b)
	if err != nil {
		return err
	}
	e := &TerminatedError{Peer: peer, FES: p.FES, FEI: p.FEI}
	if len(p.Offence) > 0 {
		e.Offence = pdu.Type(p.Offence[0]).String()
	}
	return e
}

// stageAccept is the stage before a connection exists.
const stageAccept = "accept"

// ConnError says at which stage a connection failed, and why.
type ConnError struct {
	Stage string         // "accept", "connect", "initialize", "receive", "receive data", "send"
	Peer  netip.AddrPort // invalid if the peer isn't known
	Err   error
}

func (e *ConnError) Error() string {
	if !e.Peer.IsValid() {
		return fmt.Sprintf("nvme/tcp %s: %v", e.Stage, e.Err)
	}
	return fmt.Sprintf("nvme/tcp %s %v: %v", e.Stage, e.Peer, e.Err)
}

// Unwrap returns the cause.
func (e *ConnError) Unwrap() error { return e.Err }

// errTransfer is what Request.Pulled gets for a data digest error: the kind, and the status for the
// command's response.
var errTransfer = fmt.Errorf("%w: %w", ErrDataDigest, nvme.StatusTransientTransport)
