// Package crashload is a host that writes blocks that identify their write, for tests in which the target dies, and
// that checks afterwards whether the volume kept its promises.
package crashload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Load is a volume that outlives its targets, and what its writers were told about it. Run and Check alternate.
type Load struct {
	// Volatile: what was written, but neither flushed nor written with FUA, may be lost.
	Volatile bool
	// Acknowledged counts acknowledged writes, Cut those whose result isn't known.
	Acknowledged, Cut atomic.Uint64

	block, blocks int
	ledger        *crash.Ledger
	seq           atomic.Uint64
}

const (
	writers = 4
	longest = 16 // blocks of a write
)

// New makes a load for blocks of the given number of bytes that all read as zeroes.
func New(blocks, block int) *Load {
	return &Load{block: block, blocks: blocks, ledger: crash.NewLedger(blocks)}
}

// Run writes until the target is lost, and returns what each writer was told. reached is called once, when the given
// number of writes was acknowledged, or earlier if the target is lost before.
func (l *Load) Run(ctx context.Context, ns *host.Namespace, rnd *rand.Rand, writes uint64, reached func()) []error {
	moment := l.Acknowledged.Load() + writes
	var once sync.Once
	var all sync.WaitGroup
	errs := make([]error, writers)
	for i := range writers {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		all.Go(func() {
			defer once.Do(reached)
			for errs[i] == nil {
				if errs[i] = l.write(ctx, ns, own, i); l.Acknowledged.Load() >= moment {
					once.Do(reached)
				}
			}
		})
	}
	all.Wait()
	return errs
}

// write writes some of a writer's own blocks, and sometimes flushes what all have written.
func (l *Load) write(ctx context.Context, ns *host.Namespace, rnd *rand.Rand, writer int) error {
	own := l.blocks / writers
	n := 1 + rnd.IntN(longest)
	first := writer*own + rnd.IntN(own-n+1)
	seq := l.seq.Add(1)
	data := make([]byte, n*l.block)
	for i := range n {
		crash.Stamp(data[i*l.block:][:l.block], uint64(first+i), seq)
		l.ledger.Begin(uint64(first+i), seq)
	}
	write, durable := ns.WriteAt, !l.Volatile
	if rnd.IntN(3) == 0 {
		write, durable = ns.WriteAtFUA, true
	}
	_, err := write(ctx, data, int64(first)*int64(l.block))
	for i := range n {
		if err != nil {
			l.ledger.Failed(uint64(first + i))
		} else {
			l.ledger.Done(uint64(first+i), durable)
		}
	}
	if err == nil {
		l.Acknowledged.Add(1)
		if rnd.IntN(8) == 0 {
			floor := l.ledger.BeginFlush()
			if err = ns.Flush(ctx); err == nil {
				l.ledger.Flushed(floor)
			}
		}
	}
	if err != nil {
		l.Cut.Add(1)
	}
	return err
}

// Check reads all blocks. The error names each block that is lost, torn or invented. What it finds is the expected
// content from then on.
func (l *Load) Check(ctx context.Context, ns *host.Namespace) error {
	image := make([]byte, l.blocks*l.block)
	if _, err := ns.ReadAt(ctx, image, 0); err != nil {
		return fmt.Errorf("reading all blocks: %w", err)
	}
	floor := l.ledger.Floor()
	var errs error
	for b := range uint64(l.blocks) {
		content := image[int(b)*l.block:][:l.block]
		errs = errors.Join(errs, l.ledger.Check(floor, b, content))
		if seq, err := crash.ReadStamp(content, b); err == nil {
			l.ledger.Settle(b, seq)
		}
	}
	return errs
}
