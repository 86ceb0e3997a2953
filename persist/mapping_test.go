package persist

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestInterrupted: a call that a signal interrupts is repeated, and nothing fails.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		name string
		call uint32
		do   func(*mapping) error
	}{
		{"fdatasync", unix.SYS_FDATASYNC, (*mapping).syncFile},
		{"msync", unix.SYS_MSYNC, (*mapping).sync},
		{"fallocate", unix.SYS_FALLOCATE, func(m *mapping) error { return m.punch(0, pageSize) }},
		{"lseek", unix.SYS_LSEEK, func(m *mapping) error { _, err := m.fileSize(); return err }},
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

// TestWithoutHoles: a volume in place on a file system that has no holes says so, and zeroes what is to be zeroed.
func TestWithoutHoles(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	sandbox.Refuse(t, unix.SYS_FALLOCATE, unix.EOPNOTSUPP)
	v, err := inPlace(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: 2 * background})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, v)
	if i := v.Info(); i.Discard || i.ZeroAfterDiscard {
		t.Errorf("it has discard: %v, which zeroes: %v", i.Discard, i.ZeroAfterDiscard)
	}
	c, got := volumetest.NewClient(v), make([]byte, 4096)
	err = errors.Join(c.Write(block(1), 0, false),
		c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Length: 2 * background, MayUnmap: true}), c.Read(got, 0))
	if err != nil || !bytes.Equal(got, make([]byte, 4096)) {
		t.Errorf("zeroed: %v, %d…", err, got[0])
	}
}

// TestClearCut: clearing fails if the file was cut, even if it can't be done by a hole.
func TestClearCut(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "v"))
	if err := errors.Join(err, f.Truncate(pageSize)); err != nil {
		t.Fatal(err)
	}
	m, err := mapFile(f, pageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	sandbox.Refuse(t, unix.SYS_FALLOCATE, unix.EOPNOTSUPP)
	if err := m.clear(m.mem, 0); !errors.Is(err, errFault) {
		t.Error(err)
	}
}

// TestVanished: a fault in a mapping whose device reports that it is gone, or can't be reached, is reported as that.
func TestVanished(t *testing.T) {
	if race.Enabled {
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
	for _, x := range []struct {
		want  error
		reads unix.Errno // how a read without the mapping ends from then on
	}{{blockdev.ErrMedium, 0}, {blockdev.ErrGone, unix.ENXIO}, {blockdev.ErrUnreachable, unix.ENOLINK}} {
		if x.reads != 0 {
			sandbox.Refuse(t, unix.SYS_PREAD64, x.reads)
		}
		if err := c.Read(b, 0); !errors.Is(err, x.want) {
			t.Errorf("read: %v, want %v", err, x.want)
		}
		if err := c.Write(b, 0, false); !errors.Is(err, x.want) {
			t.Errorf("write: %v, want %v", err, x.want)
		}
	}
}

// TestDeviceTakenAway: a fault in a mapping of a file, or a failed sync, is reported as ErrGone if the disk no longer
// exists for the system, though the error is EIO.
func TestDeviceTakenAway(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(disk(t), "v")
			v, err := open(path, blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			c, b := volumetest.NewClient(v), make([]byte, 4096)
			mustWrite(t, c, b, 0, true)
			const gone = "/sys/dev/block/no device"
			switch v := v.(type) {
			case *atomicVolume:
				v.m.below, v.sync = gone, func([]byte) error { return unix.EIO }
			case *volume:
				v.m.below, v.sync = gone, func([]byte) error { return unix.EIO }
			}
			if err := c.Write(b, 4096, true); !errors.Is(err, blockdev.ErrGone) || !errors.Is(err, unix.EIO) {
				t.Errorf("write: %v", err)
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if err := c.Read(b, 0); !errors.Is(err, blockdev.ErrGone) {
				t.Errorf("read: %v", err)
			}
			if err := c.Flush(); !errors.Is(err, blockdev.ErrGone) {
				t.Errorf("flush: %v", err)
			}
		})
	}
}
