package target

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

const mediumError = nvme.StatusUnrecoveredRead | dnr

// failMarked reads blocks 100 to 107, which are marked, in every possible way, and the blocks around them.
func failMarked(t *testing.T, s *session) {
	t.Helper()
	data := make([]byte, 16*512)
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpCompare, nvme.OpVerify} {
		s.io.fails(ioCommand(op, 96, 16, 0), data, mediumError)
		if e := lastError(s.admin); e.LBA != 100 {
			t.Errorf("%#x: LBA %d", op, e.LBA)
		}
		s.io.fails(ioCommand(op, 106, 1, 0), data[:512], mediumError)
		s.io.must(ioCommand(op, 96, 4, 0), data[:4*512])
		s.io.must(ioCommand(op, 108, 4, 0), data[:4*512])
	}
	cmd, ranges := copyCommand(500, 0, nvme.CopyRange{SLBA: 0, Blocks: 1}, nvme.CopyRange{SLBA: 100, Blocks: 1})
	if cqe := s.io.fails(cmd, ranges, mediumError); cqe.DW0() != 0 {
		t.Errorf("Copy: first range not copied %d of those of which nothing was", cqe.DW0())
	}
	if a, b := compareAndWrite(s.io, 100, data[:512], data[:512]); a != mediumError || b != nvme.StatusAbortFailedFused {
		t.Errorf("Compare and Write: %#x and %#x", uint16(a), uint16(b))
	}
}

// TestWriteUncorrectable: reading marked blocks fails with media errors until they are written; the marks outlive the
// target if there is a store.
func TestWriteUncorrectable(t *testing.T) {
	store := &memStore{kept: map[string][]byte{}}
	v := newTestVolume(1<<20, 512)
	start := func() (*Target, *session) {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
		return tg, connect(t, tg, testNQN)
	}
	_, s := start()
	data := make([]byte, 16*512)
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 4, 0), nil)
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 104, 4, 0), nil)
	failMarked(t, s)
	s.io.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
	s.close()

	tg, s := start()
	s.io.fails(ioCommand(nvme.OpRead, 107, 1, 0), data[:512], mediumError)
	s.io.must(ioCommand(nvme.OpWrite, 102, 2, 0), data[:1024])
	s.io.must(ioCommand(nvme.OpRead, 102, 2, 0), data[:1024])
	s.io.must(ioCommand(nvme.OpWriteZeroes, 107, 1, 0), nil)
	cmd, ranges := copyCommand(105, 0, nvme.CopyRange{SLBA: 0, Blocks: 1})
	s.io.must(cmd, ranges)
	ns := tg.Subsystem(testNQN).namespace(1)
	if n := tg.Snapshot().Subsystems[0].Namespaces[0].Uncorrectable; n != 4 {
		t.Errorf("snapshot has %d uncorrectable blocks, want 4", n)
	}
	if want := []blockRange{{100, 102}, {104, 105}, {106, 107}}; !slices.Equal(ns.bad.all(), want) {
		t.Errorf("marked %v, want %v", ns.bad.all(), want)
	}
	s.io.must(ioCommand(nvme.OpWrite, 96, 16, 0), data)
	if ns.state.Load() != 0 {
		t.Errorf("state bits %#x are left", ns.state.Load())
	}
	s.io.fails(ioCommand(nvme.OpWriteUncorrectable, 2047, 2, 0), nil, nvme.StatusLBAOutOfRange|dnr)
	page := make([]byte, nvme.SMARTLogSize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 1, Length: nvme.SMARTLogSize}), page)
	var smart nvme.SMARTLog
	if err := smart.Parse(page); err != nil || smart.MediaErrors.Uint64() != 1 {
		t.Errorf("%v media errors, %v", smart.MediaErrors, err)
	}
	s.close()
	_, s = start()
	s.io.must(ioCommand(nvme.OpRead, 96, 16, 0), data)
	s.close()
}

