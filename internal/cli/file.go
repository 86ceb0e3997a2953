package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FileError says why the file named by a flag can't be used.
func FileError(flag, path string, err error) error {
	return Say(err, "%s %s: %v", flag, path, Cause(err))
}

// CreateError says why the file or directory named by a flag can't be created, and what to do.
func CreateError(flag, path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return Say(err, "%s %s exists already: remove it, or choose another name", flag, path)
	}
	remedy := "choose another place"
	if dir := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && !there(dir) {
		remedy = fmt.Sprintf("make %s first, or %s", dir, remedy)
	}
	return Say(err, "%s %s: %v; %s", flag, path, Cause(err), remedy)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var errNowhere = errors.New("the working directory has been removed, so that a name in it means nothing")

// Cause returns the system's error, without the operation and the paths, which FileError names.
func Cause(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	var se *os.SyscallError
	switch {
	case errors.As(err, &se) && se.Syscall == "getwd":
		return errNowhere
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}
