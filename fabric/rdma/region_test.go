package rdma_test

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// regionless is a volume that says its memory is not in any region.
type regionless struct{ blockdev.Memory }

func (v regionless) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	first := len(segs)
	segs, token, err := v.Memory.View(segs, offset, length)
	for i := range segs[first:] {
		segs[first+i].Region = nil
	}
	return segs, token, err
}

// TestNoRegion: memory that can't have been registered with a device isn't sent, and no read of it succeeds without its
// data.
func TestNoRegion(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, regionless{memory(t, 1<<20).(blockdev.Memory)})
	c := r.connect(t, nil)
	defer c.Close()
	ns := namespace(t, c, 1)
	want, got := bytes.Repeat([]byte{7}, 4096), make([]byte, 4096)
	if _, err := ns.WriteAt(t.Context(), want, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := ns.ReadAt(t.Context(), got, 0); err == nil && !bytes.Equal(got, want) {
		t.Error("a read succeeded without its data")
	}
}

// window is a volume that is a window on memory, which may have been part of other windows before.
type window struct {
	blockdev.Volume // of the same size; executes everything except reads
	region          *blockdev.Region
}

func (w *window) Regions() []*blockdev.Region { return []*blockdev.Region{w.region} }
func (w *window) Release(blockdev.ViewToken)  {}

func (w *window) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	return append(segs, blockdev.Segment{Region: w.region, Bytes: w.region.Mem[offset:][:length]}), 0, nil
}

// TestAddressUsedAgain: a volume that is mapped where a shorter one was before gets a registration of its own.
func TestAddressUsedAgain(t *testing.T) {
	const size = 1 << 20
	mem := bytes.Repeat([]byte{7}, 2*size)
	of := func(n int64) *window { return &window{memory(t, n), &blockdev.Region{Mem: mem[:n:n]}} }
	first, second := of(size), of(2*size)
	r := newRig(t, rdma.TargetConfig{}, first)
	defer second.Close()
	c := r.connect(t, nil)
	defer c.Close()
	read := func(nsid uint32, off int64) {
		t.Helper()
		ns := namespace(t, c, nsid)
		got := make([]byte, 4096)
		if _, err := ns.ReadAt(t.Context(), got, off); err != nil || !bytes.Equal(got, mem[:4096]) {
			t.Errorf("namespace %d at %d: %v", nsid, off, err)
		}
	}
	read(1, 0)
	sub := r.target.Subsystem(testNQN)
	if err := sub.RemoveNamespace(1); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AddNamespace(target.NamespaceConfig{NSID: 2, Volume: second}); err != nil {
		t.Fatal(err)
	}
	read(2, size)
}
