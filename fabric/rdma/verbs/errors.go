package verbs

import "errors"

// Errors that calls return, wrapped with what they concern. Work requests that were accepted
// report a WCStatus instead.
var (
	ErrInvalid     = errors.New("invalid argument")
	ErrNoMemory    = errors.New("no room") // in memory, a queue or a table (ENOMEM)
	ErrBusy        = errors.New("still in use")
	ErrState       = errors.New("wrong state for this call")
	ErrClosed      = errors.New("closed")
	ErrUnsupported = errors.New("not supported by this device")
)
