package rdma_test

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
)

// regionless is a volume that says of its memory that it is no region's.
type regionless struct{ blockdev.Memory }

func (v regionless) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	first := len(segs)
	segs, token, err := v.Memory.View(segs, offset, length)
	for i := range segs[first:] {
		segs[first+i].Region = nil
	}
	return segs, token, err
}

// TestNoRegion: memory that a device can't have been told of isn't sent, and no read of it succeeds
// without its data.
func TestNoRegion(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, regionless{memory(t, 1<<20).(blockdev.Memory)})
	c := r.connect(t, nil)
	defer c.Close()
	ns, err := c.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want, got := bytes.Repeat([]byte{7}, 4096), make([]byte, 4096)
	if _, err := ns.WriteAt(t.Context(), want, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := ns.ReadAt(t.Context(), got, 0); err == nil && !bytes.Equal(got, want) {
		t.Error("a read succeeded without its data")
	}
}
