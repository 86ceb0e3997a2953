package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
)

// Kinds of failure. Errors of this package wrap exactly one of them.
var (
	ErrMedium      = errors.New("medium error")             // the data can't be read or written (EIO)
	ErrCapacity    = errors.New("no space left")            // ENOSPC, EDQUOT
	ErrReadOnly    = errors.New("volume is read-only")      // EROFS, or opened read-only
	ErrGone        = errors.New("volume is gone")           // closed, device vanished
	ErrBusy        = errors.New("volume is in use or busy") // locked by another program, or the system is short of some resource
	ErrUnreachable = errors.New("volume is out of reach")   // the path to the disk, or to the file's server, may come back
	ErrRange       = errors.New("beyond the volume's end")
	ErrInvalid     = errors.New("invalid volume or request")
	ErrUnsupported = errors.New("not supported by this volume")
	ErrUnwanted    = errors.New("not wanted any more") // Request.Unwanted returned true; nothing more was done
)

// OpError says what failed, where, and why. errors.Is finds the kind and the cause.
type OpError struct {
	Op     string // "open", "read", "write", "flush", …
	Path   string // the volume
	Offset int64  // bytes; -1 if there is none
	Kind   error  // one of the kinds above
	Err    error  // the cause; may be nil
}

func (e *OpError) Error() string {
	s := e.Op + " " + e.Path
	if e.Offset >= 0 {
		s = fmt.Sprintf("%s at byte %d", s, e.Offset)
	}
	s += ": " + e.Kind.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the kind and the cause.
func (e *OpError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// OpenError returns the error of an open of the given kind, caused by err.
func OpenError(path string, kind, err error) error {
	return &OpError{Op: "open", Path: path, Offset: -1, Kind: kind, Err: err}
}

// Fail returns the error of a request to the volume; offset is -1 if there is none.
func (i *Info) Fail(op Op, offset int64, kind, cause error) error {
	if op == OpFlush {
		offset = -1
	}
	return &OpError{Op: op.String(), Path: i.Name(), Offset: offset, Kind: kind, Err: cause}
}

// Gone returns the error of a request to a closed volume.
func (i *Info) Gone(op Op, offset int64) error {
	return i.Fail(op, offset, ErrGone, fs.ErrClosed)
}

// Failed returns the error of an operation that isn't a request.
func (i *Info) Failed(op string, kind, cause error) error {
	return &OpError{Op: op, Path: i.Name(), Offset: -1, Kind: kind, Err: cause}
}

// Closed returns the error of an operation that isn't a request, on a closed volume.
func (i *Info) Closed(op string) error {
	return i.Failed(op, ErrGone, fs.ErrClosed)
}
