package persist

import (
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// atomicSuite runs the acceptance suite on volumes that write out of place, on files in dir.
func atomicSuite(t *testing.T, dir func(*testing.T) string, open openFunc) {
	volumetest.Run(t, volumetest.Config{
		New: func(t *testing.T) func(blockdev.Options) (blockdev.Volume, error) {
			path := filepath.Join(dir(t), "volume")
			return func(o blockdev.Options) (blockdev.Volume, error) { return open(path, o) }
		},
	})
}

func TestAtomicMappedFile(t *testing.T) { atomicSuite(t, (*testing.T).TempDir, Open) }

func TestAtomicTmpfs(t *testing.T) { atomicSuite(t, shm, Open) }

// openAtomicDAX opens a file as if it were on a DAX file system.
func openAtomicDAX(path string, o blockdev.Options, lines *lineFlusher) (*atomicVolume, error) {
	v, err := openAtomic(path, o) // which makes it
	if err == nil {
		err = v.Close()
	}
	if err != nil {
		return nil, err
	}
	o.Size = 0
	f, size, _, err := blockdev.OpenLocked(path, &o)
	if err != nil {
		return nil, err
	}
	m, err := mapFile(f, size, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	m.dax = true
	return openMapped(m, path, o, false, lines)
}

func TestAtomicLines(t *testing.T) {
	lines := flusher()
	if lines == nil {
		t.Skip("the processor has no instruction to write a line back")
	}
	atomicSuite(t, (*testing.T).TempDir, func(path string, o blockdev.Options) (blockdev.Volume, error) {
		v, err := openAtomicDAX(path, o, lines)
		if err != nil {
			return nil, err
		}
		return v, nil
	})
}
