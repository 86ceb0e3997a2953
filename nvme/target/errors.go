package target

import "errors"

// Errors of this package, for errors.Is.
var (
	// ErrClosed: the target is closing and takes no new connection.
	ErrClosed = errors.New("target is closed")
	// ErrLimit: a limit of Config.Limits is reached.
	ErrLimit = errors.New("limit reached")
)