// TestMarksAndTheEnd: a command for blocks beyond the end of a namespace fails because they are out of range, whatever
// blocks are marked: the first ones, where a range that goes past the last address would go on, or those that are beyond
// the end since the volume shrank.
func TestMarksAndTheEnd(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 0, 1, 0), nil)
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 2040, 8, 0), nil)
	v.info.Size = 512 << 10
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 16*512)
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpCompare, nvme.OpVerify} {
		for _, x := range []struct {
			slba   uint64
			blocks uint32
		}{{math.MaxUint64, 2}, {math.MaxUint64 - 1, 4}, {2040, 1}, {2036, 16}} {
			s.io.fails(ioCommand(op, x.slba, x.blocks, 0), data[:x.blocks*512], nvme.StatusLBAOutOfRange|dnr)
			if e := lastError(s.admin); e.LBA != x.slba {
				t.Errorf("%#x of %d blocks at %#x: LBA %#x", op, x.blocks, x.slba, e.LBA)
			}
		}
		s.io.fails(ioCommand(op, 0, 2, 0), data[:1024], mediumError)
	}
	page := make([]byte, nvme.SMARTLogSize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 1, Length: nvme.SMARTLogSize}), page)
	var smart nvme.SMARTLog
	if err := smart.Parse(page); err != nil || smart.MediaErrors.Uint64() != 3 {
		t.Errorf("%v media errors, %v", smart.MediaErrors, err)
	}
}

// TestHealedDurably: the mark on a block is removed when what was written over it is durable. A power failure that
// loses a write must not leave what the block held before it was marked.
func TestHealedDurably(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTargetWith(t, func(c *Config) { c.Store = &memStore{kept: map[string][]byte{}} }, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	ns, data := tg.Subsystem(testNQN).namespace(1), make([]byte, 512)
	flushes := 0
	v.mu.Lock()
	v.fail = func(r *blockdev.Request) error {
		if r.Op != blockdev.OpFlush {
			return nil
		}
		if flushes++; ns.bad.count() != 1 {
			t.Error("the mark went before the flush")
		}
		return nil
	}
	v.mu.Unlock()
	copied, ranges := copyCommand(100, 0, nvme.CopyRange{SLBA: 0, Blocks: 1})
	for _, x := range []struct {
		what    string
		cmd     nvme.Command
		data    []byte
		flushes int
	}{
		{"write", ioCommand(nvme.OpWrite, 100, 1, 0), data, 1},
		{"write zeroes", ioCommand(nvme.OpWriteZeroes, 100, 1, 0), nil, 1},
		{"copy", copied, ranges, 1},
		{"write with FUA", ioCommand(nvme.OpWrite, 100, 1, nvme.ControlFUA), data, 0},
	} {
		flushes = 0
		s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 1, 0), nil)
		s.io.must(ioCommand(nvme.OpWrite, 101, 1, 0), data) // no mark there
		if flushes != 0 {
			t.Errorf("%s: a write of a block without a mark is flushed", x.what)
		}
		s.io.must(x.cmd, x.data)
		if flushes != x.flushes || ns.bad.count() != 0 {
			t.Errorf("%s: %d flushes, %d marks left", x.what, flushes, ns.bad.count())
		}
	}
	v.mu.Lock()
	v.fail = func(r *blockdev.Request) error {
		if r.Op == blockdev.OpFlush {
			return v.info.Fail(r.Op, -1, blockdev.ErrMedium, nil)
		}
		return nil
	}
	v.mu.Unlock()
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 1, 0), nil)
	s.io.fails(ioCommand(nvme.OpWrite, 100, 1, 0), data, nvme.StatusWriteFault)
	s.io.fails(ioCommand(nvme.OpRead, 100, 1, 0), data, nvme.StatusUnrecoveredRead|dnr)
}

func TestBlockRanges(t *testing.T) {
	var r []blockRange
	for _, add := range []blockRange{{10, 20}, {30, 40}, {25, 26}, {20, 22}} {
		r = with(r, add)
	}
	if want := []blockRange{{10, 22}, {25, 26}, {30, 40}}; !slices.Equal(r, want) {
		t.Errorf("%v, want %v", r, want)
	}
	r = with(r, blockRange{15, 35})
	if want := []blockRange{{10, 40}}; !slices.Equal(r, want) {
		t.Errorf("%v, want %v", r, want)
	}
	r = without(r, blockRange{0, 11})
	r = without(r, blockRange{20, 30})
	r = without(r, blockRange{39, 99})
	if want := []blockRange{{11, 20}, {30, 39}}; !slices.Equal(r, want) {
		t.Errorf("%v, want %v", r, want)
	}
}

