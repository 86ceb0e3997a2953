package persist

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

func TestAtomicMappedFile(t *testing.T) { suite(t, (*testing.T).TempDir, Open) }

func TestAtomicTmpfs(t *testing.T) { suite(t, shm, Open) }

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
	suite(t, (*testing.T).TempDir, func(path string, o blockdev.Options) (blockdev.Volume, error) {
		v, err := openAtomicDAX(path, o, lines)
		if err != nil {
			return nil, err
		}
		return v, nil
	})
}

// TestAtomicInfo: a volume says what it promises, for people and for hosts.
func TestAtomicInfo(t *testing.T) {
	var l flushed
	lines := l.flusher()
	type openAtomicFunc = func(string, blockdev.Options) (*atomicVolume, error)
	dax := func(lines *lineFlusher) openAtomicFunc {
		return func(path string, o blockdev.Options) (*atomicVolume, error) { return openAtomicDAX(path, o, lines) }
	}
	mapped := func(path string, o blockdev.Options) (*atomicVolume, error) { return mustOpen(t, path, o), nil }
	for name, x := range map[string]struct {
		dir   func(*testing.T) string
		open  openAtomicFunc
		mode  []string
		cache bool
	}{
		"mapped file":       {disk, mapped, []string{"mapped file on ", "msync", "durable after Flush or FUA"}, true},
		"tmpfs":             {shm, mapped, []string{"tmpfs", "nothing survives the machine"}, false},
		"DAX":               {(*testing.T).TempDir, dax(lines), []string{"DAX on ", lines.name, "a completed write is durable"}, false},
		"DAX without lines": {(*testing.T).TempDir, dax(nil), []string{"DAX on ", "msync", "durable after Flush or FUA"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(x.dir(t), "v")
			for _, o := range []blockdev.Options{{Size: mib}, {ReadOnly: true}} {
				v, err := x.open(path, o)
				if err != nil {
					t.Fatal(err)
				}
				i := v.Info()
				for _, want := range x.mode {
					if !strings.Contains(i.Mode, want) {
						t.Errorf("%q doesn't say %q", i.Mode, want)
					}
				}
				if cache := x.cache && !o.ReadOnly; i.VolatileCache != cache || i.ReadOnly != o.ReadOnly || i.AtomicBlocks != 1 {
					t.Errorf("%+v: %+v; want a volatile cache: %v", o, i, cache)
				}
				if err := volumetest.NewClient(v).Flush(); err != nil {
					t.Errorf("%+v: flush: %v", o, err)
				}
				mustClose(t, v)
			}
		})
	}
}

// TestOtherBlockSize: a volume isn't opened with another block size than it was made with, which would be taken for
// that of what it holds.
func TestOtherBlockSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	mustClose(t, mustOpen(t, path, blockdev.Options{Size: mib, BlockSize: 512}))
	v, err := Open(path, blockdev.Options{BlockSize: 4096})
	if err == nil {
		v.Close()
	}
	if !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), "blocks of 512 bytes, and 4096") {
		t.Error(err)
	}
	mustClose(t, mustOpen(t, path, blockdev.Options{BlockSize: 512}))
}
