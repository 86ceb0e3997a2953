package target

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// badBlocks are the blocks that hosts marked with Write Uncorrectable: reading them fails with a media error until they
// are written. They are kept in the Store if there is one, because the marks are as durable as data.
type badBlocks struct {
	mu sync.Mutex // held by who changes ranges, also while the change is saved
	// ranges are ascending, and don't touch each other. Reads look at them in the transport's goroutine, which mustn't
	// wait for the Store; so a list never changes.
	ranges atomic.Pointer[[]blockRange]
}

// all returns the marks.
func (b *badBlocks) all() []blockRange {
	if p := b.ranges.Load(); p != nil {
		return *p
	}
	return nil
}

// blockRange is the blocks from First on, and before End.
type blockRange struct {
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
}

// maxBadRanges bounds what hosts can make the target remember.
const maxBadRanges = 4096

// first returns the first marked block in a range; false if there is none.
func (b *badBlocks) first(r blockRange) (uint64, bool) {
	all := b.all()
	i := endingFrom(all, r.First+1)
	if i == len(all) || all[i].First >= r.End {
		return 0, false
	}
	return max(all[i].First, r.First), true
}

// endingFrom returns the index of the first of ascending ranges that ends at block or after it.
func endingFrom(ranges []blockRange, block uint64) int {
	i, _ := slices.BinarySearchFunc(ranges, block, func(r blockRange, b uint64) int { return cmp.Compare(r.End, b) })
	return i
}

// count returns the number of marked blocks.
func (b *badBlocks) count() (n uint64) {
	for _, r := range b.all() {
		n += r.End - r.First
	}
	return n
}

// without returns ranges with one cut out.
func without(ranges []blockRange, cut blockRange) (out []blockRange) {
	for _, r := range ranges {
		if cut.First >= r.End || r.First >= cut.End {
			out = append(out, r)
			continue
		}
		if r.First < cut.First {
			out = append(out, blockRange{r.First, cut.First})
		}
		if cut.End < r.End {
			out = append(out, blockRange{cut.End, r.End})
		}
	}
	return out
}

// with returns ranges with one more, merged with those that it touches. It modifies them.
func with(ranges []blockRange, add blockRange) []blockRange {
	i := endingFrom(ranges, add.First)
	end := i
	for end < len(ranges) && ranges[end].First <= add.End {
		add = blockRange{min(add.First, ranges[end].First), max(add.End, ranges[end].End)}
		end++
	}
	return slices.Replace(ranges, i, end, add)
}

// mark changes the marks by f, durably if there is a Store.
func (ns *Namespace) mark(f func([]blockRange) []blockRange) error {
	b := &ns.bad
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.all()
	next := f(slices.Clone(now))
	if len(next) > maxBadRanges {
		return fmt.Errorf("namespace %d: %w: %d ranges are marked uncorrectable", ns.nsid, ErrLimit, len(now))
	}
	if ns.store() != nil && !slices.Equal(next, now) {
		if err := ns.saveState(stateUncorrectable, next); err != nil {
			return err
		}
	}
	ns.useBad(next)
	return nil
}

// useBad makes marks effective. Called with the marks' mu held, or before anything uses them.
func (ns *Namespace) useBad(ranges []blockRange) {
	ns.bad.ranges.Store(&ranges)
	ns.setState(nsDamaged, len(ranges) > 0)
}

// loadBad loads the marks that were saved.
func (ns *Namespace) loadBad() error {
	data, err := ns.loadState(stateUncorrectable)
	if err != nil || data == nil {
		return err
	}
	var saved, ranges []blockRange
	if err := parseState(data, &saved); err != nil {
		return ns.stateError(stateUncorrectable, err)
	}
	for _, r := range saved {
		if r.First >= r.End {
			return ns.stateError(stateUncorrectable, fmt.Errorf("range from %d to %d", r.First, r.End))
		}
		ranges = with(ranges, r)
	}
	ns.useBad(ranges)
	return nil
}

// commandRange returns the range of a command that names blocks.
func (r *Request) commandRange() blockRange {
	slba := r.Cmd.SLBA()
	return blockRange{slba, slba + uint64(r.Cmd.Blocks())}
}

// writeUncorrectable executes Write Uncorrectable.
func (r *Request) writeUncorrectable() {
	if !r.namespace() || !r.writable() || !r.inRange() {
		return
	}
	r.changeMarks(func(old []blockRange) []blockRange { return with(old, r.commandRange()) })
}

// heal removes the marks from blocks that a command has written, and ends it. What was written is made durable first:
// otherwise a power failure could leave what the blocks held before they were marked, without the marks.
func (r *Request) heal(blocks blockRange) {
	e := &r.engine
	if _, marked := e.ns.bad.first(blocks); !marked {
		r.respond(nvme.StatusSuccess)
		return
	}
	unmark := func(r *Request) {
		if err := r.engine.io.Err; err != nil {
			r.volumeFailed(err)
			return
		}
		r.changeMarks(func(old []blockRange) []blockRange { return without(old, blocks) })
	}
	if !e.ns.info.VolatileCache || e.io.FUA {
		unmark(r)
		return
	}
	r.prepareFlush()
	r.submit(unmark)
}

// changeMarks changes the marks and ends the command.
func (r *Request) changeMarks(f func([]blockRange) []blockRange) {
	r.saving(func() {
		if err := r.engine.ns.mark(f); err != nil {
			r.engine.q.t.log.Warn("uncorrectable blocks not saved: the command fails", r.identity("err", err)...)
			r.respond(nvme.StatusInternalError)
			return
		}
		r.respond(nvme.StatusSuccess)
	})
}

// readable returns success if none of the blocks that a command reads is marked.
func (r *Request) readable(blocks blockRange) nvme.Status {
	bad, found := r.engine.ns.bad.first(blocks)
	if !found {
		return nvme.StatusSuccess
	}
	r.engine.ns.mediaErrors.Add(1)
	r.atBlock(bad)
	return nvme.StatusUnrecoveredRead | nvme.StatusDNR
}
