package target

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Limits of one Copy.
const (
	copyRanges     = 128
	copyRangeBytes = 16 << 20
	copyBytes      = 64 << 20
)

// copyLimits returns MSSRL, MCL and MSRC of Identify Namespace.
func (ns *Namespace) copyLimits() (mssrl uint16, mcl uint32, msrc uint8) {
	return uint16(min(copyRangeBytes>>ns.shift, 1<<16-1)), copyBytes >> ns.shift, copyRanges - 1
}

// copyState is how far a Copy has got, in bytes of the namespace.
type copyState struct {
	from, to int64
	left     int64 // of the source range
	written  bool  // the last operation was a write
}

// copyBlocks executes Copy, piece by piece through memory of its own.
func (r *Request) copyBlocks() {
	r.engine.kind = opCopy
	if !r.namespace() || !r.writable() {
		return
	}
	n := r.Cmd.CopyRanges()
	switch {
	case r.Cmd.CopyFormat() != nvme.CopyFormat0:
		r.fail(nvme.StatusInvalidField, nvme.CopyOffFormat)
	case n > copyRanges:
		r.fail(nvme.StatusCommandSizeLimit, nvme.CopyOffNR)
	case r.mapSGL(n * nvme.CopyRangeSize):
		r.withHostData(n*nvme.CopyRangeSize, (*Request).haveCopyRanges)
	}
}

// haveCopyRanges checks everything before the first block is copied.
func (r *Request) haveCopyRanges() {
	e := &r.engine
	mssrl, mcl, _ := e.ns.copyLimits()
	size, to := e.ns.blocks.Load(), r.Cmd.SLBA()
	n := r.Cmd.CopyRanges()
	var total uint64
	for i := range n {
		total += uint64(r.copyRange(i).Blocks)
	}
	if to >= size || total > size-to {
		r.atBlock(max(to, size))
		r.fail(nvme.StatusLBAOutOfRange, nvme.CopyOffSDLBA)
		return
	}
	for i := range n {
		d := r.copyRange(i)
		st := nvme.StatusSuccess
		switch {
		case d.SLBA >= size || uint64(d.Blocks) > size-d.SLBA:
			st = nvme.StatusLBAOutOfRange
			r.atBlock(max(d.SLBA, size))
		case d.Blocks > uint32(mssrl) || total > uint64(mcl):
			st = nvme.StatusCommandSizeLimit
			r.atBlock(d.SLBA)
		case d.SLBA < to+total && to < d.SLBA+uint64(d.Blocks):
			st = nvme.StatusOverlappingRange
			r.atBlock(max(d.SLBA, to))
		case e.ns.state.Load()&nsDamaged != 0:
			st = r.readable(blockRange{d.SLBA, d.SLBA + uint64(d.Blocks)})
		}
		if st.OK() {
			continue
		}
		r.fail(st, noLoc) // the error is in the data
		return
	}
	e.bytes = int(total << e.ns.shift)
	e.chain.piece = e.ns.newPiece(e.bytes)
	e.chain.copy = copyState{to: int64(to << e.ns.shift)}
	r.run(n, (*Request).nextCopy)
}

func (r *Request) copyRange(i int) (d nvme.CopyRange) {
	var b [nvme.CopyRangeSize]byte
	r.hostData(b[:], i*nvme.CopyRangeSize)
	_ = d.Parse(b[:]) // there are enough bytes
	return d
}

// nextCopy prepares the write of what was read, or the next read, or ends the command.
func (r *Request) nextCopy() bool {
	e := &r.engine
	c := &e.chain
	at := &c.copy
	if c.started && e.io.Err != nil {
		r.endChain(r.volumeStatus(e.io.Err))
		return false
	}
	if c.started && !at.written {
		at.written = true
		e.io.Op, e.io.FUA, e.io.Offset = blockdev.OpWrite, r.durable(), at.to
		at.to += e.io.Length
		return true
	}
	if at.left == 0 {
		if c.pos == c.end {
			if e.ns.state.Load()&nsDamaged != 0 {
				e.chainDone = (*Request).copied
			}
			r.CQE.SetDW0(0)
			r.endChain(nvme.StatusSuccess)
			return false
		}
		d := r.copyRange(c.pos)
		r.CQE.SetDW0(uint32(c.pos)) // the first range that isn't copied, if the command fails
		c.pos++
		at.from, at.left = int64(d.SLBA<<e.ns.shift), int64(d.Blocks)<<e.ns.shift
	}
	n := min(at.left, int64(len(c.piece.bytes)))
	r.ask(blockdev.OpRead, at.from, n)
	e.io.Bufs = append(e.io.Bufs, c.piece.bytes[:n])
	at.from, at.left, at.written = at.from+n, at.left-n, false
	return true
}

// copied ends a Copy to blocks some of which may be marked uncorrectable.
func (r *Request) copied(nvme.Status) {
	e := &r.engine
	r.heal(blockRange{r.Cmd.SLBA(), uint64(e.chain.copy.to) >> e.ns.shift})
}
