package multipath

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

var (
	// ErrNoPath is the cause if no path can take a request.
	ErrNoPath = errors.New("no path")
	// ErrGivenUp is the cause if a path was lost for longer than Config.ControllerLoss.
	ErrGivenUp = errors.New("controller loss time is over")
	// ErrIdentity is the cause if a path leads to a different namespace than the others.
	ErrIdentity = errors.New("not the same namespace")
	// ErrTransition is the cause if a controller was given up because an ANA group stayed in the change state.
	ErrTransition = errors.New("ANA change took longer than ANATT")
)

// NoPathError is the Err of a request that no path could take in time, and the error of a call that needs a live path
// when there is none. It matches ErrNoPath, nvme.StatusHostPathError and the errors of the paths.
type NoPathError struct {
	SubNQN string
	NSID   uint32        // 0 if it isn't about one namespace
	For    time.Duration // how long there had been no path
	Paths  []PathStatus
	// Refusal is the ANA status that ended the request on a path whose log said that it takes requests; nil if
	// there was no such path.
	Refusal error
}

func (e *NoPathError) Error() string {
	var why []string
	for i := range e.Paths {
		why = append(why, e.Paths[i].explain(e.NSID))
	}
	what := "subsystem " + e.SubNQN
	if e.NSID != 0 {
		what = fmt.Sprintf("namespace %d of %s", e.NSID, e.SubNQN)
	}
	text := fmt.Sprintf("nvme: %s: %v for %v: %s", what, ErrNoPath, e.For.Round(time.Millisecond), strings.Join(why, "; "))
	if e.Refusal != nil {
		text += "; the last answer: " + strings.TrimPrefix(e.Refusal.Error(), "nvme: ")
	}
	return text
}

// Unwrap returns what the error matches.
func (e *NoPathError) Unwrap() []error {
	all := []error{ErrNoPath, nvme.StatusHostPathError}
	for i := range e.Paths {
		if err := e.Paths[i].Err; err != nil {
			all = append(all, err)
		}
	}
	if e.Refusal != nil {
		all = append(all, e.Refusal)
	}
	return all
}

// CutShortError is the Err of a request that was cut short by the loss of its path every time it was sent. It
// matches nvme.StatusHostPathError and whatever Last matches, such as host.ErrLost.
type CutShortError struct {
	SubNQN string
	NSID   uint32
	Opcode nvme.Opcode
	Blocks nvme.BlockRange
	Times  int   // how often it was sent
	Last   error // how the last path ended
}

func (e *CutShortError) Error() string {
	what := e.Opcode.IOName()
	if e.Blocks != (nvme.BlockRange{}) {
		what += fmt.Sprintf(" of %v", e.Blocks)
	}
	return fmt.Sprintf("nvme: namespace %d of %s: the path was lost each of the %d times that %s was sent, the last time: %s",
		e.NSID, e.SubNQN, e.Times, what, strings.TrimPrefix(e.Last.Error(), "nvme: "))
}

// Unwrap returns what the error matches.
func (e *CutShortError) Unwrap() []error { return []error{nvme.StatusHostPathError, e.Last} }

// pathError is the error of one path of several.
type pathError struct {
	path string // its name
	err  error
}

func (e *pathError) Error() string {
	return fmt.Sprintf("nvme: path %s: %s", e.path, strings.TrimPrefix(e.err.Error(), "nvme: "))
}

// Unwrap returns the error of the path.
func (e *pathError) Unwrap() error { return e.err }

// errClosed is the Err of requests that were cut short by Close.
var errClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string   { return "nvme: the subsystem was closed" }
func (closedError) Unwrap() []error { return []error{host.ErrClosed, nvme.StatusHostAborted} }

// errCancelled is the Err of requests that were cancelled while they waited for a path.
var errCancelled = errors.New("nvme: the command still waited for a path")

// finish ends a request that no path carries.
func finish(r *host.Request, err error) {
	r.Err = err
	r.CQE.Reset()
	r.CQE.SetStatus(nvme.StatusHostPathError)
	if errors.Is(err, host.ErrClosed) {
		r.CQE.SetStatus(nvme.StatusHostAborted)
	}
	r.Done(r)
}

// final reports whether connecting again can't help, because the target refuses the host with Do Not Retry, or the two
// can't work together. If it refuses an I/O queue, or doesn't accept commands, the controller may just have ended during
// its set-up.
func final(err error) bool {
	var status *nvme.StatusError
	var connect *host.ConnectError
	ioQueue := errors.As(err, &connect) && connect.QID != 0
	return errors.As(err, &status) && status.Status.DNR() && !ioQueue && !errors.Is(err, nvme.StatusCommandSequence) ||
		errors.Is(err, host.ErrAuthentication) || errors.Is(err, host.ErrSecureChannel) ||
		errors.Is(err, host.ErrConfig) || errors.Is(err, host.ErrController)
}
