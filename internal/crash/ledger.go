package crash

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Errors of Ledger.Check; both name the block.
var (
	ErrLost     = errors.New("acknowledged write lost")
	ErrInvented = errors.New("content that was never written")
)

// Ledger knows what a storage has promised for each of its blocks. Writes of one block don't
// overlap in time: Begin follows the Done of the previous one.
type Ledger struct {
	mu     sync.Mutex
	blocks []entry
}

// entry describes one block. Its versions are numbered in the order of Begin; the first is the
// initial content.
type entry struct {
	versions []uint64 // stamps
	open     bool     // the last one is not acknowledged yet
	floor    int      // the oldest version that may be found
	doubt    int      // versions up to this one failed: no flush guarantees them any more
}

// NewLedger returns the ledger of blocks that all hold stamp 0.
func NewLedger(blocks int) *Ledger {
	l := &Ledger{blocks: make([]entry, blocks)}
	for i := range l.blocks {
		l.blocks[i].versions = []uint64{0}
	}
	return l
}

// Begin records that a write of a block is submitted.
func (l *Ledger) Begin(block, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.blocks[block]
	if e.open {
		panic(fmt.Sprintf("crash: block %d is written by two at once", block))
	}
	e.versions, e.open = append(e.versions, seq), true
}

// Done records that the write begun last is complete; durable says that it had FUA, or that the
// storage needs no flush.
func (l *Ledger) Done(block uint64, durable bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.blocks[block]
	if e.open = false; durable {
		e.floor = len(e.versions) - 1
	}
}

// Failed records that the write begun last ended with an error: it may have happened or not,
// and a later flush doesn't guarantee it.
func (l *Ledger) Failed(block uint64) {
	l.Done(block, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.blocks[block]
	e.doubt = len(e.versions) - 1
}

// Floor is the oldest version of each block that may be found after a crash.
type Floor []int

// Floor returns what is promised now.
func (l *Ledger) Floor() Floor {
	return l.collect(func(e *entry) int { return e.floor })
}

// BeginFlush records that a flush is submitted. The Floor that it returns holds once the flush
// is complete.
func (l *Ledger) BeginFlush() Floor {
	return l.collect(func(e *entry) int {
		n := e.acknowledged()
		if n <= e.doubt {
			return e.floor
		}
		return max(n, e.floor)
	})
}

// acknowledged returns the last version whose write is complete.
func (e *entry) acknowledged() int {
	if e.open {
		return len(e.versions) - 2
	}
	return len(e.versions) - 1
}

// FlushFailed records that a flush ended with an error: writes that were complete may be lost,
// and a later flush doesn't guarantee them.
func (l *Ledger) FlushFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.blocks {
		e := &l.blocks[i]
		e.doubt = max(e.doubt, e.acknowledged())
	}
}

func (l *Ledger) collect(of func(*entry) int) Floor {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := make(Floor, len(l.blocks))
	for i := range l.blocks {
		f[i] = of(&l.blocks[i])
	}
	return f
}

// Flushed records that the flush for which BeginFlush returned f is complete.
func (l *Ledger) Flushed(f Floor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range f {
		l.blocks[i].floor = max(l.blocks[i].floor, n)
	}
}

// Check returns an error unless a block may hold content after a crash at which floor was
// promised.
func (l *Ledger) Check(floor Floor, block uint64, content []byte) error {
	seq, err := ReadStamp(content, block)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	versions := l.blocks[block].versions
	if slices.Contains(versions[floor[block]:], seq) {
		return nil
	}
	if slices.Contains(versions, seq) {
		return fmt.Errorf("%w: block %d holds write %d, and write %d is promised", ErrLost, block, seq, versions[floor[block]])
	}
	return fmt.Errorf("%w: block %d holds write %d", ErrInvented, block, seq)
}

// CheckAll checks an image of consecutive blocks.
func (l *Ledger) CheckAll(floor Floor, image []byte) error {
	n := len(image) / len(floor)
	for i := range floor {
		if err := l.Check(floor, uint64(i), image[i*n:(i+1)*n]); err != nil {
			return err
		}
	}
	return nil
}

// Settle records which write a block was found to hold after a crash: from now on that is its
// initial content. Writes that were begun are forgotten.
func (l *Ledger) Settle(block, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks[block] = entry{versions: append(l.blocks[block].versions[:0], seq)}
}
