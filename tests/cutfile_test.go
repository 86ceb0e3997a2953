package tests

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestVolumeCut has another program truncate the file of a mapped volume, and extend it again, while hosts use it:
// memory that existed when a command began is gone before its data has been sent, or has arrived. That may fail a
// command or a connection, and nothing else.
func TestVolumeCut(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", ",mode=inplace"} {
		for _, path := range paths {
			t.Run(path+mode, func(t *testing.T) { testVolumeCut(t, path, mode) })
		}
	}
}

const (
	cutVolume = 16 << 20
	cutLeaves = 4 << 20
	cutPiece  = 128 << 10
)

func testVolumeCut(t *testing.T, path, mode string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "volume")
	p := startTarget(t, "--volume", "pmem:"+file+mode, "--volume", "mem:16MiB", "--size", "16MiB",
		"--pcap", filepath.Join(dir, "capture.pcapng"))
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	other := dialHost(t, p.remote(), path, nil)
	var cuts, failed atomic.Uint64
	for range 10 {
		h := dialHost(t, p.remote(), path, func(c *host.Config) { c.Queues = 2 })
		ns := h.namespace(t, 1) // before the connection may be lost
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := os.Truncate(file, cutLeaves); err != nil {
					t.Error(err)
				}
				if err := os.Truncate(file, info.Size()); err != nil {
					t.Error(err)
				}
				cuts.Add(1)
			}
		})
		for i := range 8 {
			wg.Go(func() { failed.Add(useCut(ctx, ns, i%2 == 0)) })
		}
		time.Sleep(100 * time.Millisecond) // how long the file stays truncated under load
		cancel()
		wg.Wait()
		h.Abandon()
	}
	t.Logf("%d cuts, %d commands failed", cuts.Load(), failed.Load())
	if failed.Load() == 0 {
		t.Error("no command met memory that was gone")
	}
	ns := other.namespace(t, 2)
	if _, err := ns.WriteAt(t.Context(), make([]byte, cutPiece), 0); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	other.close(t)
	p.stop(t)
}

// useCut reads or writes the volume until the connection is lost, and counts the commands that fail.
func useCut(ctx context.Context, ns *host.Namespace, read bool) (failed uint64) {
	b := make([]byte, cutPiece)
	for ctx.Err() == nil {
		at := rand.Int64N(cutVolume/cutPiece) * cutPiece
		var err error
		if read {
			_, err = ns.ReadAt(ctx, b, at)
		} else {
			_, err = ns.WriteAt(ctx, b, at)
		}
		if err != nil && ctx.Err() == nil {
			failed++
		}
		if errors.Is(err, host.ErrLost) || errors.Is(err, host.ErrClosed) {
			break
		}
	}
	return failed
}
