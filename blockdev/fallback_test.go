package blockdev_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestForbidden: where asynchronous I/O is forbidden io_uring does direct I/O, and where that is too
// workers do, and say why; asked for io_uring, the volume isn't opened.
func TestForbidden(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	o := blockdev.Options{Size: mib, IO: blockdev.IODirect}
	if err := tryOpen(t, path, o); err != nil {
		t.Skip(err)
	}
	o.IO = blockdev.IOUring
	ring := tryOpen(t, path, o) == nil
	for _, x := range []struct {
		call       uint32
		mode, ring string // how the volume is reached, with and without io_uring
	}{
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
