package target

import (
	"context"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// eraseUnlessRemoved erases a namespace, but stops waiting if it is removed: the removal waits for what the volume,
// which may hang, still has of it.
func (ns *Namespace) eraseUnlessRemoved(ctx context.Context, now *sanitizeState, pass int) error {
	erased := make(chan error, 1)
	ns.sub.work.Go(func() { erased <- ns.erase(ctx, now, pass) })
	select {
	case err := <-erased:
		return err
	case <-ns.going:
		return nil
	}
}

// erase erases a namespace once, when nothing else uses it.
func (ns *Namespace) erase(ctx context.Context, now *sanitizeState, pass int) error {
	alone := make(chan struct{})
	ns.exclude(nil, func() { close(alone) })
	<-alone
	defer ns.include()
	op := eraser{ns: ns, ctx: ctx, done: make(chan struct{}, 1)}
	op.io.Complete = func(*blockdev.Request) { op.done <- struct{}{} }
	size, step := int64(ns.blocks.Load()<<ns.shift), int64(eraseStep)
	if nvme.SanitizeAction(now.CDW10&7) == nvme.SanitizeOverwrite {
		step = overwriteStep
		pattern := now.CDW11
		// The last pass leaves the pattern itself, however many there are.
		if left := now.passes() - 1 - pass; now.CDW10&nvme.SanitizeOIPBP != 0 && left%2 == 1 {
			pattern = ^pattern
		}
		op.pattern = patternBytes(pattern, int(min(size, step)))
	}
	op.unmap = now.CDW10&nvme.SanitizeNDAS == 0
	if err := op.run(size, step); err != nil {
		return err
	}
	if ns.state.Load()&(nsDamaged|nsRemoved) == nsDamaged {
		return ns.mark(func([]blockRange) []blockRange { return nil })
	}
	return nil
}

// patternBytes returns n bytes of a pattern, aligned for any volume.
func patternBytes(pattern uint32, n int) []byte {
	b := alignedMemory(n, blockdev.MaxBlockSize)
	for i := range b {
		b[i] = byte(pattern >> (i % 4 * 8))
	}
	return b
}

// eraser erases one namespace by one request after the other.
type eraser struct {
	ns      *Namespace
	ctx     context.Context
	io      blockdev.Request
	done    chan struct{}
	pattern []byte // nil: zeroes
	unmap   bool
}

func (e *eraser) run(size, step int64) error {
	for off := int64(0); off < size; off += step {
		if e.ns.state.Load()&nsRemoved != 0 {
			return nil // the removal takes care of the volume
		}
		if e.ctx.Err() != nil {
			return e.ctx.Err()
		}
		n := min(step, size-off)
		e.io.Op, e.io.MayUnmap, e.io.Bufs = blockdev.OpWriteZeroes, e.unmap, e.io.Bufs[:0]
		if e.pattern != nil {
			e.io.Op, e.io.Bufs = blockdev.OpWrite, append(e.io.Bufs, e.pattern[:n])
		}
		e.io.Offset, e.io.Length = off, n
		if err := e.submit(); err != nil {
			return err
		}
		e.ns.sub.sanitize.done.Add(n)
	}
	e.io.Op, e.io.Offset, e.io.Length, e.io.Bufs = blockdev.OpFlush, 0, 0, e.io.Bufs[:0]
	return e.submit()
}

func (e *eraser) submit() error {
	e.ns.volume.Submit(&e.io)
	<-e.done
	return e.io.Err
}
