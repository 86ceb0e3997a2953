package persist

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opener opens a volume in dir, or in the test's own directory.
func opener(dir string, open func(string, blockdev.Options) (blockdev.Volume, error)) func(t *testing.T) func(blockdev.Options) (blockdev.Volume, error) {
	return func(t *testing.T) func(blockdev.Options) (blockdev.Volume, error) {
		d := dir
		if d == "" {
			d = t.TempDir()
		}
		return func(o blockdev.Options) (blockdev.Volume, error) { return open(filepath.Join(d, "volume"), o) }
	}
}

func TestMappedFile(t *testing.T) {
	volumetest.Run(t, volumetest.Config{New: opener("", Open), WholeBlocks: true})
}
