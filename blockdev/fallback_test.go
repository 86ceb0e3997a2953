package blockdev_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// sandboxedFile returns a volume's file, suitable for direct I/O, to a test that runs in a program of its own. If it
// returns false the test has run in one, and nothing is left to do. Without direct I/O the test is skipped.
func sandboxedFile(t *testing.T) (path string, o blockdev.Options, inside bool) {
	t.Helper()
	if !sandbox.Inside(t) {
		return "", o, false
	}
	path = filepath.Join(t.TempDir(), "v")
	o = blockdev.Options{Size: mib, IO: blockdev.IODirect}
	if err := tryOpen(t, path, o); err != nil {
		t.Skip(err)
	}
	return path, o, true
}

// TestForbidden: if asynchronous I/O is forbidden, or just to submit it, io_uring does direct I/O, and if that is
// forbidden too, workers do, and the volume says why; if io_uring was asked for, the volume isn't opened.
func TestForbidden(t *testing.T) {
	path, o, inside := sandboxedFile(t)
	if !inside {
		return
	}
	o.IO = blockdev.IOUring
	ring := tryOpen(t, path, o) == nil
	for _, x := range []struct {
		call       uint32
		mode, ring string // how the volume is accessed, with and without io_uring
	}{
		{unix.SYS_IO_SUBMIT, "direct I/O, workers: asynchronous I/O: io_submit: ", "direct I/O, io_uring with "},
		{unix.SYS_IO_SETUP, "direct I/O, workers: asynchronous I/O: ", "direct I/O, io_uring with "},
		{unix.SYS_IO_URING_SETUP, "direct I/O, workers: asynchronous I/O: ", ""},
	} {
		sandbox.Refuse(t, x.call, unix.EPERM)
		if ring && x.ring != "" {
			x.mode = x.ring
		}
		o.IO = blockdev.IOAuto
		v, err := blockdev.OpenFile(path, o)
		if err != nil {
			t.Fatal(err)
		}
		if m := v.Info().Mode; !strings.HasPrefix(m, x.mode) {
			t.Errorf("mode %q, want %q", m, x.mode)
		}
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, true); err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	o.IO = blockdev.IOUring
	mustFail(t, tryOpen(t, path, o), blockdev.ErrUnsupported, path, "io_uring is forbidden")
}

// TestVectoredForbidden: a file isn't opened where the system refuses the calls that read and write it, which would look
// like a file that may not be written.
func TestVectoredForbidden(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	if err := tryOpen(t, path, blockdev.Options{Size: mib}); err != nil {
		t.Fatal(err)
	}
	sandbox.Refuse(t, unix.SYS_PWRITEV2, unix.EPERM)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrUnsupported, path, "pwritev2", "seccomp")
	if err := tryOpen(t, path, blockdev.Options{ReadOnly: true}); err != nil {
		t.Errorf("read-only: %v", err)
	}
	sandbox.Refuse(t, unix.SYS_PREADV2, unix.EPERM)
	mustFail(t, tryOpen(t, path, blockdev.Options{ReadOnly: true}), blockdev.ErrUnsupported, path, "preadv2", "seccomp")
}

// TestZeroesForbidden: where the system refuses fallocate, write zeroes writes them, and doesn't call the volume
// write-protected, or say that there is no such command.
func TestZeroesForbidden(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			sandbox.Refuse(t, unix.SYS_FALLOCATE, errno)
			v, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{1}, 8192)
			if err := errors.Join(
				c.Write(b, 0, false),
				c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Length: 4096}),
				c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 4096, Length: 4096, MayUnmap: true}),
				c.Read(b, 0),
			); err != nil || !bytes.Equal(b, make([]byte, 8192)) {
				t.Errorf("%v, %d…", err, b[0])
			}
		})
	}
}

// TestDiscardRefused: where the system refuses fallocate for a while, a discard fails, and write zeroes goes on by other
// means; afterwards a discard frees space again.
func TestDiscardRefused(t *testing.T) {
	for op, want := range map[blockdev.Op]error{blockdev.OpDiscard: unix.EPERM, blockdev.OpWriteZeroes: nil} {
		t.Run(op.String(), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := filepath.Join(t.TempDir(), "v")
			v, err := blockdev.OpenFile(path, blockdev.Options{Size: mib, Preallocate: true})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			if !v.Info().Discard {
				t.Skip("the file system punches no holes")
			}
			c := volumetest.NewClient(v)
			failed := sandbox.FailOnce(t, unix.SYS_FALLOCATE, unix.EPERM)
			r := blockdev.Request{Op: op, Length: mib, MayUnmap: op == blockdev.OpWriteZeroes}
			if err := c.Do(r); !errors.Is(err, want) || !failed() {
				t.Errorf("%v; refused: %v", err, failed())
			}
			if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: mib}); err != nil || allocated(t, path) != 0 {
				t.Errorf("a discard afterwards: %v; %d bytes are left", err, allocated(t, path))
			}
		})
	}
}

// TestOutOfReach: a volume whose disk, or server, can't be reached when direct I/O is tried isn't opened for now,
// rather than through the page cache.
func TestOutOfReach(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	if err := tryOpen(t, path, blockdev.Options{Size: mib, IO: blockdev.IODirect}); err != nil {
		t.Skip(err)
	}
	sandbox.Refuse(t, unix.SYS_PREAD64, unix.ETIMEDOUT)
	mustFail(t, tryOpen(t, path, blockdev.Options{}), blockdev.ErrUnreachable, path, "timed out")
}

// TestHalfForbidden: asynchronous I/O that may be set up but not waited for isn't used; nor is io_uring that may be set
// up but not entered.
func TestHalfForbidden(t *testing.T) {
	path, o, inside := sandboxedFile(t)
	if !inside {
		return
	}
	for _, call := range []uint32{unix.SYS_IO_URING_ENTER, unix.SYS_IO_GETEVENTS} {
		sandbox.Refuse(t, call, unix.EPERM)
		for _, o.IO = range []blockdev.IOMode{blockdev.IOUring, blockdev.IOAuto} {
			v, err := blockdev.OpenFile(path, o)
			if o.IO == blockdev.IOUring {
				mustFail(t, err, blockdev.ErrUnsupported, path, "io_uring")
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- errors.Join(volumetest.NewClient(v).Write(make([]byte, 4096), 0, true), v.Close()) }()
			if err, came := soon.Receive(done); !came || err != nil {
				t.Fatalf("%s: a write, and closing: done: %v, with %v", v.Info().Mode, came, err)
			}
		}
	}
}

// TestRefreshInterrupted: what a signal interrupts while a file is looked at is repeated.
func TestRefreshInterrupted(t *testing.T) {
	for name, call := range map[string]uint32{"lseek": unix.SYS_LSEEK, "fstat": unix.SYS_FSTAT} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			v, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			failed := sandbox.FailOnce(t, call, unix.EINTR)
			if err := v.(blockdev.Resizer).Refresh(); err != nil || !failed() {
				t.Errorf("refreshed: %v; interrupted: %v", err, failed())
			}
		})
	}
}
