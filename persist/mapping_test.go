package persist

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestInterrupted: what a signal interrupts is called again, and fails nothing.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		name string
		call uint32
		do   func(*mapping) error
	}{
		{"fdatasync", unix.SYS_FDATASYNC, (*mapping).syncFile},
		{"msync", unix.SYS_MSYNC, (*mapping).sync},
		{"fallocate", unix.SYS_FALLOCATE, func(m *mapping) error { return m.punch(0, pageSize) }},
		{"ftruncate", unix.SYS_FTRUNCATE, func(m *mapping) error { return m.resize(2*pageSize, false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			f, err := os.Create(filepath.Join(t.TempDir(), "volume"))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(pageSize); err != nil {
				t.Fatal(err)
			}
			m, err := mapFile(f, pageSize, false)
			if err != nil {
				t.Fatal(err)
			}
			defer m.close()
			failed := sandbox.FailOnce(t, c.call, unix.EINTR)
			if err := c.do(m); err != nil {
				t.Error(err)
			}
			if !failed() {
				t.Error("nothing was interrupted")
			}
		})
	}
}

// TestVanished: a fault in a mapping whose device says that it isn't there any more is told of as that.
func TestVanished(t *testing.T) {
	if raceEnabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	v, err := inPlace(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	c, b := volumetest.NewClient(v), make([]byte, 4096)
	for _, want := range []error{blockdev.ErrMedium, blockdev.ErrGone} {
		if err := c.Read(b, 0); !errors.Is(err, want) {
			t.Errorf("read: %v, want %v", err, want)
		}
		if err := c.Write(b, 0, false); !errors.Is(err, want) {
			t.Errorf("write: %v, want %v", err, want)
		}
		sandbox.Refuse(t, unix.SYS_PREAD64, unix.ENXIO)
	}
}
