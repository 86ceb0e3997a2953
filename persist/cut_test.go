package persist

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// TestCutWhileOpen: after a volume's file was truncated the remaining operations fail, and the program goes on.
func TestCutWhileOpen(t *testing.T) {
	if race.Enabled {
		t.Skip("a fault in the race detector's own code ends the program")
	}
	for name, do := range map[string]func(*volumetest.Client) error{
		"flush": (*volumetest.Client).Flush,
		"write": func(c *volumetest.Client) error { return c.Write(block(2), 4096, false) },
		"FUA":   func(c *volumetest.Client) error { return c.Write(block(2), 4096, true) },
		"write zeroes": func(c *volumetest.Client) error {
			return c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Length: 4096})
		},
		"close": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := filepath.Join(t.TempDir(), "v")
			v := mustOpen(t, path, blockdev.Options{Size: 16 * mib})
			if v.kind != onSync {
				t.Skip("no page cache here")
			}
			c := volumetest.NewClient(v)
			mustWrite(t, c, block(1), 0, false)
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if do != nil {
				if err := do(c); !errors.Is(err, blockdev.ErrMedium) {
					t.Error(err)
				}
			}
			if err := v.Close(); err == nil {
				t.Error("closing says that all is durable")
			}
		})
	}
}

// TestCutLoan: a write in place into memory of the medium fails if that is gone when its lines are to be flushed, and
// the program goes on.
func TestCutLoan(t *testing.T) {
	lines := flusher()
	if race.Enabled || lines == nil {
		t.Skip("a fault in the race detector's own code ends the program, or there is nothing to flush lines with")
	}
	if !sandbox.Inside(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "v")
	size := fileSize(mib, 4096, false)
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mapFile(f, size, false)
	if err != nil {
		t.Fatal(err)
	}
	m.dax = true
	v, err := openMapped(m, path, blockdev.Options{Size: mib}, true, lines)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, loan, err := v.Lend(nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(v.super.extents[0].dataOff)); err != nil {
		t.Fatal(err)
	}
	free := v.free
	c := volumetest.NewClient(v)
	if err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Length: 4096, Loan: loan}); !errors.Is(err, blockdev.ErrMedium) {
		t.Error(err)
	}
	if v.free != free+1 {
		t.Errorf("%d blocks are free, want %d", v.free, free+1)
	}
}