// TestMarksSavedSlowly: while a change of the marks is being saved, which takes as long as the Store's disk does, other
// commands go on, also those that look at the marks: they run in the transport's goroutine, which others share.
func TestMarksSavedSlowly(t *testing.T) {
	slow := &savesThen{memStore: newMemStore(), name: namespaceState(stateUncorrectable, [16]byte{1})}
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Namespaces[0].UUID = slow, [16]byte{1} }, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 1, 0), nil)
	saving, goOn := make(chan struct{}), make(chan struct{})
	wait := func() { close(saving); <-goOn }
	slow.then.Store(&wait)
	data := make([]byte, 512)
	healed := s.io.start(ioCommand(nvme.OpWrite, 100, 1, 0), data)
	<-saving
	read := make(chan struct{})
	go func() { // a transport's goroutine
		s.io.must(ioCommand(nvme.OpRead, 200, 1, 0), data)
		tg.Snapshot()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		t.Error("a read waits for the Store")
	}
	close(goOn)
	if st := healed.wait().Status(); !st.OK() {
		t.Errorf("status %#x", uint16(st))
	}
	<-read
	s.io.must(ioCommand(nvme.OpRead, 100, 1, 0), data)
	s.close()
}

// TestUncorrectableLimit: hosts can mark that many ranges and no more, and a write that would leave more of them is
// refused as a whole.
func TestUncorrectableLimit(t *testing.T) {
	v := newTestVolume(512*(2*maxBadRanges+8), 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	mark := func(lba uint64, n uint32) nvme.Command { return ioCommand(nvme.OpWriteUncorrectable, lba, n, 0) }
	const last = 2 * (maxBadRanges - 1)
	s.io.must(mark(last, 3), nil)
	var ranges []blockRange
	for lba := uint64(0); lba < last; lba += 2 { // as that many commands would leave it
		ranges = append(ranges, blockRange{lba, lba + 1})
	}
	tg.Subsystem(testNQN).namespace(1).useBad(append(ranges, blockRange{last, last + 3}))
	s.io.fails(mark(last+6, 1), nil, nvme.StatusInternalError)
	data := make([]byte, 512)
	s.io.fails(ioCommand(nvme.OpWrite, last+1, 1, 0), data, nvme.StatusInternalError) // in the middle of a range: two would be left
	s.io.must(ioCommand(nvme.OpWrite, last, 1, 0), data)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data) // there is room again
	s.io.must(mark(last+6, 1), nil)
	s.close()
}

// TestManyMarks: the number of marked blocks hardly matters to a read, or to a target that starts.
func TestManyMarks(t *testing.T) {
	took := func(f func()) time.Duration {
		least := time.Hour
		for range 5 {
			start := time.Now()
			f()
			least = min(least, time.Since(start))
		}
		return least
	}
	cost := func(n uint64) (read, load time.Duration) {
		var b badBlocks
		load = took(func() {
			var ranges []blockRange
			for i := range n {
				ranges = with(ranges, blockRange{2 * i, 2*i + 1})
			}
			b.ranges.Store(&ranges)
		})
		read = took(func() {
			for range 1000 {
				b.first(blockRange{2 * n, 2*n + 8})
			}
		})
		return read / 1000, load / time.Duration(n)
	}
	readFew, loadFew := cost(32)
	readMany, loadMany := cost(maxBadRanges)
	if readMany > 20*readFew || loadMany > 20*loadFew {
		t.Errorf("a read looks for marks in %v where there are %d, in %v of 32; each of them is loaded in %v, of 32 in %v",
			readMany, maxBadRanges, readFew, loadMany, loadFew)
	}
}

// TestMarksAgainstModel: ranges represent a set of blocks, ascending and not touching each other.
func TestMarksAgainstModel(t *testing.T) {
	const blocks = 64
	r := rand.New(rand.NewPCG(1, 2))
	var b badBlocks
	var model [blocks]bool
	for step := range 20000 {
		first := r.Uint64N(blocks)
		at := blockRange{first, first + 1 + r.Uint64N(min(8, blocks-first))}
		on := r.IntN(2) == 0
		next := slices.Clone(b.all())
		if on {
			next = with(next, at)
		} else {
			next = without(next, at)
		}
		b.ranges.Store(&next)
		for i := at.First; i < at.End; i++ {
			model[i] = on
		}
		var want []blockRange
		for i := range uint64(blocks) {
			if n := len(want); model[i] && n > 0 && want[n-1].End == i {
				want[n-1].End++
			} else if model[i] {
				want = append(want, blockRange{i, i + 1})
			}
		}
		if !slices.Equal(next, want) {
			t.Fatalf("step %d: %v, want %v", step, next, want)
		}
		first = r.Uint64N(blocks)
		end := first + 1 + r.Uint64N(blocks-first)
		bad := slices.Index(model[first:end], true)
		if got, found := b.first(blockRange{first, end}); found != (bad >= 0) || found && got != first+uint64(bad) {
			t.Fatalf("step %d: the first of %d to %d is %d, %v in %v", step, first, end, got, found, want)
		}
	}
}
