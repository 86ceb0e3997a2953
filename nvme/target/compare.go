package target

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Compare and Verify read their range piece by piece. Verify reads into the transport's memory; Compare and Copy, whose
// host data may be there, have memory of their own.

// Sizes of a piece, in bytes. One that is read directly from a disk takes nearly as long if it is short, since operations
// aren't overlapped; but what is outside of the transport's memory has to be bounded. So of Compares and Copies only
// mostPieces at a time have long ones. A short one may be one block that is larger.
const (
	pieceSize  = 128 << 10
	shortPiece = 16 << 10
	mostPieces = 64
)

// verifyLimit is VSL: a Verify covers 2^8 pages, 1 MiB, as a Read may by default. It moves no data, so that nothing else
// bounds what a host can have read at once while those that share its RNIC wait.
const verifyLimit = 8

func (r *Request) compare() {
	r.engine.kind = opCompare
	if !r.namespace() || !r.blocks(blockdev.OpRead) || !r.transfer() {
		return
	}
	r.withHostData(r.engine.bytes, (*Request).compareData)
}

func (r *Request) compareData() {
	e := &r.engine
	e.chain.piece = e.ns.newPiece(e.bytes)
	r.scan((*Request).nextCompare)
}

func (r *Request) verify() {
	e := &r.engine
	e.kind = opVerify
	if !r.namespace() || !r.blocks(blockdev.OpRead) {
		return
	}
	if r.Cmd.IOControl()&nvme.ControlPRACT != 0 { // even without protection information
		r.fail(nvme.StatusInvalidField, offPRACT)
		return
	}
	if e.io.Length > nvme.PageSize<<verifyLimit {
		r.fail(nvme.StatusInvalidField, offCDW12)
		return
	}
	e.bytes = int(e.io.Length)
	r.withMemory(int(min(e.io.Length, pieceSize)), (*Request).verifyVolume)
}

func (r *Request) verifyVolume() { r.scan((*Request).nextPiece) }

// scan reads the range of e.io.
func (r *Request) scan(next func(*Request) bool) {
	e := &r.engine
	length := int(e.io.Length)
	e.io.Length = 0
	r.run(length, next)
}

func (r *Request) nextCompare() bool {
	e := &r.engine
	c := &e.chain
	if n := int(e.io.Length); c.started && e.io.Err == nil {
		if same := r.hostEqual(c.piece.bytes[:n], c.pos-n); same < n {
			r.atBlock(uint64(e.io.Offset+int64(same)) >> e.ns.shift)
			r.endChain(nvme.StatusCompareFailure | nvme.StatusDNR)
			return false
		}
	}
	return r.nextPiece()
}

// nextPiece prepares the next read, or the flush that FUA asks for, or ends the command.
func (r *Request) nextPiece() bool {
	e := &r.engine
	c := &e.chain
	switch {
	case c.started && e.io.Op == blockdev.OpFlush:
		r.endChain(r.durableReadStatus())
		return false
	case c.started && e.io.Err != nil:
		r.endChain(r.volumeStatus(e.io.Err))
		return false
	case c.pos == c.end && r.durableRead():
		r.prepareFlush()
		return true
	case c.pos == c.end:
		r.endChain(nvme.StatusSuccess)
		return false
	}
	n := min(c.end-c.pos, pieceSize)
	if c.piece != nil {
		n = min(n, len(c.piece.bytes))
	}
	e.io.Offset += e.io.Length
	e.io.Length = int64(n)
	e.io.Bufs = e.io.Bufs[:0]
	if c.piece != nil {
		e.io.Bufs = append(e.io.Bufs, c.piece.bytes[:n])
	} else {
		r.useSome(n)
	}
	c.pos += n
	return true
}

// useSome makes the first n bytes of r.Data the buffers of e.io.
func (r *Request) useSome(n int) {
	for i := range r.Data {
		b := r.Data[i].Bytes
		b = b[:min(len(b), n)]
		if n -= len(b); len(b) > 0 {
			r.engine.io.Bufs = append(r.engine.io.Bufs, b)
		}
	}
}

// hostEqual returns how many leading bytes of b equal the host's data from byte off on.
func (r *Request) hostEqual(b []byte, off int) int {
	if r.InCapsule != nil {
		return equalBytes(b, r.InCapsule[off:off+len(b)])
	}
	same := 0
	for i := range r.Data {
		host := r.Data[i].Bytes
		if off >= len(host) {
			off -= len(host)
			continue
		}
		n := min(len(b)-same, len(host)-off)
		if k := equalBytes(b[same:same+n], host[off:]); k < n {
			return same + k
		}
		same, off = same+n, 0
	}
	return same
}

// equalBytes returns how many leading bytes of a equal those of b, which is at least as long.
func equalBytes(a, b []byte) int {
	if bytes.Equal(a, b[:len(a)]) {
		return len(a)
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// piece is memory that is aligned for direct I/O.
type piece struct {
	bytes []byte
}

const pieceAlign = 4096

var (
	piecePool      = sync.Pool{New: func() any { return makePiece(pieceSize) }}
	shortPiecePool = sync.Pool{New: func() any { return makePiece(shortPiece) }}
	pieces         atomic.Int32 // of pieceSize, in use
)

// newPiece returns memory for a command with n bytes.
func (ns *Namespace) newPiece(n int) *piece {
	if n > shortPiece {
		if pieces.Add(1) <= mostPieces {
			return piecePool.Get().(*piece)
		}
		pieces.Add(-1)
	}
	if block := 1 << ns.shift; block > shortPiece {
		return makePiece(block)
	}
	return shortPiecePool.Get().(*piece)
}

func makePiece(n int) *piece { return &piece{alignedMemory(n, pieceAlign)} }

func (p *piece) free() {
	switch len(p.bytes) {
	case pieceSize:
		pieces.Add(-1)
		piecePool.Put(p)
	case shortPiece:
		shortPiecePool.Put(p)
	}
}
