package blockdev_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opener = func(blockdev.Options) (blockdev.Volume, error)

func TestMemory(t *testing.T) {
	volumetest.Run(t, volumetest.Config{
		New:      func(*testing.T) opener { return blockdev.NewMemory },
		Volatile: true,
		Size:     16 << 20,
	})
}

func TestNull(t *testing.T) {
	volumetest.Run(t, volumetest.Config{
		New:     func(*testing.T) opener { return blockdev.NewNull },
		Forgets: true,
	})
}

// filesIn opens files of dir, or of the test's own directory, in an I/O mode.
func filesIn(dir string, mode blockdev.IOMode) func(t *testing.T) opener {
	return func(t *testing.T) opener {
		d := dir
		if d == "" {
			d = t.TempDir()
		}
		path := filepath.Join(d, "volume")
		return func(o blockdev.Options) (blockdev.Volume, error) {
			o.IO = mode
			return blockdev.OpenFile(path, o)
		}
	}
}

func TestFileBuffered(t *testing.T) {
	volumetest.Run(t, volumetest.Config{New: filesIn("", blockdev.IOBuffered)})
}

func TestFileDirect(t *testing.T) { runDirect(t, blockdev.IODirect) }

func TestFileUring(t *testing.T) { runDirect(t, blockdev.IOUring) }

// runDirect runs the suite in a mode that isn't to be had everywhere.
func runDirect(t *testing.T, mode blockdev.IOMode) {
	v, err := filesIn("", mode)(t)(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Skipf("not in the temporary directory: %v", err)
	}
	t.Log(v.Info().Mode)
	v.Close()
	volumetest.Run(t, volumetest.Config{New: filesIn("", mode)})
}
