package wrap

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Scrubbed is the result of a scrub.
type Scrubbed struct {
	Blocks int64 // read and compared
	Bad    int64 // found meanwhile, by any reader, to hold other data than was written
	Errors int64 // that could not be read
}

// scrubPiece is how much is read at a time.
const scrubPiece = 256 << 10

// Scrub reads every block that has a checksum, while other requests go on, and compares. The error is the first of a
// read, or else that of the context, with which Scrub abandons a read that hangs.
func (k *Checker) Scrub(ctx context.Context) (found Scrubbed, err error) {
	before := k.bad.Load()
	defer func() { found.Bad = int64(k.bad.Load() - before) }()
	buf := directio.AlignedBlock(scrubPiece)
	done := make(chan struct{}, 1)
	r := &blockdev.Request{Op: blockdev.OpRead, Bufs: [][]byte{nil}, Complete: func(*blockdev.Request) { done <- struct{}{} }}
	k.table.Lock()
	chunks := slices.Sorted(maps.Keys(k.chunks))
	k.table.Unlock()
	for _, c := range chunks {
		for first := c * chunkBlocks; first < (c+1)*chunkBlocks; {
			if ctx.Err() != nil {
				return found, cmp.Or(err, ctx.Err())
			}
			first = k.skip(first, (c+1)*chunkBlocks)
			n := k.run(first, min((c+1)*chunkBlocks, first+scrubPiece/k.block))
			if n == 0 {
				continue
			}
			r.Offset, r.Length, r.Bufs[0] = first*k.block, n*k.block, buf[:n*k.block]
			k.Submit(r)
			select {
			case <-done:
			case <-ctx.Done():
				return found, cmp.Or(err, ctx.Err())
			}
			found.Blocks += n
			err = cmp.Or(err, r.Err)
			if r.Err != nil && !errors.Is(r.Err, ErrChecksum) {
				found.Errors += n
				if errors.Is(r.Err, blockdev.ErrGone) {
					return found, err
				}
			}
			first += n
		}
	}
	return found, err
}

// skip returns the first block from b on, before end, that has a checksum; end if none has.
func (k *Checker) skip(b, end int64) int64 {
	k.table.Lock()
	defer k.table.Unlock()
	for b < end && !k.look(b).known {
		b++
	}
	return b
}

// run returns how many blocks from b on, before end, have a checksum.
func (k *Checker) run(b, end int64) (n int64) {
	k.table.Lock()
	defer k.table.Unlock()
	for b+n < end && k.look(b+n).known {
		n++
	}
	return n
}
