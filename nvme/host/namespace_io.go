package host

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ReadAt reads len(p) bytes at off. Long ranges are split into commands of MaxTransfer bytes, several of which are
// outstanding at once, on all queues in turn. It returns how many bytes from the start of p are valid. Memory from
// Controller.Alloc costs least.
func (n *Namespace) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return n.transfer(ctx, nvme.OpRead, p, off, 0)
}

// WriteAt writes p at off, in the same way. The data is durable after Flush.
func (n *Namespace) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	return n.transfer(ctx, nvme.OpWrite, p, off, 0)
}

// WriteAtFUA is WriteAt, except that all of the data is durable when it returns (Force Unit Access).
func (n *Namespace) WriteAtFUA(ctx context.Context, p []byte, off int64) (int, error) {
	return n.transfer(ctx, nvme.OpWrite, p, off, nvme.ControlFUA)
}

// Compare compares p with what is stored at off. A difference is an error that matches nvme.StatusCompareFailure;
// the number is how many bytes are known to be equal.
func (n *Namespace) Compare(ctx context.Context, p []byte, off int64) (int, error) {
	if err := n.supports(nvme.ONCSCompare, nvme.OpCompare); err != nil {
		return 0, err
	}
	return n.transfer(ctx, nvme.OpCompare, p, off, 0)
}

// Flush makes everything durable that was written before.
func (n *Namespace) Flush(ctx context.Context) error {
	var cmd nvme.Command
	cmd.SetFlush(n.ID)
	return n.command(ctx, &cmd, nil)
}

// WriteZeroes makes length bytes at off read as zero, without sending them. If deallocate is set, the controller
// may release their storage.
func (n *Namespace) WriteZeroes(ctx context.Context, off, length int64, deallocate bool) error {
	if err := n.supports(nvme.ONCSWriteZeroes, nvme.OpWriteZeroes); err != nil {
		return err
	}
	var ctl nvme.IOControl
	if deallocate {
		ctl = nvme.ControlDEAC
	}
	return n.each(ctx, nvme.OpWriteZeroes, off, length, limitBlocks(n.ctrl.nvm.WZSL, n.blockSize), ctl)
}

// Verify has the controller check length bytes at off without sending them.
func (n *Namespace) Verify(ctx context.Context, off, length int64) error {
	if err := n.supports(nvme.ONCSVerify, nvme.OpVerify); err != nil {
		return err
	}
	return n.each(ctx, nvme.OpVerify, off, length, limitBlocks(n.ctrl.nvm.VSL, n.blockSize), 0)
}

// WriteUncorrectable marks length bytes at off: reading them fails with a media error until they are written.
func (n *Namespace) WriteUncorrectable(ctx context.Context, off, length int64) error {
	if err := n.supports(nvme.ONCSWriteUncorrectable, nvme.OpWriteUncorrectable); err != nil {
		return err
	}
	return n.each(ctx, nvme.OpWriteUncorrectable, off, length, limitBlocks(n.ctrl.nvm.WUSL, n.blockSize), 0)
}

// Discard tells the controller that length bytes at off are no longer needed (Dataset Management, Deallocate). What
// they read as afterwards is in Identity.DLFEAT.
func (n *Namespace) Discard(ctx context.Context, off, length int64) error {
	most, err := n.maxDiscard()
	if err != nil {
		return err
	}
	if err := n.check(off, length); err != nil {
		return err
	}
	slba, blocks := off/int64(n.blockSize), length/int64(n.blockSize)
	for blocks > 0 {
		now := min(blocks, most)
		var cmd nvme.Command
		cmd.SetDSM(n.ID, 1, nvme.DSMDeallocate)
		part := nvme.DSMRange{Blocks: uint32(now), SLBA: uint64(slba)}
		if err := n.command(ctx, &cmd, part.AppendTo(nil)); err != nil {
			var failed *nvme.StatusError
			if errors.As(err, &failed) { // the command itself doesn't say
				failed.Blocks = nvme.BlockRange{SLBA: part.SLBA, Blocks: part.Blocks}
			}
			return err
		}
		slba, blocks = slba+now, blocks-now
	}
	return nil
}

// MaxDiscard returns the most bytes that one range of a Dataset Management command discards. It fails if the
// controller doesn't have that command.
func (n *Namespace) MaxDiscard() (int64, error) {
	blocks, err := n.maxDiscard()
	return blocks * int64(n.blockSize), err
}

// maxDiscard is MaxDiscard in blocks.
func (n *Namespace) maxDiscard() (int64, error) {
	if err := n.supports(nvme.ONCSDSM, nvme.OpDSM); err != nil {
		return 0, err
	}
	most := int64(math.MaxUint32)
	if l := n.ctrl.nvm.DMRSL; l != 0 {
		most = int64(l)
	}
	if l := n.ctrl.nvm.DMSL; l != 0 && l < uint64(most) {
		most = int64(l)
	}
	return most, nil
}

// each runs one command without data for each part of a range, of at most limit blocks.
func (n *Namespace) each(ctx context.Context, op nvme.Opcode, off, length int64, limit uint32, ctl nvme.IOControl) error {
	if err := n.check(off, length); err != nil {
		return err
	}
	slba, blocks := uint64(off/int64(n.blockSize)), uint64(length/int64(n.blockSize))
	for blocks > 0 {
		now := uint32(min(blocks, uint64(limit)))
		var cmd nvme.Command
		cmd.SetIO(op, n.ID, slba, now, ctl)
		if err := n.command(ctx, &cmd, nil); err != nil {
			return err
		}
		slba, blocks = slba+uint64(now), blocks-uint64(now)
	}
	return nil
}

// limitBlocks converts a size limit of Identify Controller for the NVM command set to blocks: it is 2^v pages, 0
// for none.
func limitBlocks(v uint8, blockSize int) uint32 {
	if v == 0 || v > 19 {
		return nvme.MaxBlocks
	}
	return uint32(min(max((nvme.PageSize<<v)/blockSize, 1), nvme.MaxBlocks))
}

func (n *Namespace) command(ctx context.Context, cmd *nvme.Command, data []byte) error {
	_, err := command(ctx, n.carrier, n.carrier, ioQueue, cmd, data)
	return err
}

func (n *Namespace) supports(bit nvme.ONCS, op nvme.Opcode) error {
	if n.ctrl.identity.ONCS&bit == 0 {
		return fmt.Errorf("nvme: %s on namespace %d: %w (ONCS is %#x)", op.IOName(), n.ID, ErrUnsupported, n.ctrl.identity.ONCS)
	}
	return nil
}
