package host

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

var (
	// ErrClosed is the cause if this side closed the controller.
	ErrClosed = errors.New("the controller was closed")
	// ErrLost is the cause if the connection to the controller ended in any other way.
	ErrLost = errors.New("connection lost")
	// ErrTimeout is the cause if a command was neither answered nor aborted in time, or if Connect or Shutdown reached
	// a limit other than the caller's context.
	ErrTimeout = errors.New("command timeout")
	// ErrKeepAlive is the cause if the controller gave no sign of life for KATO.
	ErrKeepAlive = errors.New("no sign of life within the keep alive timeout")
	// ErrFatal is the cause if the controller reports CSTS.CFS.
	ErrFatal = errors.New("the controller reports a fatal error (CSTS.CFS)")
	// ErrController is the cause if the controller breaks a rule of the specification that the host depends on.
	ErrController = errors.New("unusable controller")
	// ErrNamespace is the cause if this host can't use a namespace, such as one with metadata or of another command set.
	ErrNamespace = errors.New("unusable namespace")
	// ErrUnsupported is the cause if the controller doesn't have a requested command.
	ErrUnsupported = errors.New("not supported by the controller")
	// ErrRange is the cause if a range isn't of whole blocks or isn't inside the namespace, or if another argument is
	// outside what a command can carry.
	ErrRange = errors.New("bad range")
	// ErrNoMemory is the cause if a transport has no more of the memory that it hands out.
	ErrNoMemory = errors.New("no more memory for transfers")
	// ErrConfig is the cause if a Config can't be used.
	ErrConfig = errors.New("bad configuration")
	// ErrAuthentication is the cause if the host or the controller could not authenticate itself. The
	// nvme.AuthExplanation of the side that found out is also a cause, if there is one.
	ErrAuthentication = errors.New("authentication failed")
	// ErrSecureChannel is the cause if the controller demands a secure channel after authentication.
	ErrSecureChannel = errors.New("the controller demands authentication with a secure channel (TLS), which isn't supported")
)

// ConnectError says why a connection could not be made.
type ConnectError struct {
	Stage     string // "connection", "Connect", "authentication", "enabling", "Identify Controller" …
	Transport nvme.TransportType
	Peer      netip.AddrPort
	SubNQN    string
	QID       uint16
	Err       error
}

func (e *ConnectError) Error() string {
	// The status of a command names the command: say it once.
	why := strings.TrimPrefix(e.Err.Error(), "nvme: ")
	why = strings.TrimPrefix(why, e.Stage+": ")
	return fmt.Sprintf("nvme: %s://%s, subsystem %s, queue %d: %s: %s", e.Transport, e.Peer, e.SubNQN, e.QID, e.Stage, why)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// LostError is the end of a controller or queue that this side did not ask for, and the Err of every request that
// it cut short. It matches ErrLost and nvme.StatusHostPathError.
type LostError struct {
	Peer   netip.AddrPort
	SubNQN string
	Cause  error // from the transport, or ErrTimeout, ErrKeepAlive, …; may be nil
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("nvme: %v to %s at %s", ErrLost, e.SubNQN, e.Peer)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrLost, nvme.StatusHostPathError}
	}
	return []error{ErrLost, nvme.StatusHostPathError, e.Cause}
}

// errCancelledEarly is the cause if Connect was cancelled while a command was outstanding: no command can be aborted yet.
var errCancelledEarly = errors.New("a command was cancelled before the controller was ready")

// errClosed is the Err of the requests that Close cut short.
var errClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string   { return "nvme: " + ErrClosed.Error() }
func (closedError) Unwrap() []error { return []error{ErrClosed, nvme.StatusHostAborted} }
