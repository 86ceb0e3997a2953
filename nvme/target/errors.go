package target

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of this package, for errors.Is.
var (
	// ErrClosed: the target is closing, or closed the connection because of that.
	ErrClosed = errors.New("target is closed")
	// ErrDraining: the target disconnects its hosts and takes no new ones, or closed the connection because of that.
	ErrDraining = errors.New("target is draining")
	// ErrLimit: a limit of Config.Limits is reached.
	ErrLimit = errors.New("limit reached")
	// ErrMakingRoom: Limits.Connections is reached, and connections are ending because of that. It wraps ErrLimit.
	ErrMakingRoom = fmt.Errorf("%w for now", ErrLimit)
	// ErrConfig: a Config, or a part of one that was to be added, can't be used.
	ErrConfig = errors.New("invalid target configuration")
	// ErrExists: the subsystem, namespace or port exists already, or another namespace has one of its identifiers.
	ErrExists = errors.New("already exists")
	// ErrState: what Config.Store kept of a subsystem or namespace can't be used: it is damaged, or was written by
	// another version of the program. The subsystem or namespace isn't served.
	ErrState = errors.New("saved state can't be used")
	// ErrNotFound: there is no such subsystem, namespace or port.
	ErrNotFound = errors.New("not found")
)

// Reasons why the engine disconnects, or a transport where noted, for errors.Is.
var (
	// ErrKeepAlive: the host was silent for longer than the keep-alive timeout.
	ErrKeepAlive = errors.New("keep-alive timeout")
	// ErrConnectTimeout: no Connect command arrived in time.
	ErrConnectTimeout = errors.New("no Connect command")
	// ErrGaveWay: there are too many connections, and the host of this one has proved nothing yet.
	ErrGaveWay = errors.New("made room for another connection")
	// ErrControllerGone: another queue of the controller failed or was closed.
	ErrControllerGone = errors.New("controller is gone")
	// ErrControllerLost: the host of the controller was lost, as another queue shows. It wraps ErrControllerGone.
	ErrControllerLost = fmt.Errorf("%w: its host was lost", ErrControllerGone)
	// ErrReset: the host reset the controller, which deletes its I/O queues.
	ErrReset = errors.New("controller was reset")
	// ErrNoShutdown: the host closed its connections, or died, without a shutdown of the
	// controller.
	ErrNoShutdown = errors.New("gone without a shutdown of the controller")
	// ErrNotAllowed: the host may not use the subsystem any more.
	ErrNotAllowed = errors.New("host is no longer allowed")
	// ErrAuthentication: the host failed to authenticate itself.
	ErrAuthentication = errors.New("authentication failed")
	// ErrPreempted: another host preempted this host's reservation and had its commands aborted, and this host didn't
	// send or take their data in time.
	ErrPreempted = errors.New("preempted by another host")
	// ErrRemoved: the subsystem was removed.
	ErrRemoved = errors.New("subsystem was removed")
	// ErrEndpointClosed: the transport's listener that took the connection was closed, or the device below it.
	ErrEndpointClosed = errors.New("endpoint was closed")
)

// stateError reports what is wrong with the state saved under a name.
func stateError(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrState, name, err)
}

// wrongConfig wraps ErrConfig and says what is wrong.
type wrongConfig struct{ what string }

func (e *wrongConfig) Error() string { return "target: " + ErrConfig.Error() + ": " + e.what }
func (e *wrongConfig) Unwrap() error { return ErrConfig }

func configError(format string, args ...any) error {
	return &wrongConfig{fmt.Sprintf(format, args...)}
}

// within adds to an error the subsystem that it is about.
func within(nqn string, err error) error {
	var wrong *wrongConfig
	if errors.As(err, &wrong) { // others may have wrapped it in text of their own
		return configError("subsystem %s: %s", nqn, strings.Replace(err.Error(), wrong.Error(), wrong.what, 1))
	}
	return fmt.Errorf("target: subsystem %s: %w", nqn, err)
}
