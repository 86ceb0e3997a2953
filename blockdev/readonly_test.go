package blockdev_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

// TestFileReadOnlyRemount: when the file system becomes read-only, writes say so, and reads go on.
func TestFileReadOnlyRemount(t *testing.T) {
	for name, mode := range map[string]blockdev.IOMode{
		"uring": blockdev.IOUring, "direct": blockdev.IODirect, "buffered": blockdev.IOBuffered,
	} {
		t.Run(name, func(t *testing.T) {
			dir, fail := disktest.FailingFS(t)
			v, err := blockdev.OpenFile(filepath.Join(dir, "v"), blockdev.Options{Size: mib, IO: mode})
			if err != nil {
				t.Skip(err)
			}
			defer v.Close() // which fails: it can't sync
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 64<<10)
			if err := c.Write(b, 0, true); err != nil {
				t.Fatal(err)
			}
			fail()
			mustFail(t, c.Write(b, 128<<10, true), blockdev.ErrReadOnly, "write", "at byte")
			mustFail(t, c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 0, Length: 4096}), blockdev.ErrReadOnly)
			if err := c.Read(b, 0); err != nil || b[0] != 7 {
				t.Errorf("read: %v", err)
			}
		})
	}
}
