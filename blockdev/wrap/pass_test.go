package wrap_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// noted is a volume that notes its requests, and fails every flush and to close.
type noted struct {
	blockdev.Volume
	asked      []blockdev.Request
	registered []byte
}

var errNoted = errors.New("it doesn't close")

func (n *noted) Close() error { return errors.Join(n.Volume.Close(), errNoted) }

func (n *noted) Register(mem []byte) (unregister func()) {
	n.registered = mem
	return func() { n.registered = nil }
}

func (n *noted) Submit(r *blockdev.Request) {
	n.asked = append(n.asked, blockdev.Request{Op: r.Op, FUA: r.FUA, MayUnmap: r.MayUnmap, Offset: r.Offset, Length: r.Length})
	if r.Op == blockdev.OpFlush {
		i := n.Info()
		r.End(i.Fail(r.Op, -1, blockdev.ErrMedium, nil))
		return
	}
	n.Volume.Submit(r)
}

// TestPassedOnWhole: every wrapper passes exactly what it was asked to the volume below: a write with FUA that is
// passed down without would be lost when the power fails. The result comes back.
func TestPassedOnWhole(t *testing.T) {
	for name, wrapped := range map[string]func(blockdev.Volume) blockdev.Volume{
		"check":  func(v blockdev.Volume) blockdev.Volume { return wrap.NewChecker(v) },
		"delay":  func(v blockdev.Volume) blockdev.Volume { return wrap.NewDelay(v, 0, time.Microsecond) },
		"fail":   func(v blockdev.Volume) blockdev.Volume { return wrap.NewFail(v) },
		"freeze": func(v blockdev.Volume) blockdev.Volume { return wrap.NewFreezer(v) },
	} {
		t.Run(name, func(t *testing.T) {
			mem, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			below := &noted{Volume: mem}
			v := wrapped(below)
			c := volumetest.NewClient(v)
			b, all := make([]byte, 8192), [][]byte{make([]byte, 8192)}
			for _, r := range []blockdev.Request{
				{Op: blockdev.OpWrite, FUA: true, Offset: 4096, Length: 8192, Bufs: all},
				{Op: blockdev.OpWrite, Offset: 4096, Length: 8192, Bufs: all},
				{Op: blockdev.OpRead, Offset: 8192, Length: 8192, Bufs: [][]byte{b}},
				{Op: blockdev.OpWriteZeroes, FUA: true, MayUnmap: true, Length: 4096},
				{Op: blockdev.OpWriteZeroes, Offset: 4096, Length: 4096},
				{Op: blockdev.OpDiscard, Length: 16384},
				{Op: blockdev.OpFlush},
			} {
				below.asked = below.asked[:0]
				err := c.Do(r)
				if failed := r.Op == blockdev.OpFlush; failed != errors.Is(err, blockdev.ErrMedium) {
					t.Errorf("%v: %v", r.Op, err)
				}
				if len(below.asked) != 1 {
					t.Fatalf("%v: %d requests came down", r.Op, len(below.asked))
				}
				g := below.asked[0]
				if g.Op != r.Op || g.FUA != r.FUA || g.MayUnmap != r.MayUnmap || g.Offset != r.Offset || g.Length != r.Length {
					t.Errorf("the volume below was asked for %+v", g)
				}
			}
			unregister := v.(blockdev.Registrar).Register(b)
			if len(below.registered) != len(b) {
				t.Error("memory isn't registered with the volume below")
			}
			if unregister(); below.registered != nil {
				t.Error("memory stays registered")
			}
			if err := v.Close(); !errors.Is(err, errNoted) {
				t.Errorf("closing: %v", err)
			}
		})
	}
}

// TestGrowsBelow: a volume that grows below a wrapper grows.
func TestGrowsBelow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	file, err := blockdev.OpenFile(path, blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v := wrap.NewFreezer(file)
	defer v.Close()
	told := int64(0)
	stop := v.OnResize(func(n int64) { told = n })
	for _, size := range []int64{2 << 20, 3 << 20} {
		if err := errors.Join(os.Truncate(path, size), v.Refresh()); err != nil {
			t.Fatal(err)
		}
		if n := v.Info().Size; n != size || told != 2<<20 {
			t.Errorf("it has %d bytes of %d, and %d were told", n, size, told)
		}
		stop()
	}
}
