package cli

import (
	"errors"
	"io/fs"
	"os"
)

// FileError says why the file that a flag names can't be used. A file that exists is one that
// was to be created.
func FileError(flag, path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return Say(err, "%s %s exists already: remove it, or choose another name", flag, path)
	}
	return Say(err, "%s %s: %v", flag, path, Cause(err))
}

// Cause is what the system said, without the operation and the paths that FileError names.
func Cause(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}
