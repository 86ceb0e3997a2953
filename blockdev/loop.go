package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The system locks no file that it makes a loop device of, as for a mount: a program that exports the file and one that
// has the device would not meet. So who opens either asks for the other.

// loopLock refuses a file that is a loop device's, and a loop device whose file is locked. Readers share. The error is an
// OpError of kind ErrBusy.
func loopLock(f *os.File, readOnly bool) error {
	st, err := f.Stat()
	if err != nil {
		return OpenError(f.Name(), KindOf(err), err)
	}
	if st.Mode().Type()&fs.ModeDevice != 0 {
		return loopFileLock(f.Name(), deviceNode(f), readOnly)
	}
	if dev := loopDevice(st, readOnly); dev != "" {
		return OpenError(f.Name(), ErrBusy, fmt.Errorf(
			"the loop device %s is made of it, by which others may write to it; export that, or detach it (losetup -d)", dev))
	}
	return nil
}

// loopFileLock asks for the lock of the file that a loop device, or the one of a partition, is made of.
func loopFileLock(path, node string, readOnly bool) error {
	file := readLine(node + "/loop/backing_file")
	if file == "" {
		file = readLine(node + "/../loop/backing_file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil // it is none, or its file can't be seen from here
	}
	defer f.Close()
	var op *OpError
	if errors.As(lock(f, readOnly), &op) && errors.Is(op, ErrBusy) {
		return OpenError(path, ErrBusy, fmt.Errorf("it is made of the file %s: %w", file, op.Err))
	}
	return nil
}

// loopDevice finds a loop device that is made of a file; for a reader, one that can be written to.
func loopDevice(file fs.FileInfo, readOnly bool) string {
	all, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range all {
		st, err := os.Stat(readLine(name))
		dir := filepath.Dir(filepath.Dir(name))
		if err == nil && os.SameFile(st, file) && (!readOnly || readLine(dir+"/ro") != "1") {
			return "/dev/" + filepath.Base(dir)
		}
	}
	return ""
}

// readLine is a line that sysfs has; empty where it has none.
func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}
