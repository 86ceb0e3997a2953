package target

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// datasetManagement fetches the host's ranges, in as many bytes as the host chooses to send: Linux always sends the
// maximum.
func (r *Request) datasetManagement() {
	if !r.namespace() {
		return
	}
	n, ok := r.mapAnySGL()
	if !ok {
		return
	}
	if n < r.Cmd.DSMRanges()*nvme.DSMRangeSize || n > nvme.DSMDataSize {
		r.fail(nvme.StatusSGLLengthInvalid, offSGL)
		return
	}
	r.withHostData(n, (*Request).haveRanges)
}

// haveRanges checks every range before the first is discarded.
func (r *Request) haveRanges() {
	e := &r.engine
	deallocate := r.Cmd.DSMAttributes()&nvme.DSMDeallocate != 0
	if deallocate && !r.writable() {
		return
	}
	n := r.Cmd.DSMRanges()
	size := e.ns.blocks.Load()
	for i := range n {
		if d := r.dsmRange(i); d.SLBA > size || uint64(d.Blocks) > size-d.SLBA {
			r.atBlock(max(d.SLBA, size))
			r.fail(nvme.StatusLBAOutOfRange, noLoc) // the error is in the data
			return
		}
	}
	if !deallocate || !e.ns.info.Discard {
		r.respond(nvme.StatusSuccess) // the rest is advice
		return
	}
	r.run(n, (*Request).nextDiscard)
}

func (r *Request) dsmRange(i int) (d nvme.DSMRange) {
	var b [nvme.DSMRangeSize]byte
	r.hostData(b[:], i*nvme.DSMRangeSize)
	_ = d.Parse(b[:]) // there are enough bytes
	return d
}

func (r *Request) nextDiscard() bool {
	e := &r.engine
	c := &e.chain
	switch {
	case c.started && e.io.Op == blockdev.OpFlush:
		r.endChain(r.flushStatus())
		return false
	case c.started && e.io.Err != nil:
		r.endChain(r.volumeStatus(e.io.Err))
		return false
	}
	for c.pos < c.end {
		d := r.dsmRange(c.pos)
		c.pos++
		if d.Blocks == 0 {
			continue
		}
		r.ask(blockdev.OpDiscard, int64(d.SLBA<<e.ns.shift), int64(d.Blocks)<<e.ns.shift)
		e.ns.discards.Add(1)
		return true
	}
	if c.started && r.flushesForHost() {
		r.prepareFlush() // there is no discard with FUA
		return true
	}
	r.endChain(nvme.StatusSuccess)
	return false
}
