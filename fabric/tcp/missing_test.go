package tcp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// cutVolume shows and lends the mapping of a file that was truncated to half its length.
type cutVolume struct {
	blockdev.Lender
	region *blockdev.Region
}

const cutHalf = 1 << 20 // bytes

func newCutVolume(t *testing.T) *cutVolume {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: 2 * cutHalf, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(2 * cutHalf); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 2*cutHalf, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := f.Truncate(cutHalf); err != nil {
		t.Fatal(err)
	}
	return &cutVolume{v.(blockdev.Lender), &blockdev.Region{Mem: b, Lent: true, File: true}}
}

func (v *cutVolume) Regions() []*blockdev.Region { return []*blockdev.Region{v.region} }
func (v *cutVolume) Release(blockdev.ViewToken)  {}
func (v *cutVolume) Return(blockdev.LoanToken)   {}

func (v *cutVolume) View(segs []blockdev.Segment, offset, n int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	return append(segs, blockdev.Segment{Region: v.region, Bytes: v.region.Mem[offset:][:n]}), 0, nil
}

// Lend lends memory of which the first page is there.
func (v *cutVolume) Lend(segs []blockdev.Segment, n int64) ([]blockdev.Segment, blockdev.LoanToken, error) {
	return append(segs, blockdev.Segment{Region: v.region, Bytes: v.region.Mem[cutHalf-4096:][:n]}), 1, nil
}

// TestMissingPages: if pages of a volume's memory are gone, a command that would send or fill them ends its connection,
// and no more than that.
func TestMissingPages(t *testing.T) {
	const n = 64 << 10 // what a memory volume lends
	for name, digests := range map[string]HostConfig{
		"plain": {}, "data digest": {DataDigest: true},
	} {
		for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
			t.Run(name+", "+op.IOName(), func(t *testing.T) {
				tt := newTestTargetOn(t, TargetConfig{}, newCutVolume(t))
				other := newPair(t, tt.Addr(), clientOptions{host: digests})
				p := newPair(t, tt.Addr(), clientOptions{host: digests})
				if cqe, err := p.io.do(ioCommand(op, cutHalf-4096, n), make([]byte, n)); err == nil {
					t.Errorf("status %v, want the end of the connection", cqe.Status())
				}
				if err := <-tt.errs; !errors.Is(err, mem.ErrFault) && !errors.Is(err, unix.EFAULT) {
					t.Errorf("the target logs %v", err)
				}
				got := bytes.Repeat([]byte{1}, n)
				other.io.must(ioCommand(nvme.OpRead, 0, n), got)
				if !bytes.Equal(got, make([]byte, n)) {
					t.Error("another host reads something else")
				}
			})
		}
	}
}
