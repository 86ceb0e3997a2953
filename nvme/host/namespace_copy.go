package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Copy has the controller copy length bytes at off to the place to, without sending them. The two ranges must not
// overlap, because a long range takes several commands, in ascending order. The data is durable after Flush.
func (n *Namespace) Copy(ctx context.Context, off, to, length int64) error {
	if err := n.supports(nvme.ONCSCopy, nvme.OpCopy); err != nil {
		return err
	}
	for _, start := range []int64{off, to} {
		if err := n.check(start, length); err != nil {
			return err
		}
	}
	if off < to+length && to < off+length {
		return fmt.Errorf("nvme: namespace %d: %w: %d bytes at %d overlap those at %d", n.ID, ErrRange, length, off, to)
	}
	if n.Identity.MSSRL == 0 || n.Identity.MCL == 0 {
		return fmt.Errorf("nvme: namespace %d: %w: it has Copy, but MSSRL is %d and MCL %d", n.ID, ErrController, n.Identity.MSSRL, n.Identity.MCL)
	}
	bs := int64(n.blockSize)
	from, sdlba, blocks := uint64(off/bs), uint64(to/bs), uint64(length/bs)
	for blocks > 0 {
		all := nvme.BlockRange{SLBA: from, Blocks: uint32(min(blocks, n.maxCopy()))}
		if err := n.copyOnce(ctx, all, sdlba); err != nil {
			return err
		}
		now := uint64(all.Blocks)
		from, sdlba, blocks = from+now, sdlba+now, blocks-now
	}
	return nil
}

// maxCopy returns the most blocks that one Copy takes.
func (n *Namespace) maxCopy() uint64 {
	id := &n.Identity
	ranges := min(uint64(id.MSRC)+1, uint64(n.MaxTransfer()/nvme.CopyRangeSize))
	return min(uint64(id.MCL), uint64(id.MSSRL)*ranges)
}

// copyOnce copies blocks by one command, whose source ranges are each as long as the namespace allows.
func (n *Namespace) copyOnce(ctx context.Context, from nvme.BlockRange, sdlba uint64) error {
	var ranges []byte
	count := 0
	for left := from; left.Blocks > 0; count++ {
		now := min(left.Blocks, uint32(n.Identity.MSSRL))
		ranges = nvme.CopyRange{SLBA: left.SLBA, Blocks: now}.AppendTo(ranges)
		left.SLBA, left.Blocks = left.SLBA+uint64(now), left.Blocks-now
	}
	var cmd nvme.Command
	cmd.SetCopy(n.ID, sdlba, count, 0)
	err := n.command(ctx, &cmd, ranges)
	var failed *nvme.StatusError
	if errors.As(err, &failed) { // the command itself doesn't say
		failed.Blocks = from
	}
	return err
}
