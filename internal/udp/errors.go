package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Kinds of failure. Errors of this package wrap at most one of them.
var (
	// ErrClosed is net.ErrClosed: the Conn was closed.
	ErrClosed = net.ErrClosed
	// ErrSegmentation means that the kernel or the route refused UDP_SEGMENT: the train was
	// not sent, and from now on a train holds one datagram, at least one to that destination.
	ErrSegmentation = errors.New("segmentation offload refused: one datagram per train from now on")
	// ErrTrain means that a Train contradicts itself or exceeds a limit; it was not sent.
	ErrTrain = errors.New("malformed train")
	// ErrInUse means that another socket holds the port.
	ErrInUse = errors.New("port in use")
	// ErrNotLocal means that no interface of this host has the address.
	ErrNotLocal = errors.New("not an address of this host")
	// ErrUnsupported means that the operating system lacks something this package needs.
	ErrUnsupported = errors.New("not supported on this system")
)

// OpError says what failed, for which address, why, and what to do about it. errors.Is and
// errors.As match the kind and the cause.
type OpError struct {
	Op     string         // "listen", "send", "recv", "route", …
	Addr   netip.AddrPort // the local address; for "send" and "route" the peer's
	Kind   error          // one of the kinds above, may be nil
	Err    error          // the cause, may be nil
	Remedy string         // one sentence for the user, may be empty
}

func (e *OpError) Error() string {
	s := e.Op + " udp"
	switch {
	case e.Addr.Port() != 0:
		s += " " + e.Addr.String()
	case e.Addr.Addr().IsValid():
		s += " " + e.Addr.Addr().String()
	}
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
	if e.Err != nil && !e.told() {
		s += ": " + e.Err.Error()
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// told reports whether the kind already says everything the system's error does.
func (e *OpError) told() bool { return errors.Is(e.Kind, ErrInUse) || errors.Is(e.Kind, ErrNotLocal) }

// Unwrap returns the kind and the cause.
func (e *OpError) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

func trainError(t *Train, format string, args ...any) error {
	return &OpError{Op: "send", Addr: t.Dst, Kind: ErrTrain, Err: fmt.Errorf(format, args...)}
}
