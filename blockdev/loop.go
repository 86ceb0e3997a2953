package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// The system doesn't lock a file of which it makes a loop device, as for a mount: a program that exports the file and
// one that uses the device would not notice each other. So opening either checks for the other. The file may itself be
// a device, even a loop device.

// loopLock refuses a file that a loop device is made of, and a loop device whose file is locked. Readers share. The
// error is an OpError of kind ErrBusy.
func loopLock(f *os.File, readOnly bool) error {
	st, err := f.Stat()
	if err != nil {
		return OpenError(f.Name(), KindOf(err), err)
	}
	if st.Mode().Type()&fs.ModeDevice != 0 {
		if err := loopFileLock(f.Name(), deviceNode(f), readOnly); err != nil {
			return err
		}
	}
	dev, err := loopDevice(st, readOnly)
	if err != nil {
		return unseenLoop(f.Name(), err)
	}
	if dev != "" {
		return OpenError(f.Name(), ErrBusy, fmt.Errorf(
			"the loop device %s is made of it, by which others may write to it; export that, or detach it (losetup -d)", dev))
	}
	return nil
}

// loopFileLock checks the lock of the file that a loop device, or the one that a partition is on, is made of.
func loopFileLock(path, node string, readOnly bool) error {
	file, err := readLine(node + "/loop/backing_file")
	if file == "" && err == nil {
		file, err = readLine(node + "/../loop/backing_file")
	}
	if err != nil {
		return unseenLoop(path, err)
	}
	f, err := os.Open(file)
	if err != nil {
		return unseenLoop(path, err) // or it isn't a loop device, or its file can't be seen from here
	}
	defer f.Close()
	var op *OpError
	if errors.As(lock(f, readOnly), &op) && errors.Is(op, ErrBusy) {
		return OpenError(path, ErrBusy, fmt.Errorf("it is made of the file %s: %w", file, op.Err))
	}
	return loopFileLock(path, deviceNode(f), readOnly)
}

// unseenLoop is the error of an open for which looking for loop devices failed: nil unless the system is short of
// something, such as descriptors.
func unseenLoop(path string, err error) error {
	if errors.Is(KindOf(err), ErrBusy) {
		return OpenError(path, ErrBusy, fmt.Errorf("looking for loop devices: %w", err))
	}
	return nil
}

// loopDevice finds a loop device that is made of a file; for a reader, only one that can be written to.
func loopDevice(file fs.FileInfo, readOnly bool) (string, error) {
	const devices = "/sys/block/"
	all, err := os.ReadDir(devices) // filepath.Glob wouldn't report that it couldn't look
	for _, d := range all {
		name, err := readLine(devices + d.Name() + "/loop/backing_file")
		if err != nil {
			return "", err
		}
		if st, err := os.Stat(name); err != nil || !same(st, file) {
			continue
		}
		ro, err := readLine(devices + d.Name() + "/ro")
		if err != nil || !readOnly || ro != "1" {
			return "/dev/" + d.Name(), err
		}
	}
	return "", err
}

// same reports whether two names are those of one file, or of one device.
func same(a, b fs.FileInfo) bool {
	if a.Mode().Type()&b.Mode().Type()&fs.ModeDevice == 0 {
		return os.SameFile(a, b)
	}
	one, _ := a.Sys().(*syscall.Stat_t)
	two, _ := b.Sys().(*syscall.Stat_t)
	return one.Rdev == two.Rdev
}

// readLine returns a line from sysfs; empty if there is none. The error, if any, is that the system is short of
// something.
func readLine(name string) (string, error) {
	b, err := os.ReadFile(name)
	if !errors.Is(KindOf(err), ErrBusy) {
		err = nil
	}
	return strings.TrimSuffix(string(b), "\n"), err
}
