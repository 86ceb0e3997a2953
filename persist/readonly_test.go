package persist

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
)

// TestReadOnlyRemount: when the file system below a mapping finds an error and becomes read-only, writes report that at
// the latest when they are to be durable, and reads go on.
func TestReadOnlyRemount(t *testing.T) {
	for name, open := range map[string]openFunc{"out of place": Open, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			dir, fail := disktest.FailingFS(t)
			v, err := open(filepath.Join(dir, "v"), blockdev.Options{Size: mib})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close() // which fails: it can't sync
			c, b := volumetest.NewClient(v), bytes.Repeat([]byte{7}, 64<<10)
			mustWrite(t, c, b, 0, true)
			fail()
			if err := c.Write(b, 128<<10, true); !errors.Is(err, blockdev.ErrReadOnly) {
				t.Errorf("write: %v", err)
			}
			if err := c.Read(b, 0); err != nil || b[0] != 7 {
				t.Errorf("read: %v", err)
			}
		})
	}
}
