package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestPieces: Compare, Verify and Copy work in long pieces, and where many commands have some, Compare and Copy in
// short ones, or blocks.
func TestPieces(t *testing.T) {
	const length = 2 * pieceSize
	read, write := []blockdev.Op{blockdev.OpRead}, []blockdev.Op{blockdev.OpRead, blockdev.OpWrite}
	for _, x := range []struct {
		name         string
		block, taken int
		op           nvme.Opcode
		want         []blockdev.Op
	}{
		{"Compare", 4096, mostPieces - 1, nvme.OpCompare, slices.Repeat(read, 2)},
		{"Verify", 4096, mostPieces, nvme.OpVerify, slices.Repeat(read, 2)},
		{"Copy", 4096, mostPieces - 1, nvme.OpCopy, slices.Repeat(write, 2)},
		{"one Compare more", 4096, mostPieces, nvme.OpCompare, slices.Repeat(read, length/shortPiece)},
		{"one Copy more", 4096, mostPieces, nvme.OpCopy, slices.Repeat(write, length/shortPiece)},
		{"one Copy of large blocks more", blockdev.MaxBlockSize, mostPieces, nvme.OpCopy, slices.Repeat(write, length/blockdev.MaxBlockSize)},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := newTestVolume(4*length, x.block)
			s := connect(t, newTarget(t, v), testNQN)
			defer s.close()
			for range x.taken {
				p := (&Namespace{}).newPiece(pieceSize)
				defer p.free()
			}
			blocks := length / x.block
			cmd, data := ioCommand(x.op, 0, uint32(blocks), 0), make([]byte, length)
			switch x.op {
			case nvme.OpVerify:
				data = nil
			case nvme.OpCopy:
				cmd, data = copyCommand(uint64(blocks), 0, nvme.CopyRange{Blocks: uint32(blocks)})
			}
			s.io.must(cmd, data)
			if !slices.Equal(v.ops(), x.want) {
				t.Errorf("%v, want %v", v.ops(), x.want)
			}
			if n := pieces.Load(); int(n) != x.taken {
				t.Errorf("%d pieces are in use, want %d", n, x.taken)
			}
		})
	}
}
