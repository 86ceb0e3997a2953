package persist

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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
